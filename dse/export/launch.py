"""Shell scripts that start a deployment, one for each host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dse.errors import DseError
from dse.export.command import Command, shell_line
from dse.export.deployment import Deployment, Instance
from dse.export.flags import Table
from dse.export.places import Place, places_of
from dse.export.sglang import sglang_command
from dse.export.vllm import vllm_command

Builder = Callable[[Deployment, Instance, Table, str], Command]
COMMANDS: dict[str, Builder] = {"vllm": vllm_command, "sglang": sglang_command}
ROUTER_PORT = 8000
_SIDE_CHANNEL_PORT = 5600  # of NIXL; each data-parallel rank takes the next
_BOOTSTRAP_PORT = 8998
_DIST_PORT = 20000
_DP_RPC_PORT = 29550


@dataclass(frozen=True)
class Started:
    """One process of one server on one host."""

    host: str
    name: str
    command: Command


@dataclass(frozen=True)
class Launch:
    """Every process of a deployment, where clients find it, and what its commands do not say."""

    started: tuple[Started, ...]
    router: tuple[str, ...] = ()  # words of a router's command, on the first host
    router_note: str = ""
    url: str = ""
    lacks: list[str] = field(default_factory=list)


def launch(
    deployment: Deployment, table: Table, version: str, hosts: Sequence[str] | None = None
) -> Launch:
    """The processes of a deployment. Raises DseError where hosts are too few."""
    places = places_of(deployment)
    names = host_names(places, hosts)
    started = [
        one for place in places for one in _processes(deployment, table, version, place, names)
    ]
    lacks = list(dict.fromkeys(text for one in started for text in one.command.lacks))
    router, note = _router(deployment, places, names)
    first = places[0]
    port = ROUTER_PORT if len(places) > 1 else first.port
    return Launch(
        started=tuple(started),
        router=tuple(router),
        router_note=note,
        url=f"http://{names[first.hosts[0]]}:{port}",
        lacks=[*lacks, *deployment.lacks],
    )


def host_names(places: Sequence[Place], hosts: Sequence[str] | None) -> list[str]:
    """Given names, or host0 and so on. Raises DseError where they are too few."""
    n_hosts = max(place.hosts[-1] for place in places) + 1
    names = list(hosts) if hosts else [f"host{i}" for i in range(n_hosts)]
    if len(names) < n_hosts:
        raise DseError(f"--hosts: found {len(names)} hosts; the deployment needs {n_hosts}")
    return names


def _processes(
    deployment: Deployment, table: Table, version: str, place: Place, names: Sequence[str]
) -> list[Started]:
    found = []
    for rank, host in enumerate(place.hosts):
        command = COMMANDS[table.engine](deployment, place.instance, table, version)
        command.env.update(place.device_variable)
        if len(place.hosts) > 1:
            _spread(command, place, rank, names[place.hosts[0]])
        if table.engine == "vllm" and place.instance.role != "both":
            command.env["VLLM_NIXL_SIDE_CHANNEL_HOST"] = names[host]
            port = _SIDE_CHANNEL_PORT + place.serial * 100
            command.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(port)
        if table.engine == "sglang" and place.instance.role == "prefill":
            command.put("bootstrap_port", _BOOTSTRAP_PORT + place.index)
        if table.engine == "sglang" or rank == 0:
            command.put("host", "0.0.0.0")
            command.put("port", place.port)
        found.append(Started(names[host], f"{place.name}-{rank}", command))
    return found


def _spread(command: Command, place: Place, rank: int, head: str) -> None:
    """What a process must know of a server that spans several hosts."""
    one, n = place.instance, len(place.hosts)
    if command.table.engine == "sglang":
        command.put("nodes", n)
        command.put("node_rank", rank)
        command.put("head_address", f"{head}:{_DIST_PORT + place.serial}")
        return
    if one.dp > 1 and one.dp % n == 0:
        local = one.dp // n
        command.put("dp_local", local)
        command.put("dp_address", head)
        command.put("dp_port", _DP_RPC_PORT + place.serial)
        if rank:
            command.put("dp_start", rank * local)
            command.put("headless")
        return
    if one.dp > 1:
        command.lacks.append(f"attention_dp {one.dp} on {n} hosts: a rank would span hosts")
    command.put("nodes", n, else_say="start it by Ray")
    command.put("node_rank", rank)
    command.put("head_address", head)
    if rank:
        command.put("headless")


def _router(
    deployment: Deployment, places: Sequence[Place], names: Sequence[str]
) -> tuple[list[str], str]:
    """(words of the router's command, what to do where there is none)."""
    if len(places) == 1:
        return [], ""
    of_role = {
        role: [(names[p.hosts[0]], p) for p in places if p.instance.role == role]
        for role in ("both", "prefill", "decode")
    }
    if not deployment.disaggregated:
        urls = ", ".join(f"http://{host}:{p.port}" for host, p in of_role["both"])
        return [], (
            f"{len(places)} replicas: put a balancer in front that sends a request to the one with "
            f"the fewest in flight, at port {ROUTER_PORT}: {urls}"
        )
    if deployment.engine == "sglang":
        words = ["python3", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
        for host, p in of_role["prefill"]:
            port = str(_BOOTSTRAP_PORT + p.index)
            words += ["--prefill", f"http://{host}:{p.port}", port]
        for host, p in of_role["decode"]:
            words += ["--decode", f"http://{host}:{p.port}"]
        return [*words, "--host", "0.0.0.0", "--port", str(ROUTER_PORT)], ""
    words = ["python3", "toy_proxy_server.py", "--port", str(ROUTER_PORT)]
    for option, role in (("prefiller", "prefill"), ("decoder", "decode")):
        words += [f"--{option}-hosts", *(host for host, _ in of_role[role])]
        words += [f"--{option}-ports", *(str(p.port) for _, p in of_role[role])]
    return words, (
        "toy_proxy_server.py is in tests/v1/kv_connector/nixl_integration of vLLM's sources; any "
        "router of prefill and decode servers does"
    )


def scripts(launch: Launch, title: str) -> dict[str, str]:
    """File name -> shell script, one for each host; the router runs on the first."""
    found = {}
    hosts = list(dict.fromkeys(one.host for one in launch.started))
    for number, host in enumerate(hosts):
        lines = ["#!/usr/bin/env bash", f"# {_comment(title)}", f"# on {_comment(host)}"]
        lines += ["set -eu", 'cd "$(dirname "$0")"', 'trap "kill 0" INT TERM', ""]
        for one in launch.started:
            if one.host == host:
                lines += [
                    f"# {one.name}",
                    f"{shell_line(one.command.words, one.command.env)} &",
                    "",
                ]
        if number == 0 and launch.router_note:
            lines += [f"# {_comment(launch.router_note)}"]
        if number == 0 and launch.router:
            lines += [f"{shell_line(list(launch.router))} &", ""]
        lines += ["wait", ""]
        found[f"launch-{number}.sh"] = "\n".join(lines)
    return found


def _comment(text: str) -> str:
    """Text that stays in its comment."""
    return "".join(c if c.isprintable() else " " for c in text)

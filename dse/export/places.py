"""Where servers stand: hosts, devices and ports of each."""

from __future__ import annotations

from dataclasses import dataclass

from dse.errors import DseError
from dse.export.deployment import Deployment, Instance

_FIRST_PORT = 8100
_DEVICES = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "huawei": "ASCEND_RT_VISIBLE_DEVICES",
}


@dataclass(frozen=True)
class Place:
    """One server: which of its role it is, its hosts, its devices on each, and its port."""

    instance: Instance
    index: int
    serial: int  # among all servers: keeps ports apart
    hosts: tuple[int, ...]
    devices: tuple[int, ...]

    @property
    def name(self) -> str:
        role = "server" if self.instance.role == "both" else self.instance.role
        return f"{role}-{self.index}"

    @property
    def port(self) -> int:
        return _FIRST_PORT + self.serial

    @property
    def device_variable(self) -> dict[str, str]:
        """The environment that shows a server its own devices."""
        name = _DEVICES.get(self.instance.hardware.vendor)
        return {name: ",".join(map(str, self.devices))} if name else {}


def places_of(deployment: Deployment) -> list[Place]:
    """Servers on hosts, in order; one that is wider than a host takes whole hosts.

    Raises DseError where a wide server does not fill its hosts evenly.
    """
    size = deployment.host_accelerators
    host, used = 0, 0
    found: list[Place] = []
    for instance in deployment.instances:
        need = instance.accelerators
        if need > size and need % size:
            raise DseError(
                f"a server of {need} accelerators does not fill hosts of {size}; "
                "--accelerators-per-host says how many a host has"
            )
        for index in range(instance.count):
            if used and used + min(need, size) > size:
                host, used = host + 1, 0
            n_hosts = max(need // size, 1)
            devices = tuple(range(used, used + min(need, size)))
            hosts = tuple(range(host, host + n_hosts))
            found.append(Place(instance, index, len(found), hosts, devices))
            used += len(devices)
            if n_hosts > 1 or used == size:
                host, used = host + n_hosts, 0
    return found

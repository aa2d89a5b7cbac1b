"""One design on the command line: by flags, or a study with a design from a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dse.cli.options import Overrides
from dse.errors import DseError, Fault, SpecError


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, and the place in a study that it stands for."""

    option: str
    path: str
    kind: type
    text: str

    @property
    def name(self) -> str:
        return self.option[2:].replace("-", "_")


_POOL_FLAGS: Final = tuple(
    Flag(f"--{pool}-{short}", f"space.{pool}.{axis}", int, f"{what} of the {pool} pool.")
    for pool in ("prefill", "decode")
    for short, axis, what in (
        ("workers", "workers", "Workers"),
        ("tp", "attention_tp", "Attention tensor parallelism"),
        ("dp", "attention_dp", "Attention data parallelism"),
        ("ep", "moe_ep", "Expert parallelism"),
        ("pp", "pp", "Pipeline stages"),
        ("batch", "max_batch", "Decoding requests of one worker"),
        ("chunk", "chunk_tokens", "Prompt tokens of one step"),
    )
)
FLAGS: Final = (
    Flag("--model", "model", str, "A model's name, config.json or its folder."),
    Flag("--hardware", "hardware", str, "A target's name or file."),
    Flag("--prefill-hardware", "pools.prefill", str, "Target of the prefill pool."),
    Flag("--decode-hardware", "pools.decode", str, "Target of the decode pool."),
    Flag("--engine", "engine", str, "vllm (as without it), sglang, tensorrt-llm or a file."),
    Flag("--isl", "workload.isl", float, "Prompt tokens of a request, mean."),
    Flag("--osl", "workload.osl", float, "Output tokens of a request, mean."),
    Flag("--concurrency", "workload.concurrency", int, "Clients of a closed loop."),
    Flag(
        "--rate", "workload.arrivals.rate", str, "Arrivals of an open loop, such as 4 requests/s."
    ),
    Flag("--prefix-hit", "workload.prefix_hit_frac", str, "Share of a prompt found in the cache."),
    Flag("--acceptance", "workload.draft_acceptance_frac", str, "Chance that a draft is accepted."),
    Flag("--ttft", "objective.promises.ttft_mean", str, "Promise on time to first token, 2 s."),
    Flag("--tpot", "objective.promises.tpot_mean", str, "Promise on time per token, 50 ms."),
    Flag("--mode", "space.mode", str, "colocated or disaggregated."),
    Flag("--tp", "space.attention_tp", int, "Attention tensor parallelism."),
    Flag("--dp", "space.attention_dp", int, "Attention data parallelism."),
    Flag("--ep", "space.moe_ep", int, "Expert parallelism."),
    Flag("--redundant-experts", "space.redundant_experts", int, "Further expert slots, all ranks."),
    Flag("--expert-placement", "space.expert_placement", str, "contiguous, random or eplb."),
    Flag("--pp", "space.pp", int, "Pipeline stages."),
    Flag("--replicas", "space.replicas", int, "Replicas."),
    Flag("--batch", "space.max_batch", int, "Decoding requests of one replica."),
    Flag("--chunk", "space.chunk_tokens", int, "Prompt tokens of one step and attention rank."),
    Flag("--weight-dtype", "space.weight_dtype", str, "Weights: checkpoint, bf16, fp8, int8 ..."),
    Flag("--activation-dtype", "space.activation_dtype", str, "Activations: checkpoint, bf16 ..."),
    Flag("--kv-dtype", "space.kv_dtype", str, "The cache: checkpoint, bf16, fp8 ..."),
    Flag("--draft-tokens", "space.draft_tokens", int, "Tokens drafted per step."),
    *_POOL_FLAGS,
)
_NEEDED: Final = ("model", "hardware", "isl", "osl")

Study = Annotated[
    str | None,
    typer.Argument(
        metavar="[STUDY]",
        help="A study (name or file) that the design belongs to; else give --model and so on.",
        show_default=False,
    ),
]
Design = Annotated[
    Path | None,
    typer.Option(
        "--design",
        metavar="FILE",
        help="A design in JSON or YAML, or the result.json of a run.",
        show_default=False,
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="Which of the study's targets, where it has several.",
        show_default=False,
    ),
]

Function = Callable[..., int | None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked about: a study (source), a design of it, and which of its targets."""

    source: Any
    design: dict[str, Any] | None
    target: str | None
    model: str | None  # of a study with several
    overrides: list[tuple[str, str]]
    from_flags: bool


def takes_design(function: Callable[..., int | None]) -> Function:
    """A sub-command of (session, request) as one whose signature has all the options above."""

    def command(session: Any, **values: Any) -> int | None:
        return function(session, request_of(values))

    keyword = inspect.Parameter.KEYWORD_ONLY
    named: dict[str, tuple[Any, Any]] = {
        "study": (Study, None),
        "design": (Design, None),
        "target": (TargetName, None),
        **{flag.name: (flag_annotation(flag), None) for flag in FLAGS},
        "overrides": (Overrides, None),
    }
    parameters = [inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD)] + [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in named.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def flag_annotation(flag: Flag) -> Any:
    """A flag as a typer option."""
    metavar = {int: "N", float: "TOKENS"}.get(flag.kind, "TEXT")
    option = typer.Option(flag.option, metavar=metavar, help=flag.text, show_default=False)
    return Annotated[flag.kind | None, option]


def request_of(values: Mapping[str, Any]) -> Request:
    """The request behind parsed options. Raises DseError for combinations without a meaning."""
    from dse.cli.design_file import read_design
    from dse.cli.options import parse_overrides

    overrides = parse_overrides(values.get("overrides"))
    given = {flag: values[flag.name] for flag in FLAGS if values.get(flag.name) is not None}
    study, file, target = values.get("study"), values.get("design"), values.get("target")
    if study is not None:
        if given:
            names = ", ".join(flag.option for flag in given)
            raise DseError(f"found a study and {names}; change a study with --set PATH=VALUE")
        if file is None:
            return Request(study, None, target, None, overrides, from_flags=False)
        found = read_design(file, target)
        target = target or found.hardware
        return Request(study, found.design, target, found.model, overrides, from_flags=False)
    if file is not None:
        raise DseError("--design needs the study that the design belongs to: dse ... STUDY")
    source = study_of(given)
    return Request(source, None, target, None, overrides, from_flags=True)


def study_of(given: Mapping[Flag, Any]) -> dict[str, Any]:
    """The flags as a study with a space of one design."""
    names = {flag.name for flag in given}
    if {"prefill_hardware", "decode_hardware"} <= names:
        names.add("hardware")
    missing = [f"--{name}" for name in _NEEDED if name not in names]
    if missing:
        raise DseError(
            f"missing: {', '.join(missing)} (or name a study: dse ... STUDY [--design FILE])"
        )
    data: dict[str, Any] = {"study": "command-line", "engine": "vllm"}
    for flag, value in given.items():
        whole = isinstance(value, float) and value.is_integer()
        _put(data, flag.path, int(value) if whole else value)
    apart = any(flag.path.startswith(("space.prefill", "space.decode", "pools")) for flag in given)
    space = data.setdefault("space", {})
    space.setdefault("mode", "disaggregated" if apart else "colocated")
    promised = bool(data.get("objective"))
    goodput = "goodput_requests_per_s_per_accelerator"
    data.setdefault("objective", {})["maximize"] = (
        goodput if promised else "output_tokens_per_s_per_accelerator"
    )
    return data


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        data = data.setdefault(folder, {})
    data[last] = value


def in_terms_of_flags(error: SpecError) -> SpecError:
    """Faults of a study made from flags, each named by the flag that it came from."""
    by_path = {flag.path: flag.option for flag in FLAGS}

    def renamed(fault: Fault) -> Fault:
        path = fault.path.partition("[")[0]
        while path:
            if path in by_path:
                return Fault(None, None, None, by_path[path], fault.message)
            path = path.rpartition(".")[0]
        return fault

    return SpecError([renamed(fault) for fault in error.faults])

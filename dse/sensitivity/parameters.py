"""The numbers that a study's answer depends on: names, units, present values, and where they stand.

Names are those of the files that people write: `hardware.memory_bandwidth_bytes_per_s`,
`promises.ttft_p99`, `workload.isl.mean`. A number that is 0 or not stated has no row.
"""

from __future__ import annotations

from collections.abc import Iterator

from dse.lower.study import Problem
from dse.sensitivity.engine import engine_numbers
from dse.sensitivity.handles import ALMOST_ALL, Parameter, number, paths
from dse.sensitivity.hardware import hardware_numbers, transfer_numbers
from dse.sensitivity.places import Place, Root
from dse.serving.types import CLOSED, OPEN
from dse.space.grid import COLOCATED
from dse.spec.study import Study


def parameters_of(study: Study, problem: Problem, root: Root) -> list[Parameter]:
    """Every number of a study with a place in one of its problems, in a fixed order.

    `root` holds the places of the design that the numbers are asked about.
    """
    found = [
        *hardware_numbers(problem.target, root),
        *engine_numbers(problem, root),
        *_limits(study, root),
        *_workload(problem, root),
        *transfer_numbers(study, root),
        *_knobs(problem, root),
    ]
    return [one for one in found if one.value > 0.0]


def _limits(study: Study, root: Root) -> Iterator[Parameter]:
    limits = root["system"].limits
    for group, ending in (("means", "_mean"), ("percentiles", ""), ("each", "")):
        for key, seconds in getattr(limits, group).items():
            place = paths(("system", "limits", group, key))
            yield Parameter(f"promises.{key}{ending}", "s", float(seconds), "limit", place)
    if limits.each and limits.attainment_frac < 1.0:
        yield Parameter(
            name="promises.missed_frac",  # 1 - attainment_frac, the share that may miss
            unit="frac",
            value=1.0 - float(limits.attainment_frac),
            kind="limit",
            places=(Place(("system", "limits", "attainment_frac"), complement=True),),
            most=ALMOST_ALL,
        )
    if study.budget is not None:
        place = paths(("system", "budget_accelerators"))
        value = float(study.budget.accelerators)
        yield Parameter("budget.accelerators", "count", value, "limit", place)


def _workload(problem: Problem, root: Root) -> Iterator[Parameter]:
    system = root["system"]
    traffic = system.traffic

    def of(name: str, unit: str, field: str, most: float = float("inf")) -> Parameter:
        value = float(getattr(traffic, field))
        place = paths(("system", "traffic", field))
        return Parameter(f"workload.{name}", unit, value, "workload", place, most)

    yield of("isl.mean", "tokens", "isl_tokens")
    yield of("osl.mean", "tokens", "osl_tokens")
    if traffic.load_kind == CLOSED:
        yield of("concurrency", "count", "load")
    if traffic.load_kind == OPEN:
        yield of("arrivals.rate", "requests_per_s", "load")
    if system.reuse is None:
        yield of("prefix_hit_frac", "frac", "prefix_hit_frac", ALMOST_ALL)
    if system.model.draft is not None:
        sides = ("source_engine", "sink_engine")
        yield Parameter(
            name="workload.draft_acceptance_frac",
            unit="frac",
            value=float(system.sink_engine.draft_acceptance_frac),
            kind="workload",
            places=paths(*(("system", side, "draft_acceptance_frac") for side in sides)),
            most=ALMOST_ALL,
        )


def _knobs(problem: Problem, root: Root) -> Iterator[Parameter]:
    """What a design chooses in numbers that the relaxed model moves continuously."""

    def of(name: str, field: str, *pools: str) -> Parameter:
        value = number(root, (pools[0], field))
        unit = "tokens" if name.endswith("tokens") else "count"
        places = paths(*((pool, field) for pool in pools))
        return Parameter(f"design.{name}", unit, value, "knob", places)

    both = ("decode", "prefill")
    if problem.mode == COLOCATED:
        yield of("max_batch", "max_batch", *both)
        yield of("chunk_tokens", "chunk_tokens", *both)
        yield of("replicas", "replicas", *both)
    else:
        yield of("decode.max_batch", "max_batch", "decode")
        yield of("prefill.chunk_tokens", "chunk_tokens", "prefill")
        yield of("prefill.workers", "replicas", "prefill")
        yield of("decode.workers", "replicas", "decode")
    if problem.system.model.draft is not None:
        yield of("draft_tokens", "draft_tokens", *both)

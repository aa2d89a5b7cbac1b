"""How far the closed forms are from the simulation, over designs and workloads drawn at random.

`python -m dse.simulate.agreement --draws 100 --seed 7 --out map.csv` plays the draws of a seed and
prints the differences by regime; `--table map.csv` prints them again from the file.

A draw is a deployment, a mix of lengths, a kind of arrivals and a utilization: the rate over the
largest that the closed forms allow without promises. For goodput the promises are the simulated
p99 of TTFT and TPOT at that rate, at which the simulation just keeps them: what the closed forms
find for these promises is compared with the rate itself.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from dse.lower.study import lower_study
from dse.search import exact
from dse.serving.types import GOODPUT, OPEN, Deployment, Limits, System
from dse.simulate.playing import simulate
from dse.space.designs import digit_arrays, gathered
from dse.spec.arrivals import Arrivals
from dse.spec.study import load_study
from dse.spec.workload import Workload
from dse.struct import replace
from dse.workload.dispersion import N_WINDOWS
from dse.workload.requests import sample

Row = dict[str, Any]

METRICS: Final = ("ttft_p50", "ttft_p90", "ttft_p99", "tpot_p50", "tpot_p99", "goodput")
_SHAPES: Final = (
    # model, accelerator, tensor and data parallel attention, experts apart
    ("Llama-3.1-8B", "h100-sxm", 1, 1, 1),
    ("Llama-3.1-8B", "l40s", 1, 1, 1),
    ("Qwen3-32B", "h200-sxm", 2, 1, 1),
    ("Llama-3.1-70B", "h100-sxm", 8, 1, 1),
    ("DeepSeek-V3", "h200-sxm", 1, 8, 8),
)
_MIXES: Final[Mapping[str, Mapping[str, Any] | str]] = {
    "conversation": "azure-conversation",
    "long": "mooncake-conversation",
    "reasoning": {"isl": {"mean": 500, "cv": 1.0}, "osl": {"mean": 1500, "cv": 0.6}},
}
_CHUNKS: Final = (1024, 2048, 4096, 8192)
_BATCHES: Final = (128, 256, 512, 1024)


@dataclass(frozen=True)
class Draw:
    """One comparison: a deployment, its requests, and how busy it is."""

    model: str
    hardware: str
    mode: str
    engine: str
    attention_tp: int
    attention_dp: int
    moe_ep: int
    prefill_workers: int
    decode_workers: int
    chunk_tokens: int
    max_batch: int
    mix: str
    arrivals_cv: float
    utilization: float
    seed: int

    def study(self) -> dict[str, Any]:
        """The study of this one design; its workload has no rate."""
        shape = {
            "attention_tp": self.attention_tp,
            "attention_dp": self.attention_dp,
            "moe_ep": self.moe_ep,
            "max_batch": self.max_batch,
            "chunk_tokens": self.chunk_tokens,
        }
        space: dict[str, Any] = {"mode": self.mode, **shape}
        if self.mode == "disaggregated":
            space["prefill"] = {"workers": self.prefill_workers}
            space["decode"] = {"workers": self.decode_workers}
        return {
            "study": "agreement",
            "model": self.model,
            "hardware": self.hardware,
            "engine": self.engine,
            "workload": _MIXES[self.mix],
            "objective": {
                "maximize": "goodput_requests_per_s_per_accelerator",
                "promises": {"ttft_p99": "10 s"},
            },
            "space": space,
        }


def draws(n: int, seed: int) -> list[Draw]:
    """n draws: utilizations stratified over 0.2 to 0.95, the rest at random."""
    draw = np.random.default_rng([seed, 2])
    levels = 0.2 + 0.75 * (draw.permutation(n) + draw.uniform(size=n)) / n
    found = []
    for index in range(n):
        model, hardware, tp, dp, ep = _SHAPES[draw.choice(5, p=(0.25, 0.2, 0.2, 0.2, 0.15))]
        split = draw.uniform() < 0.3
        bursty = draw.uniform() < 0.4
        found.append(
            Draw(
                model=model,
                hardware=hardware,
                mode="disaggregated" if split else "colocated",
                engine="sglang" if not split and draw.uniform() < 0.4 else "vllm",
                attention_tp=tp,
                attention_dp=dp,
                moe_ep=ep,
                prefill_workers=int(draw.integers(1, 4)),
                decode_workers=int(draw.integers(1, 3)),
                chunk_tokens=int(draw.choice(_CHUNKS)),
                max_batch=int(draw.choice(_BATCHES)),
                mix=str(draw.choice(list(_MIXES))),
                arrivals_cv=float(draw.uniform(2.0, 4.0)) if bursty else 1.0,
                utilization=float(levels[index]),
                seed=seed * 10_000 + index,
            )
        )
    return found


def compare(draw: Draw, n_requests: int = 8_000) -> Row | None:
    """Both sides of a draw and their relative differences; None where nothing can be served.

    Keys: the draw's fields, `closed_*` and `played_*` in s and requests/s, `diff_*` = closed over
    played - 1, and what marks the regime.
    """
    case = _case(draw)
    capacity = _closed(case, GOODPUT, 1.0, {})["requests_per_s"]
    if not capacity > 0.0:
        return None
    rate = draw.utilization * capacity
    requests = sample(case.workload, n_requests, rate=rate, seed=draw.seed)
    played = simulate(case.system, case.design, requests, seed=draw.seed, warmup_frac=0.15)
    row: Row = {**asdict(draw), "rate": rate, "status": played.status}
    row |= {f"played_{one}": played.metrics[f"{one}_s"] for one in METRICS[:-1]}
    row["played_goodput"] = rate
    return row | _met(played.metrics) | _priced(case, row)


def again(row: Row) -> Row:
    """The same row with the closed forms evaluated anew and the simulation as it was."""
    whole = {one.name for one in fields(Draw) if one.type == "int"}
    given: dict[str, Any] = {one.name: row[one.name] for one in fields(Draw)}
    typed: dict[str, Any] = {k: int(v) if k in whole else v for k, v in given.items()}
    draw = Draw(**typed)
    return {**row, **_priced(_case(draw), row)}


class _Case(NamedTuple):
    system: System
    design: Deployment
    workload: Workload


def _case(draw: Draw) -> _Case:
    study = load_study(draw.study())
    arrivals = Arrivals(kind="poisson")
    if draw.arrivals_cv > 1.0:
        arrivals = Arrivals(kind="gamma", cv=draw.arrivals_cv)
    update = {"arrivals": arrivals, "reuse": None, "prefix_hit_frac": 0.0}
    workload = study.workload.model_copy(update=update)
    lowered = lower_study(study.model_copy(update={"workload": workload}))
    [problem] = lowered.problems[0][1]
    design = gathered(problem.tables, digit_arrays(problem.grid, [0]))
    return _Case(problem.system, design, workload)


def _priced(case: _Case, row: Row) -> Row:
    closed = _closed(case, OPEN, row["rate"], {})
    limits = {one: row[f"played_{one}"] for one in _PROMISED}
    goodput = _closed(case, GOODPUT, 1.0, limits)["requests_per_s"]
    found: Row = {f"closed_{one}": closed[f"{one}_s"] for one in METRICS[:-1]}
    found["closed_goodput"] = goodput
    found |= {f"diff_{one}": found[f"closed_{one}"] / row[f"played_{one}"] - 1.0 for one in METRICS}
    return found | {one: closed[one] for one in _MARKS}


_PROMISED: Final = ("ttft_p99", "tpot_p99")
_MARKS: Final = ("slot_wait_frac", "prefill_utilization_frac", "saturation")
_BOUNDLESS_S: Final = 1e6


def _met(metrics: Mapping[str, float]) -> Row:
    names = ("decode_utilization_frac", "preemptions", "mixed_step_frac")
    return {f"met_{name}": metrics[name] for name in names}


def _closed(case: _Case, kind: str, load: float, limits: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one design by the closed forms, float64. All calls have one structure: one trace.

    Without limits a goodput is the largest rate there is.
    """
    traffic = case.system.traffic
    bursts = np.ones(N_WINDOWS) if traffic.dispersion is None else traffic.dispersion
    traffic = replace(traffic, load_kind=kind, load=load, dispersion=bursts)
    promised = Limits(means={}, percentiles=dict.fromkeys(_PROMISED, _BOUNDLESS_S) | dict(limits))
    system = replace(case.system, traffic=traffic, limits=promised)
    one = exact.price(system, case.design).row(0)
    point = one.outcome.point
    found = {name: float(value) for name, value in one.outcome.metrics.items()}
    marks = {name: float(getattr(point, name)) for name in _MARKS}
    return {**found, **marks, "requests_per_s": float(point.requests_per_s)}


# ------------------------------------------------------------------------------- the map
Chosen = Callable[[Row], bool]
REGIMES: Final[Mapping[str, Chosen]] = {
    "all": lambda row: True,
    "below 0.9": lambda row: row["utilization"] < 0.9,
    "from 0.9": lambda row: row["utilization"] >= 0.9,
    "Poisson": lambda row: row["arrivals_cv"] == 1.0,
    "bursty": lambda row: row["arrivals_cv"] > 1.0,
    "mixes phases": lambda row: row["mode"] == "colocated" and row["engine"] == "vllm",
    "prefill first": lambda row: row["engine"] == "sglang",
    "disaggregated": lambda row: row["mode"] == "disaggregated",
    "ranks apart": lambda row: row["attention_dp"] > 1,
    "conversation": lambda row: row["mix"] == "conversation",
    "long": lambda row: row["mix"] == "long",
    "reasoning": lambda row: row["mix"] == "reasoning",
    "slots bind": lambda row: row["slot_wait_frac"] > 0.01,
    "no slot waits, below 0.9": lambda row: (
        row["slot_wait_frac"] <= 0.01 and row["utilization"] < 0.9
    ),
}


def summary(rows: Sequence[Row]) -> list[Row]:
    """Median and 90th percentile of |difference| in %, and the median difference, by regime."""
    found = []
    steady = [row for row in rows if row["status"] == "steady"]
    for name, chosen in REGIMES.items():
        kept = [row for row in steady if chosen(row)]
        if not kept:
            continue
        line: Row = {"regime": name, "n": len(kept)}
        for metric in METRICS:
            values = np.array([row[f"diff_{metric}"] for row in kept]) * 100.0
            values = values[np.isfinite(values)]
            if len(values):
                size = np.abs(values)
                line[metric] = (
                    float(np.median(size)),
                    float(np.quantile(size, 0.9)),
                    float(np.median(values)),
                )
        found.append(line)
    return found


def as_markdown(lines: Iterable[Row]) -> str:
    """A table; each cell is median | p90 of |difference| and the median difference, in %."""
    head = ["regime", "n", *METRICS]
    out = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for line in lines:
        cells = [
            "{:.0f} / {:.0f} ({:+.0f})".format(*line[one]) if one in line else "" for one in METRICS
        ]
        out.append("| " + " | ".join([line["regime"], str(line["n"]), *cells]) + " |")
    return "\n".join(out)


def write(path: Path, rows: Sequence[Row]) -> None:
    """The rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def read(path: Path) -> list[Row]:
    """Rows of a CSV, numbers as numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def main(arguments: Sequence[str] | None = None) -> int:
    """The command of this module."""
    parser = argparse.ArgumentParser(prog="python -m dse.simulate.agreement", description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=8_000)
    parser.add_argument("--out", type=Path, default=Path("agreement.csv"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--again", action="store_true", help="price the table's rows anew")
    given = parser.parse_args(arguments)
    if given.table is not None:
        rows = read(given.table)
        if given.again:
            rows = [again(row) for row in rows]
            write(given.table, rows)
        print(as_markdown(summary(rows)))
        return 0
    rows = []
    for index, draw in enumerate(draws(given.draws, given.seed)):
        row = compare(draw, given.requests)
        if row is not None:
            rows.append(row)
            write(given.out, rows)
        print(f"{index + 1}/{given.draws}", file=sys.stderr, end="\r", flush=True)
    print(as_markdown(summary(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The law of power against measured mean powers of A100 (Splitwise), at measured times.

A run is one prompt phase and token steps: each phase computes and moves what the model must, in
the time that was measured, so that only the law of power is tested.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dse.cost.energy import power
from dse.cost.step import step
from dse.cost.types import DecodeLoad
from tests.support import engine, formats, model, pool, target

_FILE = Path(__file__).parent / "data" / "a100_power.csv"
_CHIP = target("a100-sxm-80gb")
_PEAK, _BANDWIDTH = 312e12, 2.039e12


class _Shape(NamedTuple):
    """Parameters, cached bytes and attention flops per token of context."""

    parameters: float
    kv_bytes: float
    attention_flops: float


_SHAPES = {
    "llama2-70b": _Shape(68.98e9, 80 * 8 * 128 * 2 * 2, 4 * 80 * 8192),
    "bloom-176b": _Shape(176.2e9, 70 * 14336 * 2 * 2, 4 * 70 * 14336),
}


class _Run(NamedTuple):
    model: str
    tp: int
    compute: float  # shares of the peaks, mean over the run
    memory: float
    measured: float  # of 400 W


def _run(row: dict[str, str]) -> _Run:
    shape, tp = _SHAPES[row["model"]], int(row["tp"])
    prompt, batch, tokens = (int(row[f"{name}_size"]) for name in ("prompt", "batch", "token"))
    prompt_s, step_s, whole_s = (
        float(row[f"{name}_time_ms"]) / 1e3 for name in ("prompt", "token", "e2e")
    )
    context = prompt + tokens / 2
    share = min(prompt_s / whole_s, 1.0)
    attended = shape.attention_flops * prompt * prompt / 2
    flops = batch * (2 * shape.parameters * prompt + attended) / tp
    weights = 2 * shape.parameters / tp
    step_flops = batch * (2 * shape.parameters + shape.attention_flops * context) / tp
    step_bytes = weights + batch * context * shape.kv_bytes / tp
    return _Run(
        row["model"],
        tp,
        share * flops / (prompt_s * _PEAK) + (1 - share) * step_flops / (step_s * _PEAK),
        share * weights / (prompt_s * _BANDWIDTH)
        + (1 - share) * step_bytes / (step_s * _BANDWIDTH),
        float(row["avg_power_frac"]),
    )


@pytest.fixture(scope="module")
def runs() -> list[_Run]:
    lines = [line for line in _FILE.read_text().splitlines() if not line.startswith("#")]
    return [_run(row) for row in csv.DictReader(lines)]


def _errors(runs: list[_Run], **weights: float) -> NDArray[np.float64]:
    by = engine("generic", **weights)
    watts = [float(power(1.0, run.compute, run.memory, _CHIP, by)) for run in runs]
    measured = np.array([run.measured for run in runs]) * float(_CHIP.power_w)
    return np.asarray(np.array(watts) / measured - 1.0, dtype=np.float64)


def _sound(runs: list[_Run]) -> list[_Run]:
    """Without three rows of the longest prompt at 70 W: less than the same chips draw at a third
    of the load, hardly above idle; their powers were not sampled while they ran."""
    return [run for run in runs if run.measured > 0.25]


@pytest.mark.accuracy
def test_mean_power_of_deployments(runs: list[_Run]) -> None:
    """4.0 % (mean), 2.6 % (median), bias +0.5 % when this was written, in what was fitted."""
    assert (len(runs), len(_sound(runs))) == (44, 41)
    found = _errors(_sound(runs))
    assert np.mean(np.abs(found)) < 0.06
    assert abs(np.mean(found)) < 0.03


@pytest.mark.accuracy
def test_without_an_active_share_power_is_far_too_low(runs: list[_Run]) -> None:
    """What was shipped before: weights of 0.6 and 0.5 and none of being active."""
    found = _errors(
        _sound(runs), active_power_frac=0.0, compute_power_frac=0.6, memory_power_frac=0.5
    )
    assert np.mean(found) < -0.4


def test_the_work_is_what_the_cost_model_counts(runs: list[_Run]) -> None:
    served = pool(formats("Llama-2-70B", "a100-sxm-80gb"), tp=2)
    load = DecodeLoad(requests=16.0, rows_per_request=1.0, context=576.0)
    cost = step(model("Llama-2-70B"), served, _CHIP, engine("generic"), decode=load)
    shape = _SHAPES["llama2-70b"]
    by_hand = (2 * shape.parameters + 16 * 576 * shape.kv_bytes) / 2
    assert float(cost.bytes) == pytest.approx(by_hand, rel=0.1)
    flops = 16 * (2 * shape.parameters + shape.attention_flops * 576) / 2
    assert float(cost.flops) == pytest.approx(flops, rel=0.15)

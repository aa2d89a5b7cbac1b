"""The stated spread of predictions: promises with a probability, and where deviations are from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.errors import SpecError
from dse.lower.spread import Spread, spread_of
from dse.lower.study import lower_study
from dse.serving.types import Limits
from dse.spec.study import load_study

SPREAD = Spread(ttft_log_sd=0.5, tpot_log_sd=0.2, source="a test")
LIMITS = Limits(means={"ttft": 2.0}, percentiles={"tpot_p99": 0.05, "itl_p90": 0.04})
STUDY = {
    "study": "spread",
    "model": "Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": "vllm",
    "workload": {"isl": 1000, "osl": 200},
    "objective": {
        "maximize": "goodput_requests_per_s_per_accelerator",
        "promises": {"ttft_mean": "2 s", "tpot_p99": "50 ms"},
    },
    "space": {"max_batch": [64]},
}


def predictions(limits: Limits) -> dict[str, float]:
    """What is predicted of a design that just keeps its limits."""
    found = {f"{name}_mean": float(limit) for name, limit in limits.means.items()}
    return found | {name: float(limit) for name, limit in limits.percentiles.items()}


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95])
def test_tightened_limits_keep_the_promises_so_often(probability: float) -> None:
    """Against draws: one error for first tokens, one for tokens; all promises at once."""
    found = predictions(SPREAD.tightened(LIMITS, probability))
    promised = predictions(LIMITS)
    rng = np.random.default_rng(0)
    first, each = (np.exp(rng.normal(0.0, sd, 200_000)) for sd in (0.5, 0.2))
    kept = first * found["ttft_mean"] <= promised["ttft_mean"]
    for name in ("tpot_p99", "itl_p90"):
        kept &= each * found[name] <= promised[name]
    assert kept.mean() == pytest.approx(probability, abs=0.005)
    assert SPREAD.kept_probability(promised, found) == pytest.approx(probability, rel=1e-9)


def test_one_latency_needs_no_margin_for_others() -> None:
    only = Limits(means={}, percentiles={"tpot_p99": 0.05, "tpot_p90": 0.03})
    found = predictions(SPREAD.tightened(only, 0.9))
    assert found["tpot_p99"] == pytest.approx(0.05 * np.exp(-1.2815516 * 0.2), rel=1e-6)
    assert SPREAD.kept_probability({}, {}) == 1.0


def test_scaled_limits_are_undone_by_the_opposite() -> None:
    there = SPREAD.scaled(LIMITS, 1.3)
    back = SPREAD.scaled(there, -1.3)
    assert predictions(back) == pytest.approx(predictions(LIMITS))
    assert there.means["ttft"] == pytest.approx(2.0 * np.exp(0.65))


def test_a_probability_tightens_what_is_searched_and_nothing_else() -> None:
    objective = {**STUDY["objective"], "probability": 0.9}  # type: ignore[dict-item]
    (_, [plain]), (_, [robust]) = (
        lower_study(load_study({**STUDY, "objective": one})).problems[0]
        for one in (STUDY["objective"], objective)
    )
    assert float(plain.system.limits.means["ttft"]) == 2.0
    assert robust.promised == plain.promised
    wanted = robust.spread.tightened(robust.promised, 0.9)
    assert robust.system.limits == wanted
    assert float(wanted.means["ttft"]) < 1.2


@pytest.mark.parametrize("value", [0.3, 1.0, "90"])
def test_probabilities_are_shares_from_a_half_on(value: object) -> None:
    objective = {**STUDY["objective"], "probability": value}  # type: ignore[dict-item]
    with pytest.raises(SpecError, match="probability"):
        load_study({**STUDY, "objective": objective})


def test_a_probability_without_promises_is_refused() -> None:
    objective = {"maximize": "output_tokens_per_s", "probability": 0.9}
    with pytest.raises(SpecError, match="expected promises with it"):
        load_study({**STUDY, "objective": objective})


def spread_on(hardware: str, **more: object) -> Spread:
    study = {**STUDY, "hardware": hardware, **more}
    [(_, [problem])] = lower_study(load_study(study)).problems
    return problem.spread


def test_priors_are_wider_where_nothing_was_compared() -> None:
    plain = {"name": "vllm", "deployments": "none"}
    near, far = spread_on("h100-sxm", engine=plain), spread_on("tpu-v5e", engine=plain)
    assert far.tpot_log_sd == pytest.approx(3.0 * near.tpot_log_sd)
    assert "few deployments" in far.source
    assert "public colocated deployments" in near.source


def test_a_fit_states_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "engine: vllm\nbase: priors\nsource: rows of a test\ndate: 2026-01-31\n"
        "levels:\n"
        "  - {n_rows: 9, scatter: {colocated: {tpot_log_sd: 0.3, ttft_log_sd: 0.6}}}\n"
        "  - of: {vendor: nvidia, generation: hopper, model: meta-llama/Meta-Llama-3.1-8B}\n"
        "    n_rows: 5\n"
        "    scatter: {colocated: {tpot_log_sd: 0.05, ttft_log_sd: 0.1}}\n"
    )
    engine = {"name": "vllm", "deployments": str(path)}
    own = spread_on("h100-sxm", engine=engine)
    assert (own.ttft_log_sd, own.tpot_log_sd) == (0.1, 0.05)
    assert "5 measured deployments" in own.source
    other = spread_on("h100-sxm", engine=engine, model="Llama-2-7B")
    assert (other.ttft_log_sd, other.tpot_log_sd) == (0.6, 0.3)


def test_two_targets_have_the_spread_of_each_side() -> None:
    [(_, [problem])] = lower_study(load_study(STUDY)).problems
    laws = replace(problem.laws["decode"], scatter={})
    both = spread_of(laws, laws, "disaggregated", ("nvidia", "google"))
    assert both.tpot_log_sd == pytest.approx(3.0 * 0.22)
    assert both.ttft_log_sd == pytest.approx(1.0)
    assert ";" in both.source

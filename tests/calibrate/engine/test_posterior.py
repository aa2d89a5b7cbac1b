"""The most likely coordinates of levels, on predictions that are linear in them."""

from __future__ import annotations

import numpy as np

from dse.calibrate.engine.cases import Case
from dse.calibrate.engine.knobs import KNOBS, NAMES, deviation, shifts_at
from dse.calibrate.engine.posterior import default_priors, most_likely, total
from dse.calibrate.rows import Row
from dse.spec.deployments import Subject

_EVERY = Subject(vendor="nvidia")
_CHIPS = Subject(vendor="nvidia", generation="hopper")


def _case(model: str, i: int) -> Case:
    row = Row(
        id=f"{model}-{i}",
        mode="colocated",
        model=model,
        hardware="h100-sxm",
        engine="vllm",
        isl_tokens=1000,
        osl_tokens=100,
        concurrency=8,
        attention_tp=1,
    )
    own = Subject(vendor="nvidia", generation="hopper", model=model)
    precise = own.model_copy(update={"precision": "fp8"})
    return Case(row, (_EVERY, _CHIPS, own, precise), (0.0, 0.0))


def _slopes(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.5, (n, 2, len(KNOBS)))


def test_many_rows_decide_and_levels_share_what_is_common() -> None:
    cases = [_case(model, i) for model in ("a", "b", "c") for i in range(150)]
    slopes, k = _slopes(len(cases), 1), NAMES.index("layer_s")
    truth = np.zeros(len(KNOBS))
    truth[k] = 0.6
    residuals = slopes @ truth
    theta = most_likely(cases, residuals, slopes, {}, default_priors(cases))
    for case in cases:
        assert abs(total(case, theta)[k] - 0.6) < 0.02
    # Three models agree: most of it belongs to the engine and the chips, not to each model.
    assert theta[_EVERY][k] + theta[_CHIPS][k] > 0.4


def test_few_rows_hardly_move_the_priors() -> None:
    cases = [_case("a", 0)]
    slopes = np.zeros((1, 2, len(KNOBS)))
    slopes[0, 0, NAMES.index("layer_s")] = 0.01
    theta = most_likely(cases, np.array([[0.05, 0.0]]), slopes, {}, default_priors(cases))
    assert abs(total(cases[0], theta)[NAMES.index("layer_s")]) < 0.1


def test_odd_rows_do_not_decide() -> None:
    cases = [_case("a", i) for i in range(200)]
    slopes, k = _slopes(len(cases), 2), NAMES.index("host_s_per_step")
    truth = np.zeros(len(KNOBS))
    truth[k] = -0.4
    residuals = slopes @ truth
    residuals[::20] += 3.0
    theta = most_likely(cases, residuals, slopes, {}, default_priors(cases))
    assert abs(total(cases[0], theta)[k] + 0.4) < 0.08


def test_what_was_not_measured_is_left_out() -> None:
    cases = [_case("a", i) for i in range(60)]
    slopes, k = _slopes(len(cases), 3), NAMES.index("layer_s")
    truth = np.zeros(len(KNOBS))
    truth[k] = 0.5
    residuals = slopes @ truth
    residuals[:, 1] = np.nan
    theta = most_likely(cases, residuals, slopes, {}, default_priors(cases))
    assert np.isfinite(total(cases[0], theta)).all()
    assert total(cases[0], theta)[k] > 0.2


def test_the_solution_is_the_same_from_another_start() -> None:
    cases = [_case("a", i) for i in range(80)]
    slopes = _slopes(len(cases), 4)
    truth = np.full(len(KNOBS), 0.2)
    priors = default_priors(cases)
    first = most_likely(cases, slopes @ truth, slopes, {}, priors)
    here = np.array([total(case, first) for case in cases])
    left = slopes @ truth - np.einsum("iqk,ik->iq", slopes, here)
    again = most_likely(cases, left, slopes, first, priors)
    for subject in first:
        np.testing.assert_allclose(again[subject], first[subject], atol=1e-8)


def test_a_knob_moves_only_where_it_may() -> None:
    cases = [_case("a", i) for i in range(40)]
    theta = most_likely(cases, np.ones((40, 2)), _slopes(40, 5), {}, default_priors(cases))
    precise = cases[0].subjects[-1]
    for k, knob in enumerate(KNOBS):
        if deviation(knob, "precision") == 0.0:
            assert theta[precise][k] == 0.0


def test_what_has_no_prior_is_added_and_never_falls_below_nothing() -> None:
    coordinates = np.zeros(len(KNOBS))
    coordinates[NAMES.index("expert_layer_s")] = -1.0
    shifts = shifts_at(coordinates)
    assert not shifts.logs
    assert shifts.added["expert_layer_s"] < 0.0
    assert shifts.moved("expert_layer_s", 0.0) == 0.0
    assert shifts.moved("expert_layer_s", 30e-6) == 30e-6 + shifts.added["expert_layer_s"]

"""What ranks and stages share of prompts: only those that come into the same step or trip."""

from __future__ import annotations

import numpy as np
import pytest

from dse.simulate.playing import play
from tests.simulate.lines import Affine, line, poisson

FIXED_S, ROW_S, ISL = 0.01, 2e-5, 500


def share(rate: float, **degrees: int) -> tuple[float, float]:
    """(prompt work that a step carries per prompt over a prompt alone, prompts per step).

    From TPOT t = V + f X w t with V the step without prompts and w the work of one prompt.
    """
    requests = poisson(1_200, rate, ISL, 100)
    played = play(line(Affine(FIXED_S, ROW_S), chunk_tokens=8192, **degrees), requests)
    step = played.metrics["tpot_mean_s"]
    groups = int(np.prod(list(degrees.values())))
    alone = FIXED_S + ROW_S * played.metrics["resident_requests"] / groups
    return (step - alone) / (rate * ROW_S * ISL * step), rate * step


def largest(groups: int, prompts: float) -> float:
    """E[max of `groups` Poisson numbers] / E[their sum], for so many prompts a step."""
    drawn = np.random.default_rng(0).poisson(prompts / groups, (200_000, groups))
    return float(drawn.max(axis=1).mean() / prompts)


@pytest.mark.parametrize("degrees", [{"dp": 2}, {"dp": 8}, {"pp": 4}], ids=str)
@pytest.mark.parametrize("rate", [20.0, 50.0])
def test_prompts_share_a_step_only_by_chance(degrees: dict[str, int], rate: float) -> None:
    found, prompts = share(rate, **degrees)
    [groups] = degrees.values()
    assert found == pytest.approx(largest(groups, prompts), rel=0.12)


def test_few_prompts_share_nothing() -> None:
    assert share(4.0, dp=8)[0] == pytest.approx(1.0, abs=0.15)

"""Figures to a search's precision against those in full."""

from __future__ import annotations

import numpy as np
import pytest

from dse.lower.study import Problem, lower_study
from dse.search.exact import price_designs, score_designs
from dse.spec.study import load_study


def steep(objective: str) -> Problem:
    """Percentiles that rise steeply beside the largest load that keeps their limits."""
    study = load_study("mlperf-llama2-70b-h200", [("objective", objective)])
    [(_, [problem])] = lower_study(study).problems
    return problem


# Of the rates at which a search compares designs.
SERVER = ("mlperf-server-llama2-70b", 0.01)
INTERACTIVE = ("mlperf-interactive-llama2-70b", 0.1)


@pytest.mark.parametrize(("objective", "within"), [SERVER, INTERACTIVE])
def test_a_search_refuses_what_is_refused_at_full_precision(objective: str, within: float) -> None:
    problem = steep(objective)
    chosen = np.random.default_rng(0).choice(problem.grid.size, 64, replace=False).tolist()
    scored, priced = score_designs(problem, chosen), price_designs(problem, chosen)
    np.testing.assert_array_equal(scored.reason, priced.outcome.reason)
    feasible = np.isfinite(scored.score)
    assert 16 <= feasible.sum() < len(chosen)
    full = np.asarray(priced.outcome.metrics[problem.goal.metric])
    np.testing.assert_allclose(scored.score[feasible], full[feasible], rtol=within)

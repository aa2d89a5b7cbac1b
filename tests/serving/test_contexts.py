"""Contexts of decoding requests: their moments, and the rank that has most of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dse.serving.colocated import decode_load
from dse.serving.types import Traffic
from tests.support import traffic

Floats = np.ndarray


def gamma(
    rng: np.random.Generator, mean: float, cv: float, shape: Any, more: float = 0.0
) -> Floats:
    """Gamma lengths; drawn by length to the power of `more`, their shape is that much larger."""
    if cv == 0.0:
        return np.full(shape, mean)
    return np.asarray(rng.gamma(cv**-2 + more, mean * cv**2, shape))


def lognormal(rng: Any, mean: float, cv: float, shape: Any, more: float = 0.0) -> Floats:
    """The same of lognormal lengths."""
    s2 = np.log1p(cv * cv)
    return np.asarray(mean * np.exp(rng.normal((more - 0.5) * s2, np.sqrt(s2), shape)))


def contexts(asked: Traffic, shape: Any, lengths: Any = gamma, seed: int = 0) -> Floats:
    """A prompt and what is said so far: a random part of an output that is met by its length."""
    rng = np.random.default_rng(seed)
    prompts = lengths(rng, float(asked.isl_tokens), float(asked.isl_cv), shape)
    outputs = lengths(rng, float(asked.osl_tokens), float(asked.osl_cv), shape, 1.0)
    return np.asarray(prompts + rng.random(shape) * outputs)


# Nodes of lognormal lengths have all but the last of the third moment.
@pytest.mark.parametrize("osl_cv", [0.0, 1.0])
@pytest.mark.parametrize("isl_cv", [0.0, 0.7])
@pytest.mark.parametrize("osl_tokens", [50.0, 4000.0])
def test_contexts_vary_as_drawn_ones(isl_cv: float, osl_cv: float, osl_tokens: float) -> None:
    asked = traffic(isl_cv=isl_cv, osl_cv=osl_cv, osl_tokens=osl_tokens)
    seen = contexts(asked, 400_000, lognormal)
    assert float(asked.mean_context) == pytest.approx(seen.mean(), rel=0.01)
    deviation = float(asked.context_cv2) ** 0.5
    assert deviation == pytest.approx(seen.std() / seen.mean(), rel=0.07)


@pytest.mark.parametrize(("isl_cv", "osl_cv"), [(0.8, 0.8), (0.9, 0.5), (0.3, 0.8)])
def test_deviation_of_lognormal_lengths(isl_cv: float, osl_cv: float) -> None:
    asked = traffic(isl_cv=isl_cv, osl_cv=osl_cv)
    seen = contexts(asked, 400_000, lognormal)
    deviation = float(asked.context_cv2) ** 0.5
    assert deviation == pytest.approx(seen.std() / seen.mean(), rel=0.1)


def pool(dp: float, pp: float = 1.0) -> Any:
    return SimpleNamespace(dp=dp, pp=pp, draft_tokens=2.0)


def context(batch: Any, asked: Traffic, dp: float, pp: float = 1.0) -> Floats:
    return np.asarray(decode_load(batch, asked, pool(dp, pp)).context)


BATCHES = np.geomspace(1e-3, 1e6, 40)
MIXED = traffic(isl_cv=0.7, osl_cv=1.0)


def test_one_rank_has_the_mean_context() -> None:
    np.testing.assert_allclose(context(BATCHES, MIXED, 1.0), float(MIXED.mean_context), rtol=1e-12)


def test_requests_that_are_alike_leave_ranks_even() -> None:
    """Long prompts of one length: what is said so far hardly counts."""
    alike = traffic(isl_tokens=1e5, osl_tokens=2.0)
    np.testing.assert_allclose(context(BATCHES, alike, 8.0), float(alike.mean_context), rtol=1e-3)


def test_ranks_even_out_as_the_batch_grows() -> None:
    mean = float(MIXED.mean_context)
    for dp in (2.0, 8.0, 64.0):
        found = context(BATCHES, MIXED, dp)
        assert np.all(np.diff(found) <= 0.0)
        one_each = dp >= BATCHES  # none has less than one
        np.testing.assert_allclose(found[one_each], found[0], rtol=1e-12)
        assert np.all(np.diff(found[~one_each]) < 0.0)
        assert found[-1] == pytest.approx(mean, rel=0.02)
    # An excess of 1/sqrt(n), and larger the more ranks there are.
    few, many = (float(context(b, MIXED, 8.0)) - mean for b in (64.0, 6400.0))
    assert few / many == pytest.approx(10.0)
    assert np.all(np.diff([float(context(512.0, MIXED, dp)) for dp in (1.0, 2.0, 4.0, 16.0)]) > 0.0)


def test_stages_work_on_batches_of_their_own() -> None:
    split, whole = (decode_load(b, MIXED, pool(4.0, pp)) for b, pp in ((512.0, 4.0), (128.0, 1.0)))
    assert float(split.requests) == float(whole.requests) == 128.0
    assert float(split.rows_per_request) == 3.0
    assert float(split.context) == pytest.approx(float(whole.context), rel=1e-12)


@pytest.mark.parametrize("dp", [2, 8, 32])
@pytest.mark.parametrize(("n", "within"), [(4, 0.07), (16, 0.025), (64, 0.01)])
@pytest.mark.parametrize("cvs", [(0.0, 0.0), (0.7, 1.0)])
def test_the_fullest_rank_is_as_full_as_a_drawn_one(
    dp: int, n: int, within: float, cvs: tuple[float, float]
) -> None:
    asked = traffic(isl_cv=cvs[0], osl_cv=cvs[1])
    ranks = contexts(asked, (400_000 // (dp * n), dp, n)).sum(axis=2)
    seen = ranks.max(axis=1).mean() / ranks.mean()
    found = float(context(float(n * dp), asked, float(dp))) / float(asked.mean_context)
    assert found == pytest.approx(seen, rel=within)

"""Drafting: tokens gained, what drafting and verifying cost, and never for nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.cost.memory import request_caches, weight_bytes
from dse.cost.step import StepCost, step
from dse.cost.types import DecodeLoad, Model, Pool, PrefillLoad
from dse.serving.speculative import accepted_length
from tests.support import SOME, Case, case, interpreted, replace

LENGTHS = np.asarray([0.0, 1.0, 2.0, 3.0, 5.0])


@cache
def deepseek() -> Case:
    return case("mla", with_draft=True, dp=4, ep=32)


@cache
def _compiled() -> Any:
    def both(model: Model, pool: Pool, load: Any, prompt: Any) -> tuple[StepCost, StepCost]:
        at = deepseek().system
        with_prompt = step(model, pool, at.sink, at.sink_engine, prefill=prompt, decode=load)
        alone = step(model, pool, at.sink, at.sink_engine, decode=load)
        return with_prompt, alone

    return interpreted(both)


def costs(model: Model, draft_tokens: Any, batch: Any) -> tuple[StepCost, StepCost]:
    """(a step with a chunk of 2048 rows behind 1000, one without), at a context of 4096."""
    pool = replace(deepseek().design.decode, draft_tokens=draft_tokens)
    load = DecodeLoad(requests=batch, rows_per_request=1.0 + draft_tokens, context=4096.0)
    prompt = PrefillLoad(rows=8192.0, rows_per_prompt=2048.0, start=1000.0, end=3048.0)
    found: tuple[StepCost, StepCost] = _compiled()(model, pool, load, prompt)
    return found


@given(m=st.integers(0, 20), a=st.floats(0.0, 1.0))
@SOME
def test_accepted_tokens_are_a_geometric_sum(m: int, a: float) -> None:
    assert float(accepted_length(float(m), a)) == pytest.approx(
        sum(a**i for i in range(m + 1)), rel=1e-4
    )


def test_without_acceptance_a_step_yields_one_token_and_drafting_never_helps() -> None:
    np.testing.assert_allclose(accepted_length(LENGTHS, 0.0), 1.0, rtol=1e-9)
    model = deepseek().system.model
    for batch in (1.0, 64.0, 1024.0):
        seconds = np.asarray([costs(model, m, batch)[1].total_s for m in LENGTHS])
        assert np.all(np.diff(seconds) > 0.0)
        speed = np.asarray(accepted_length(LENGTHS, 0.0)) / seconds
        assert np.all(speed <= speed[0])


def test_no_draft_tokens_are_no_draft_layers() -> None:
    at = deepseek()
    without = replace(at.system.model, draft=None)
    for drafted, plain in zip(
        costs(at.system.model, 0.0, 64.0), costs(without, 0.0, 64.0), strict=True
    ):
        for one, other in zip(jax.tree.leaves(drafted), jax.tree.leaves(plain), strict=True):
            assert float(one) == pytest.approx(float(other), rel=1e-12)
    pool = replace(at.design.decode, draft_tokens=0.0)
    for count in (request_caches, weight_bytes):
        more = (at.system.sink_engine,) if count is weight_bytes else (4096.0,)
        counted = interpreted(count)
        found, expected = counted(at.system.model, pool, *more), counted(without, pool, *more)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_drafting_costs_time_work_memory_and_room() -> None:
    at = deepseek()
    model = at.system.model
    (mixed, alone), (more_mixed, more) = (costs(model, m, 64.0) for m in (1.0, 3.0))
    assert float(more.terms.draft) == pytest.approx(3.0 * float(alone.terms.draft), rel=1e-9)
    assert float(more.flops) > float(alone.flops) > 0.0
    assert float(more.bytes) > float(alone.bytes)
    # the one module of the model keeps a cache of the prompt: one pass, however many drafts
    prompt = float(mixed.terms.draft) - float(alone.terms.draft)
    again = float(more_mixed.terms.draft) - float(more.terms.draft)
    assert prompt > 0.0
    assert again == pytest.approx(prompt, rel=1e-9)
    pool = at.design.decode
    none, some = (replace(pool, draft_tokens=m) for m in (0.0, 1.0))
    row = 576 * 2 if float(pool.formats.kv_row_bytes[0]) == 1152 else 576
    slopes = [float(request_caches(model, p, 4096.0)[0]) for p in (none, some)]
    assert slopes[1] - slopes[0] == pytest.approx(row)
    engine = at.system.sink_engine
    assert float(weight_bytes(model, some, engine)) > float(weight_bytes(model, none, engine))


def test_prompts_pass_the_draft_layers_of_a_pool_that_only_prefills() -> None:
    at = deepseek()
    prompt = PrefillLoad(rows=8192.0, rows_per_prompt=2048.0, start=0.0, end=2048.0)
    system = at.system
    pools = [replace(at.design.decode, draft_tokens=m) for m in (0.0, 1.0, 3.0)]

    def of_prompt(pool: Pool) -> StepCost:
        return step(system.model, pool, system.sink, system.sink_engine, prefill=prompt)

    prefilled = interpreted(of_prompt)
    found = [prefilled(pool) for pool in pools]
    draft = [float(one.terms.draft) for one in found]
    assert draft[0] == 0.0
    # one module: it passes once, however many tokens are drafted later
    assert draft[2] == pytest.approx(draft[1])
    # one layer of 61, its head and its projection
    assert 0.005 < draft[1] / float(found[0].total_s) < 0.1


def test_gain_rises_with_acceptance() -> None:
    rates = np.linspace(0.0, 0.99, 34)
    length = interpreted(accepted_length)
    for m in LENGTHS[1:]:
        assert np.all(np.diff(length(m, rates)) > 0.0)
    assert np.all(np.diff(length(LENGTHS, 0.7)) > 0.0)

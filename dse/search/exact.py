"""Pricing chosen designs in float64 with every detail, without compiling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.cost.law import Kernel
from dse.cost.step import StepCost, step_kernels
from dse.lower.study import Problem
from dse.search import interpret
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.evaluate import effective, evaluate, step_costs
from dse.serving.promises import is_percentile, percentiles
from dse.serving.reasons import Reason
from dse.serving.types import Deployment, Outcome, System
from dse.space.designs import digit_arrays, gathered
from dse.struct import replace

REFINEMENTS = 6
# Of a search: dense models need fewer, their steps are nearly affine in the batch.
DENSE_REFINEMENTS = 2
EXPERT_REFINEMENTS = 3
# Blocks have a power of two of designs, so that few shapes are ever traced.
_LARGEST_BLOCK = 4096
_SMALLEST_BLOCK = 8

_traced: dict[Any, Any] = {}


class Priced(NamedTuple):
    """Designs with all that is known of them; every leaf is a numpy array [..., n]."""

    outcome: Outcome
    prompt: StepCost  # one chunk of a prompt alone
    decode: StepCost  # a decode step at the operating batch
    prompt_kernels: list[Kernel]
    decode_kernels: list[Kernel]
    n_chunks: Any  # chunk steps of a prompt

    def row(self, i: int) -> Priced:
        """One of the designs, each leaf a Python number."""
        picked: Priced = jax.tree.map(lambda leaf: _plain(leaf[..., i]), self)
        return picked

    def rows(self, where: Sequence[int]) -> Priced:
        """Some of the designs, in this order."""
        index = np.asarray(where, dtype=np.int64)
        picked: Priced = jax.tree.map(lambda leaf: leaf[..., index], self)
        return picked


def _plain(picked: Any) -> Any:
    return picked.item() if np.ndim(picked) == 0 else picked


def with_percentiles(priced: Priced) -> Priced:
    """The same designs with the percentiles of every latency among their metrics."""
    tails = priced.outcome.point.tails
    program, structure = interpret.trace(percentiles, tails)
    found = jax.tree.unflatten(structure, interpret.run(program, tails))
    metrics = {**priced.outcome.metrics, **found}
    return priced._replace(outcome=replace(priced.outcome, metrics=metrics))


def _price(system: System, design: Deployment) -> Priced:
    system = effective(system, design)
    outcome = evaluate(system, design, REFINEMENTS)
    prompt, decode = step_costs(system, design, outcome.point)
    batch = outcome.point.resident_requests / design.decode.replicas
    traffic = system.traffic
    return Priced(
        outcome=outcome,
        prompt=prompt,
        decode=decode,
        prompt_kernels=step_kernels(
            system.model,
            design.prefill,
            system.source,
            system.source_engine,
            prefill=chunk_load(traffic, design.prefill),
        ),
        decode_kernels=step_kernels(
            system.model,
            design.decode,
            system.sink,
            system.sink_engine,
            decode=decode_load(batch, traffic, design.decode),
        ),
        n_chunks=chunks(traffic, design.prefill),
    )


def price(system: System, design: Deployment) -> Priced:
    """Float64 figures of the designs of a deployment whose leaves are numpy arrays [n]."""
    found: Priced = _interpreted(_price, (), system, design)
    return found


class Scored(NamedTuple):
    """What a search compares of designs: numpy arrays [n]."""

    score: Any  # the goal's metric with its sign; -inf where a limit is broken
    speed: Any  # output tokens/s of a user
    rate: Any  # output tokens/s of an accelerator
    reason: Any
    miss: Any


def score_designs(problem: Problem, indices: Sequence[int]) -> Scored:
    """Designs of a grid in float64, to a search's precision and without details."""
    metric, sign = problem.goal.metric, problem.goal.sign
    parts = []
    for block in _blocks(list(indices)):
        design = gathered(problem.tables, digit_arrays(problem.grid, block))
        outcome = _interpreted(_SCORING[is_percentile(metric)], (metric,), problem.system, design)
        feasible = np.asarray(outcome.reason) == int(Reason.OK)
        parts.append(outcome._replace(score=np.where(feasible, sign * outcome.score, -np.inf)))
    return Scored(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


def _scored(
    system: System, design: Deployment, metric: str, wanted: tuple[str, ...] = ()
) -> Scored:
    n_refinements = EXPERT_REFINEMENTS if system.model.main.experts else DENSE_REFINEMENTS
    outcome = evaluate(system, design, n_refinements, wanted)
    metrics = outcome.metrics
    return Scored(
        score=metrics[metric],
        speed=metrics["output_tokens_per_s_per_user"],
        rate=metrics["output_tokens_per_s_per_accelerator"],
        reason=outcome.reason,
        miss=outcome.miss,
    )


def _scored_percentile(system: System, design: Deployment, metric: str) -> Scored:
    return _scored(system, design, metric, (metric,))


_SCORING = {False: _scored, True: _scored_percentile}


def _interpreted(
    function: Callable[..., Any], names: tuple[str, ...], system: System, design: Deployment
) -> Any:
    """A function of a system, designs [n] and names, run by numpy; its leaves are [..., n]."""
    n = max(np.size(leaf) for leaf in jax.tree.leaves(design))
    size = max(_SMALLEST_BLOCK, 1 << (n - 1).bit_length())
    padded = jax.tree.map(lambda leaf: _padded(leaf, size), design)
    narrow = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), system)
    shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves((narrow, padded)))
    key = (function, names, jax.tree.structure((narrow, padded)), shapes)
    if key not in _traced:
        _traced[key] = interpret.trace(lambda s, d: function(s, d, *names), narrow, padded)
    jaxpr, structure = _traced[key]
    found = jax.tree.unflatten(structure, interpret.run(jaxpr, narrow, padded))
    return jax.tree.map(lambda leaf: _columns(leaf, size)[..., :n], found)


def _columns(leaf: Any, size: int) -> Any:
    """[..., size]: nodes before designs, each design its own column."""
    return np.broadcast_to(leaf, (*np.shape(leaf)[:-1], size))


def _padded(leaf: Any, size: int) -> Any:
    values = np.atleast_1d(np.asarray(leaf, dtype=np.float64))
    return np.concatenate([values, np.repeat(values[-1:], size - len(values))])


def price_designs(problem: Problem, indices: Sequence[int]) -> Priced:
    """Float64 figures of designs of a grid by their indices."""
    blocks = [
        price(problem.system, gathered(problem.tables, digit_arrays(problem.grid, block)))
        for block in _blocks(list(indices))
    ]
    if len(blocks) == 1:
        return blocks[0]
    joined: Priced = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *blocks)
    return joined


def _blocks(indices: list[int]) -> list[list[int]]:
    return [indices[i : i + _LARGEST_BLOCK] for i in range(0, len(indices), _LARGEST_BLOCK)]

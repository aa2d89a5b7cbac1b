"""Pricing chosen designs in float64 with every detail, without compiling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.cost.law import Kernel
from dse.cost.step import StepCost, step_kernels
from dse.lower.study import Problem
from dse.search.programs import run_on_designs
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.evaluate import effective, evaluate, step_costs
from dse.serving.promises import percentiles
from dse.serving.reasons import Reason
from dse.serving.types import Deployment, Outcome, System
from dse.space.designs import digit_arrays, gathered
from dse.spec.metrics import SPEED, THROUGHPUT
from dse.struct import Scalar, replace

REFINEMENTS = 6
# Of a search, which then finds rates within 0.5 %. Dense models need fewer, their steps are nearly
# affine in the batch; one less would be off by 6 % where a promise on a p99 binds.
DENSE_REFINEMENTS = 3
EXPERT_REFINEMENTS = 4
_LARGEST_BLOCK = 4096


def refinements(system: System) -> int:
    """How often a search refines an operating point."""
    return EXPERT_REFINEMENTS if system.model.main.experts else DENSE_REFINEMENTS


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


def _price(system: System, design: Deployment, n_refinements: Scalar) -> Priced:
    system = effective(system, design)
    outcome = evaluate(system, design, n_refinements)
    metrics = {**outcome.metrics, **percentiles(outcome.point.tails)}
    outcome = replace(outcome, metrics=metrics)
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
    found: Priced = run_on_designs(_price, system, design, REFINEMENTS)
    return found


class Scored(NamedTuple):
    """What a search compares of designs: numpy arrays [n]."""

    score: Any  # the goal's metric with its sign; -inf where a limit is broken
    speed: Any  # output tokens/s of a user
    rate: Any  # output tokens/s of an accelerator
    reason: Any
    miss: Any


def score_designs(
    problem: Problem, indices: Sequence[int], n_refinements: int | None = None
) -> Scored:
    """Designs of a grid in float64 without details, to a search's precision unless told."""
    sign = problem.goal.sign
    parts = []
    for block in _blocks(list(indices)):
        found = _scored(problem, block, n_refinements)
        feasible = np.asarray(found.reason) == int(Reason.OK)
        parts.append(found._replace(score=np.where(feasible, sign * found.score, -np.inf)))
    return Scored(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


def _scored(problem: Problem, indices: list[int], n_refinements: int | None) -> Scored:
    system, metric = problem.system, problem.goal.metric
    design = gathered(problem.tables, digit_arrays(problem.grid, indices))
    n_refinements = n_refinements or refinements(system)
    # The program that prices with all details, run for these figures alone: traced once for both.
    found: Scored = run_on_designs(
        _price, system, design, n_refinements, part=partial(_compared, metric)
    )
    return found


def _compared(metric: str, priced: Priced) -> Scored:
    outcome = priced.outcome
    return Scored(
        score=outcome.metrics[metric],
        speed=outcome.metrics[SPEED],
        rate=outcome.metrics[THROUGHPUT],
        reason=outcome.reason,
        miss=outcome.miss,
    )


def rates(problem: Problem, indices: Sequence[int]) -> Any:
    """Requests/s [n] of designs of a grid, to a search's precision."""
    design = gathered(problem.tables, digit_arrays(problem.grid, list(indices)))
    n_refinements = refinements(problem.system)

    def rate(priced: Priced) -> Any:
        return priced.outcome.point.requests_per_s

    return run_on_designs(_price, problem.system, design, n_refinements, part=rate)


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

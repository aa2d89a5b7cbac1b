"""A workload's lengths and arrivals as the arrays that serving takes."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.serving.types import CLOSED, FULL, Spread, Traffic
from dse.spec.workload import Workload
from dse.workload import LengthTable, dispersion, length_table, nodes, work_dispersion

Floats = NDArray[np.float64]

# Nodes of prompt and output lengths: errors of percentiles stay below those of the formulas.
_N_PROMPTS: Final = 14
_N_OUTPUTS: Final = 12
# A share of the longest node: the uppermost length at which a prompt is priced.
_UPPER_POINT: Final = 0.6
_LOWER_POINT: Final = 0.3


def lower_traffic(workload: Workload, kind: str, load: float) -> Traffic:
    """The requests of a workload under a load (`dse.serving.types` for its kinds)."""
    table = length_table(workload)
    isl, osl = float(table.weight @ table.isl), float(table.weight @ table.osl)
    return Traffic(
        isl_tokens=float(workload.isl.mean),
        isl_cv=_variation(table.isl, table.weight),
        osl_tokens=float(workload.osl.mean),
        osl_cv=_variation(table.osl, table.weight),
        prefix_hit_frac=float(workload.prefix_hit_frac),
        load=load,
        spread=spread_of(table, isl, osl, kind),
        dispersion=_dispersion(workload, table),
        load_kind=kind,
    )


def constant_traffic(
    *, isl: Any, osl: Any, kind: str, load: Any, isl_cv: Any = 0.0, osl_cv: Any = 0.0
) -> Traffic:
    """Requests that are all alike but for the given coefficients of variation, Poisson arrivals."""
    ones = np.ones(1)
    one_point = kind in (CLOSED, FULL)
    return Traffic(
        isl_tokens=isl,
        isl_cv=isl_cv,
        osl_tokens=osl,
        osl_cv=osl_cv,
        prefix_hit_frac=0.0,
        load=load,
        spread=Spread(ones, ones, ones if one_point else np.array([0.5, 1.0]), ones, ones),
        load_kind=kind,
    )


def spread_of(table: LengthTable, isl: float, osl: float, kind: str) -> Spread:
    """Nodes relative to the means, and how two requests overlap."""
    prompts, prompt_weights = _nodes(table.isl, table.weight, _N_PROMPTS)
    outputs, output_weights = _nodes(table.osl, table.weight, _N_OUTPUTS)
    return Spread(
        prompt_factors=prompts / isl,
        prompt_weights=prompt_weights,
        prompt_points=_points(prompts / isl, kind),
        output_factors=outputs / osl,
        output_weights=output_weights,
        joint_frac=float(table.weight @ (table.isl * table.osl)) / (isl * osl),
        output_overlap_frac=_overlap(outputs, output_weights),
        prompt_overlap_frac=_overlap(prompts, prompt_weights),
        prompt_within=_within(table.isl, table.weight, prompt_weights) / isl,
    )


def _nodes(values: Floats, weights: Floats, n: int) -> tuple[Floats, Floats]:
    """As many nodes as the lengths have values, up to n: a fixed length is one node."""
    return nodes(values, weights, min(n, len(np.unique(values))))


def _within(values: Floats, weights: Floats, strata: Floats) -> Floats:
    """[J] standard deviation of the values in each stratum of probability."""
    if len(strata) <= 1:
        return np.zeros(len(strata))
    order = np.argsort(values)
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    edges = np.concatenate([[0.0], np.cumsum(strata)])

    def means(of: Floats) -> Floats:
        integral = np.concatenate([[0.0], np.cumsum(of * weights[order])])
        below = np.interp(edges, total / total[-1], integral)
        return np.asarray(np.diff(below) / np.maximum(strata, 1e-12))

    sorted_values = values[order]
    spread = means(sorted_values**2) - means(sorted_values) ** 2
    return np.asarray(np.sqrt(np.maximum(spread, 0.0)))


def _points(factors: Floats, kind: str) -> Floats:
    """Relative lengths at which a prompt is priced: one where all are alike and nothing is shared.

    An open load prices two even then, because prompts of one step share its fixed part.
    """
    if len(factors) == 1:
        return np.ones(1) if kind in (CLOSED, FULL) else np.array([0.5, 1.0])
    upper = max(_UPPER_POINT * float(factors[-1]), 1.5)
    return np.array([_LOWER_POINT, 1.0, upper])


def _variation(values: Floats, weights: Floats) -> float:
    mean = float(weights @ values)
    return math.sqrt(max(float(weights @ (values - mean) ** 2), 0.0)) / mean


def _overlap(values: Floats, weights: Floats) -> float:
    """E[min(x, x')] / E[x] of two independent draws."""
    smaller: Floats = np.minimum(values[:, None], values[None, :])
    return float(weights @ smaller @ weights / (weights @ values))


def _dispersion(workload: Workload, table: LengthTable) -> Floats | None:
    """Index of dispersion of the arrivals; of their tokens where a trace tells it; None: Poisson.

    Tokens that come together are worse than requests that do: with I_w of tokens, normalized by N
    E[S^2], the index that gives the same variance of work is 1 + (I_w - 1) E[S^2]/E[S]^2.
    """
    _, index = dispersion(workload)
    tokens = work_dispersion(workload)
    if tokens is None:
        return None if bool(np.all(index == 1.0)) else index
    mean = float(table.weight @ table.isl)
    ratio = float(table.weight @ table.isl**2) / (mean * mean)
    worse: Floats = np.maximum(index, 1.0 + (tokens - 1.0) * ratio)
    return worse

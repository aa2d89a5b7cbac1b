"""Whether predictions choose as measurements do: order within a workload, and the best of a row.

A workload is a model, a target, an engine, a mode and lengths; its rows are deployments and loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dse.calibrate.errors import summary
from dse.calibrate.predict import Prediction

LEAST_ROWS: Final = 4  # of a workload, to speak of an order


@dataclass(frozen=True)
class Ranking:
    """What `ranking` finds; shares are of 1."""

    n_workloads: int
    spearman: float  # mean over workloads of output tokens/s per accelerator, predicted, measured
    n_choices: int
    regret: float  # mean of what the chosen row yields less than the best that keeps the limit
    violations: float  # share of choices that break the limit


def ranking(predictions: Sequence[Prediction], tpot_limit_s: float = 0.025) -> Ranking:
    """Order and choices over the rows that are predicted and measured.

    In each workload the row with the most predicted tokens/s per accelerator among those predicted
    to keep the limit is chosen; where measurements have none that keeps it nothing could be chosen
    and it does not count. A choice that breaks the limit is a violation and has no regret.
    """
    orders, regrets, broken = [], [], 0
    for rows in _workloads(predictions):
        yields = np.array([_yield(one) for one in rows])
        measured = np.array([one.row.output_tokens_per_s_per_accelerator for one in rows], float)
        if len(rows) >= LEAST_ROWS:
            orders.append(summary(yields.tolist(), measured.tolist())["spearman"])
        fast = np.array([(one.tpot_mean_s or np.inf) <= tpot_limit_s for one in rows])
        keeps = np.array([(one.row.tpot_mean_s or np.inf) <= tpot_limit_s for one in rows])
        if not fast.any() or not keeps.any():
            continue
        chosen = int(np.argmax(np.where(fast, yields, -np.inf)))
        if keeps[chosen]:
            regrets.append(1.0 - measured[chosen] / measured[keeps].max())
        else:
            broken += 1
    choices = len(regrets) + broken
    return Ranking(
        n_workloads=len(orders),
        spearman=float(np.mean(orders)) if orders else float("nan"),
        n_choices=choices,
        regret=float(np.mean(regrets)) if regrets else float("nan"),
        violations=broken / choices if choices else float("nan"),
    )


def _yield(one: Prediction) -> float:
    return one.output_tokens_per_s_per_accelerator or 0.0


def _workloads(predictions: Sequence[Prediction]) -> list[list[Prediction]]:
    groups: dict[tuple[object, ...], list[Prediction]] = {}
    for one in predictions:
        row = one.row
        if one.refusal or not row.tpot_mean_s or not row.output_tokens_per_s_per_accelerator:
            continue
        key = (row.model, row.hardware, row.engine.partition("@")[0], row.mode)
        groups.setdefault((*key, row.isl_tokens, row.osl_tokens), []).append(one)
    return [rows for rows in groups.values() if len(rows) > 1]

"""Errors of predictions against measurements, as `dse validate` reports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dse.calibrate.predict import Prediction

Pairs = tuple[list[float], list[float]]
_QUANTITIES: dict[
    str, tuple[Callable[[Prediction], float | None], Callable[[Prediction], float | None]]
]
_QUANTITIES = {
    "tpot": (lambda p: p.tpot_mean_s, lambda p: p.row.tpot_mean_s),
    "ttft": (lambda p: p.ttft_mean_s, lambda p: p.row.ttft_mean_s),
    "output_tokens_per_s": (
        lambda p: p.output_tokens_per_s_per_accelerator,
        lambda p: p.row.output_tokens_per_s_per_accelerator,
    ),
}


def summary(predicted: Sequence[float], measured: Sequence[float]) -> dict[str, float]:
    """Mean, median, p90 of |predicted/measured - 1| and bias in percent; Spearman's correlation."""
    p, m = np.asarray(predicted), np.asarray(measured)
    relative = p / m - 1.0
    absolute = np.abs(relative)
    ranked = [np.argsort(np.argsort(values)).astype(float) for values in (p, m)]
    spread = float(np.std(ranked[0]) * np.std(ranked[1]))
    rank = float(np.mean((ranked[0] - ranked[0].mean()) * (ranked[1] - ranked[1].mean())))
    return {
        "n": len(p),
        "mape_percent": round(100.0 * float(np.mean(absolute)), 3),
        "median_ape_percent": round(100.0 * float(np.median(absolute)), 3),
        "p90_ape_percent": round(100.0 * float(np.quantile(absolute, 0.9)), 3),
        "bias_percent": round(100.0 * float(np.mean(relative)), 3),
        "spearman": round(rank / spread, 4) if spread > 0 else 1.0,
    }


def compared(predictions: Sequence[Prediction], name: str) -> list[tuple[str, float, float]]:
    """(engine, predicted, measured) of a quantity, for the rows that have both."""
    of, against = _QUANTITIES[name]
    found = [(p.row.engine, of(p), against(p)) for p in predictions if not p.refusal]
    return [(engine, a, b) for engine, a, b in found if a is not None and b is not None]


def errors(predictions: Sequence[Prediction]) -> dict[str, dict[str, float]]:
    """Errors by quantity over the rows that are predicted and measured."""
    out = {}
    for name in _QUANTITIES:
        known = compared(predictions, name)
        if known:
            out[name] = summary([a for _, a, _ in known], [b for _, _, b in known])
    return out


def errors_by(
    predictions: Sequence[Prediction], key: Callable[[Prediction], str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Errors of each group of rows, by the group's name."""
    groups: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault(key(prediction), []).append(prediction)
    return {name: errors(members) for name, members in sorted(groups.items())}

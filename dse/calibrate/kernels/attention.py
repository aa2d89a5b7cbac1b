"""Softmax attention as the cost model prices it, and where its fits start."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.benchmark import JOINED, cache_of, with_cache
from dse.calibrate.kernels.chip import weight_bytes
from dse.calibrate.kernels.operator import Features, Operator, Parameters, Prior
from dse.calibrate.kernels.points import Points
from dse.cost.law import Rates, decode_attention_time, prefill_attention_time
from dse.cost.laws import AttentionLaw
from dse.struct import Array

_MLA_KEY, _MLA_VALUE, _MLA_LATENT, _MLA_ROPE = 192.0, 128.0, 512.0, 64.0
_ATTENTION: Final = {
    **JOINED,
    "kernel_s": Prior(5e-6, 1.0),
    "compute_frac": Prior(0.5, 1.0, share=True),
    "width_offset": Prior(16.0, 1.0),
    "unit_s": Prior(3e-7, 1.5),
    "ramp_bytes": Prior(1e6, 1.5),
}
_PREFILL_PRIORS: Final = with_cache(
    _ATTENTION,
    wave_overhead=Prior(0.3, 1.5),
    serial_s=Prior(5e-6, 1.0),
    tile_rows=Prior(64.0, 1.0),
    packing_frac=Prior(0.5, 1.5, share=True),
)
_DECODE_PRIORS: Final = with_cache(
    _ATTENTION,
    group_tile=Prior(8.0, 1.0),
    wave_overhead=Prior(1.0, 1.5),
    wave_rows=Prior(4e4, 1.5),
    query_passes=Prior(1.0, 1.5),
    split_s=Prior(3e-6, 1.0),
    split_rows=Prior(300.0, 1.0),
)
_MLA_PREFILL_PRIORS: Final = {  # every head has keys of its own: nothing to pack
    name: prior for name, prior in _PREFILL_PRIORS.items() if name != "packing_frac"
}
# 0 where they are not fitted.
_EXTRA: Final = (
    "wave_overhead",
    "wave_rows",
    "query_passes",
    "split_s",
    "split_rows",
    "serial_s",
    "tile_rows",
    "packing_frac",
)


def attention_law(p: Parameters) -> AttentionLaw:
    """An attention law; without a group tile query heads are not padded."""
    return AttentionLaw(
        kernel_s=p["kernel_s"],
        compute_frac=p["compute_frac"],
        width_offset=p["width_offset"],
        group_tile=p.get("group_tile", 1e-3),
        bandwidth_frac=p["bandwidth_frac"],
        unit_s=p["unit_s"],
        ramp_bytes=p["ramp_bytes"],
        additive_frac=p["additive_frac"],
        **{name: p.get(name, 0.0) for name in _EXTRA},
    )


def _visible(context: NDArray[Any], window: NDArray[Any]) -> NDArray[Any]:
    return np.where(window > 0.0, np.minimum(context, window), context)


def _pairs(rows: NDArray[Any], prefix: NDArray[Any], window: NDArray[Any]) -> NDArray[Any]:
    """sum_{i=1..rows} min(prefix + i, window): causal pairs of one request."""

    def below(end: NDArray[Any]) -> NDArray[Any]:
        inside = np.minimum(end, np.where(window > 0.0, window, np.inf))
        past = np.maximum(end - inside, 0.0) * np.where(window > 0.0, window, 0.0)
        return np.asarray(inside * (inside + 1.0) / 2.0 + past)

    return np.asarray(below(prefix + rows) - below(prefix))


def _prefill_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    width = 2.0 * c["head_dim"]
    row_bytes = width * c["kv_heads"] * weight_bytes(points.dtype)
    cached = _visible(c["prefix"], c["window"])
    pairs = c["batch"] * _pairs(c["rows"], c["prefix"], c["window"])
    moved = c["batch"] * (2.0 * c["rows"] * c["q_heads"] * width + (c["rows"] + cached) * row_bytes)
    return {
        "pairs": pairs,
        "rows": c["batch"] * c["rows"],
        "q_heads": c["q_heads"],
        "width": width,
        "moved": moved,
        "rows_per_prompt": c["rows"],
        "group": c["q_heads"] / c["kv_heads"],
        "depth": _visible(c["prefix"] + c["rows"], c["window"]),
    }


def _mla_prefill_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    width = np.full(len(points), _MLA_KEY + _MLA_VALUE)
    pairs = c["batch"] * _pairs(c["rows"], c["prefix"], np.zeros(len(points)))
    # Keys and values are expanded to every head before the kernel.
    moved = 2.0 * c["batch"] * (2.0 * c["rows"] + c["prefix"]) * c["q_heads"] * width
    return {
        "pairs": pairs,
        "rows": c["batch"] * c["rows"],
        "q_heads": c["q_heads"],
        "width": width,
        "moved": moved,
        "rows_per_prompt": c["rows"],
        "group": np.ones(len(points)),
        "depth": c["prefix"] + c["rows"],
    }


def _prefill_time(p: Parameters, f: Features, rates: Rates) -> Array:
    return prefill_attention_time(
        f["pairs"],
        f["rows"],
        f["q_heads"],
        f["width"],
        f["moved"],
        rates,
        attention_law(p),
        rows_per_prompt=f["rows_per_prompt"],
        group=f["group"],
        depth=f["depth"],
        warm=cache_of(p),
    ).time_s


def _decode_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    width = 2.0 * c["head_dim"]
    pairs = c["batch"] * _visible(c["context"], c["window"])
    row_bytes = width * c["kv_heads"] * weight_bytes(points.dtype)
    return {
        "pairs": pairs,
        "sequences": c["batch"],
        "kv_heads": c["kv_heads"],
        "group": c["q_heads"] / c["kv_heads"],
        "width": width,
        "cached": pairs * row_bytes,
        "queries": 2.0 * c["batch"] * c["q_heads"] * width,
    }


def _mla_decode_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    n = len(points)
    row, width = _MLA_LATENT + _MLA_ROPE, 2.0 * _MLA_LATENT + _MLA_ROPE
    pairs = c["batch"] * c["context"]
    return {
        "pairs": pairs,
        "sequences": c["batch"],
        "kv_heads": np.ones(n),
        "group": c["q_heads"],
        "width": np.full(n, width),
        "cached": pairs * row * weight_bytes(points.dtype),
        "queries": 2.0 * c["batch"] * c["q_heads"] * width,
    }


def _decode_time(p: Parameters, f: Features, rates: Rates) -> Array:
    return decode_attention_time(
        f["pairs"],
        f["sequences"],
        f["kv_heads"],
        f["group"],
        f["width"],
        f["cached"],
        f["queries"],
        rates,
        attention_law(p),
        warm=cache_of(p),
    ).time_s


ATTENTION: Final = {
    "gqa_prefill": Operator(_PREFILL_PRIORS, _prefill_features, _prefill_time),
    "gqa_decode": Operator(_DECODE_PRIORS, _decode_features, _decode_time),
    "mla_prefill": Operator(_MLA_PREFILL_PRIORS, _mla_prefill_features, _prefill_time),
    "mla_decode": Operator(_DECODE_PRIORS, _mla_decode_features, _decode_time),
}

"""Each operator as the cost model prices it: what the law needs of a row, and where a fit starts.

Times come from `dse.cost.law`, the same functions that price deployments. Beside the law's own
parameters a fit has those of the benchmark alone (`BENCHMARK_ONLY`): how much of the operands it
finds in the cache, and a floor that its host sets. Deployments never use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.chip import activation_bytes, quantizes, weight_bytes
from dse.calibrate.kernels.collectives import COLLECTIVES
from dse.calibrate.kernels.expert_rows import expert_rows
from dse.calibrate.kernels.operator import Features, Operator, Parameters, Prior
from dse.calibrate.kernels.points import Points
from dse.cost.law import (
    Expert,
    Rates,
    cold_share,
    decode_attention_time,
    expert_bytes,
    grouped_time,
    handed_bytes,
    prefill_attention_time,
    product_time,
    quantize_time,
    stream_time,
)
from dse.cost.laws import AttentionLaw, CacheLaw, GroupedLaw, ProductLaw, StreamLaw
from dse.cost.routing import padded_count
from dse.smooth import power_sum
from dse.struct import Array

BENCHMARK_ONLY: Final = ("cache_bytes", "cache_gain", "cache_power", "floor_s")
# Sharpness of the join with the host's floor: the longer of the two, but for a few percent.
_FLOOR_POWER: Final = 6
_ELEMENTWISE_FRAC: Final = 0.75  # the prior of every engine
_MLA_KEY, _MLA_VALUE, _MLA_LATENT, _MLA_ROPE = 192.0, 128.0, 512.0, 64.0


_CACHE: Final = {
    "cache_bytes": Prior(11e6, 1.0),
    "cache_gain": Prior(2.4, 1.0),
    "cache_power": Prior(2.2, 0.7),
}
_JOINED: Final = {
    "kernel_s": Prior(2e-6, 1.0),
    "bandwidth_frac": Prior(0.85, 1.0, share=True),
    "additive_frac": Prior(0.2, 1.5, share=True),
}
_PRODUCT: Final = {
    **_JOINED,
    "compute_frac": Prior(0.8, 1.0, share=True),
    "tile_rows": Prior(53.0, 0.7),
    "tile_columns": Prior(62.0, 0.7),
    "depth_half": Prior(123.0, 1.0),
    "serial_s": Prior(3.2e-6, 1.0),
    "serial_power": Prior(0.34, 0.7),
    "wave_overhead": Prior(0.05, 1.5),
    "unit_s": Prior(1e-7, 1.5),
    "quantize_passes": Prior(2.5, 0.7),
}
_ATTENTION_EXTRA: Final = (
    "wave_overhead",
    "wave_rows",
    "split_s",
    "split_rows",
    "serial_s",
    "tile_rows",
    "packing_frac",
)
_ATTENTION: Final = {
    **_JOINED,
    "kernel_s": Prior(5e-6, 1.0),
    "compute_frac": Prior(0.5, 1.0, share=True),
    "width_offset": Prior(16.0, 1.0),
    "unit_s": Prior(3e-7, 1.5),
    "ramp_bytes": Prior(1e6, 1.5),
}


def cache_of(p: Parameters) -> CacheLaw:
    """The benchmark's cache."""
    return CacheLaw(cache_bytes=p["cache_bytes"], gain=p["cache_gain"], power=p["cache_power"])


def product_law(p: Parameters) -> ProductLaw:
    """A product law; what is not fitted is 0."""
    return ProductLaw(
        kernel_s=p["kernel_s"],
        compute_frac=p["compute_frac"],
        tile_rows=p["tile_rows"],
        tile_columns=p["tile_columns"],
        depth_half=p["depth_half"],
        serial_s=p["serial_s"],
        serial_power=p["serial_power"],
        wave_overhead=p["wave_overhead"],
        unit_s=p["unit_s"],
        bandwidth_frac=p["bandwidth_frac"],
        ramp_bytes=p.get("ramp_bytes", 0.0),
        additive_frac=p["additive_frac"],
        quantize_passes=p.get("quantize_passes", 0.0),
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
        **{name: p.get(name, 0.0) for name in _ATTENTION_EXTRA},
    )


def stream_law(p: Parameters) -> StreamLaw:
    """A stream law."""
    return StreamLaw(
        kernel_s=p["kernel_s"],
        compute_frac=p["compute_frac"],
        bandwidth_frac=p["bandwidth_frac"],
        ramp_bytes=p["ramp_bytes"],
        additive_frac=p["additive_frac"],
    )


def with_floor(time_s: Array, p: Parameters) -> Array:
    """The longer of the kernel and the host that launches it, where the benchmark has a floor."""
    return power_sum(time_s, p["floor_s"], _FLOOR_POWER) if "floor_s" in p else time_s


def _quantize(elements: Array, p: Parameters, rates: Rates, law: ProductLaw) -> Array:
    if "quantize_passes" not in p:
        return jnp.zeros(())
    plain = StreamLaw(
        kernel_s=0.0,
        compute_frac=1.0,
        bandwidth_frac=_ELEMENTWISE_FRAC,
        ramp_bytes=0.0,
        additive_frac=0.0,
    )
    seconds = quantize_time(elements, rates.bandwidth_bytes_per_s, law, plain)
    return seconds * cold_share(3.0 * elements, cache_of(p))


def _gemm_features(points: Points) -> dict[str, NDArray[Any]]:
    m, n, k = (points.columns[name] for name in ("m", "n", "k"))
    moved = weight_bytes(points.dtype) * k * n
    moved = moved + activation_bytes(points.dtype) * m * k + 2.0 * m * n
    return {"m": m, "n": n, "k": k, "moved": moved}


def _gemm_time(p: Parameters, f: Features, rates: Rates) -> Array:
    law = product_law(p)
    found = product_time(f["m"], f["k"], f["n"], f["moved"], rates, law, warm=cache_of(p))
    return found.time_s + _quantize(f["m"] * f["k"], p, rates, law)


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
        "moved": pairs * row_bytes + 2.0 * c["batch"] * c["q_heads"] * width,
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
        "moved": pairs * row * weight_bytes(points.dtype) + 2.0 * c["batch"] * c["q_heads"] * width,
    }


def _decode_time(p: Parameters, f: Features, rates: Rates) -> Array:
    return decode_attention_time(
        f["pairs"],
        f["sequences"],
        f["kv_heads"],
        f["group"],
        f["width"],
        f["moved"],
        rates,
        attention_law(p),
        warm=cache_of(p),
    ).time_s


def _moe_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    rows = expert_rows(c["tokens"], c["top_k"], c["experts"], c["ep"], c["distribution"])
    n = len(points)
    weight = c["matrices"] * c["hidden"] * c["intermediate"] / c["tp"]
    return {
        **{f"rows_{i}": rows.quantiles[:, i] for i in range(rows.quantiles.shape[1])},
        "active": rows.active,
        "rows": rows.rows,
        "tokens": c["tokens"],
        "picked": c["tokens"] * c["top_k"],
        "slots": c["experts"] / c["ep"],
        "hidden": c["hidden"],
        "width": c["intermediate"] / c["tp"],
        "matrices": c["matrices"],
        "weights": weight * weight_bytes(points.dtype),
        "activation": np.full(n, activation_bytes(points.dtype)),
    }


def _moe_time(p: Parameters, f: Features, rates: Rates) -> Array:
    law = GroupedLaw(
        product=product_law(p),
        handed_passes=p["handed_passes"],
        picked_passes=p["picked_passes"],
        slot_s=p["slot_s"],
    )
    expert = Expert(f["hidden"], f["width"], f["matrices"], f["weights"], f["activation"])
    groups = [name for name in f if name.startswith("rows_")]
    counts = [padded_count(f[name], p["tile_rows"]) for name in groups]
    padded_rows = f["active"] * sum(counts[1:], counts[0]) / len(groups)
    moved = expert_bytes(f["rows"], f["active"], expert)
    moved = moved + handed_bytes(f["tokens"], f["picked"], expert, law)
    found = grouped_time(padded_rows, moved, f["slots"], expert, rates, law, warm=cache_of(p))
    return found.time_s + _quantize(f["rows"] * (f["hidden"] + f["width"]), p, rates, law.product)


def _recurrent_features(points: Points) -> dict[str, NDArray[Any]]:
    c = points.columns
    state = c["v_heads"] * c["k_dim"] * c["v_dim"]
    rows = c.get("rows", np.ones(len(points)))
    per_row = 2.0 * (2.0 * c["k_heads"] * c["k_dim"] + 2.0 * c["v_heads"] * c["v_dim"])
    if "rows" in c:
        chunk = np.minimum(rows, 64.0)
        flops = rows * c["v_heads"] * (2.0 * chunk * (c["k_dim"] + c["v_dim"]))
        flops = flops + rows * 4.0 * state
        moved = rows * per_row + 8.0 * state
    else:
        flops, moved = 6.0 * state, per_row + 8.0 * state
    return {
        "flops": c["batch"] * flops,
        "moved": c["batch"] * moved,
        "chunks": rows / 64.0,
    }


def _recurrent_time(p: Parameters, f: Features, rates: Rates) -> Array:
    found = stream_time(f["flops"], f["moved"], rates, stream_law(p), warm=cache_of(p)).time_s
    return found


def _plain(priors: Mapping[str, Prior], **more: Prior) -> dict[str, Prior]:
    return {**priors, **more, **_CACHE}


_PREFILL_PRIORS: Final = _plain(
    _ATTENTION,
    wave_overhead=Prior(0.3, 1.5),
    serial_s=Prior(5e-6, 1.0),
    tile_rows=Prior(64.0, 1.0),
    packing_frac=Prior(0.5, 1.5, share=True),
)
_DECODE_PRIORS: Final = _plain(
    _ATTENTION,
    group_tile=Prior(8.0, 1.0),
    wave_overhead=Prior(1.0, 1.5),
    wave_rows=Prior(300.0, 1.5),
    split_s=Prior(3e-6, 1.0),
    split_rows=Prior(300.0, 1.0),
)
_MLA_PREFILL_PRIORS: Final = {  # every head has keys of its own: nothing to pack
    name: prior for name, prior in _PREFILL_PRIORS.items() if name != "packing_frac"
}
_STREAM_PRIORS: Final = _plain(
    {**_JOINED, "compute_frac": Prior(0.2, 1.5, share=True), "ramp_bytes": Prior(1e6, 1.5)}
)

OPERATOR_LAWS: Final[Mapping[str, Operator]] = {
    "gemm": Operator(_plain(_PRODUCT), _gemm_features, _gemm_time, floor=True),
    "gqa_prefill": Operator(_PREFILL_PRIORS, _prefill_features, _prefill_time),
    "gqa_decode": Operator(_DECODE_PRIORS, _decode_features, _decode_time),
    "moe": Operator(
        _plain(
            _PRODUCT,
            handed_passes=Prior(1.0, 1.0),
            picked_passes=Prior(0.3, 1.0),
            slot_s=Prior(1e-8, 1.5),
        ),
        _moe_features,
        _moe_time,
        floor=True,
    ),
    "mla_prefill": Operator(_MLA_PREFILL_PRIORS, _mla_prefill_features, _prefill_time),
    "mla_decode": Operator(_DECODE_PRIORS, _mla_decode_features, _decode_time),
    "gated_delta_net_prefill": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "gated_delta_net_decode": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "kimi_delta_prefill": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    "kimi_delta_decode": Operator(_STREAM_PRIORS, _recurrent_features, _recurrent_time),
    **COLLECTIVES,
}


def priors_of(operator: str, dtype: str, latency_s: NDArray[Any]) -> dict[str, Prior]:
    """Where a fit of these points starts; what the data cannot show is left out.

    A host's floor is tried where the shortest time is too long for a launch of kernels alone.
    """
    law = OPERATOR_LAWS[operator]
    priors = dict(law.priors)
    if "quantize_passes" in priors and not quantizes(dtype):
        del priors["quantize_passes"]
    shortest = float(np.quantile(latency_s, 0.01))
    if law.floor and shortest > _LONGEST_LAUNCH_S:
        priors["floor_s"] = Prior(shortest, 0.5)
    return priors


_LONGEST_LAUNCH_S: Final = 25e-6

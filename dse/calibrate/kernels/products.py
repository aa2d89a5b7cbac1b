"""Dense and grouped products as the cost model prices them, and where their fits start."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.benchmark import JOINED, cache_of, with_cache
from dse.calibrate.kernels.chip import activation_bytes, weight_bytes
from dse.calibrate.kernels.expert_rows import expert_rows
from dse.calibrate.kernels.operator import Features, Operator, Parameters, Prior
from dse.calibrate.kernels.points import Points
from dse.cost.law import (
    Expert,
    Rates,
    cold_share,
    expert_bytes,
    grouped_time,
    handed_bytes,
    product_time,
    quantize_time,
)
from dse.cost.laws import GroupedLaw, ProductLaw, StreamLaw
from dse.cost.routing import padded_count
from dse.struct import Array

_ELEMENTWISE_FRAC: Final = 0.75  # the prior of every engine
_PRODUCT: Final = {
    **JOINED,
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


PRODUCTS: Final = {
    "gemm": Operator(with_cache(_PRODUCT), _gemm_features, _gemm_time, floor=True),
    "moe": Operator(
        with_cache(
            _PRODUCT,
            handed_passes=Prior(1.0, 1.0),
            picked_passes=Prior(0.3, 1.0),
            slot_s=Prior(1e-8, 1.5),
        ),
        _moe_features,
        _moe_time,
        floor=True,
    ),
}

"""Designs, loads and targets at the ends of what can be asked, each as some changed numbers."""

from __future__ import annotations

EXTREMES: dict[str, dict[str, float]] = {
    "as drawn": {},
    "one slot": {"max_batch": 1.0},
    "many slots": {"max_batch": 1e5},
    "short": {"isl_tokens": 1.0, "osl_tokens": 1.0},
    "one token out": {"osl_tokens": 1.0},
    "long": {"isl_tokens": 1e6, "osl_tokens": 1e5},
    "all cached": {"prefix_hit_frac": 1.0},
    "tiny memory": {"memory_bytes": 1e6},
    "tiny chunk": {"chunk_tokens": 1.0},
    "huge chunk": {"chunk_tokens": 1e6},
    "no promise kept": {"ttft_mean_s": 1e-6, "tpot_mean_s": 1e-6},
    "no load": {"load": 1e-3},
    "overload": {"load": 1e7},
    "many ranks": {"tp": 64.0, "dp": 64.0, "ep": 64.0, "pp": 16.0},
    "no links": {"scale_up_bytes_per_s": 1.0, "scale_out_bytes_per_s": 1.0},
    "free": {"price_usd_per_hour": 0.0, "power_w": 0.0, "idle_power_w": 0.0},
}

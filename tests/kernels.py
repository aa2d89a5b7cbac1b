"""A small file of fitted kernels, made by hand; its numbers are nobody's measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.spec.kernels import KernelFile, law_parameters
from dse.spec.plain import dump_yaml

PRODUCT = {
    "kernel_s": 2e-6,
    "compute_frac": 0.7,
    "tile_rows": 40.0,
    "tile_columns": 80.0,
    "depth_half": 200.0,
    "serial_s": 2e-6,
    "serial_power": 0.5,
    "wave_overhead": 0.1,
    "unit_s": 1e-8,
    "bandwidth_frac": 0.9,
    "ramp_bytes": 1e6,
    "additive_frac": 0.3,
}
ATTENTION = {
    "kernel_s": 5e-6,
    "compute_frac": 0.65,
    "width_offset": 8.0,
    "group_tile": 16.0,
    "bandwidth_frac": 0.8,
    "unit_s": 2e-8,
    "ramp_bytes": 2e6,
    "additive_frac": 0.5,
    "wave_overhead": 0.3,
    "wave_rows": 4000.0,
    "query_passes": 1.5,
    "split_s": 4e-6,
    "split_rows": 300.0,
    "serial_s": 6e-6,
    "tile_rows": 60.0,
    "packing_frac": 0.4,
}
ERRORS = {"law": {"mape_percent": 6.1, "median_ape_percent": 4.4}}


def one_set(operator: str, dtype: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A set as it stands in a file."""
    return {
        "operator": operator,
        "dtype": dtype,
        "kernel_source": "cutlass",
        "parameters": parameters,
        "n_fit": 100,
        "n_held_out": 20,
        "errors": ERRORS,
        "hull": {"m": {"low": 1, "high": 8192}},
        **more,
    }


def document(*sets: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A file of vLLM's kernels on H200."""
    found: dict[str, Any] = {
        "target": "h200-sxm",
        "engine": "vllm",
        "version": "0.14.0",
        "date": "2025-06-30",
        "source": {"package": "made-up", "version": "1.0", "licence": "Apache-2.0"},
        "sets": list(sets) or [one_set("gemm", "bf16", PRODUCT)],
    }
    return {**found, **more}


def everything() -> dict[str, Any]:
    """Sets for dense and grouped products in several formats, attention, and the rest."""
    narrow = {**PRODUCT, "compute_frac": 0.5, "serial_power": 0.4, "quantize_passes": 2.0}
    grouped = {"handed_passes": 2.0, "picked_passes": 0.5, "slot_s": 5e-8}
    stream = {name: ATTENTION[name] for name in law_parameters("indexer_decode")}
    sets = [
        one_set("gemm", "bf16", PRODUCT),
        one_set("gemm", "fp8", narrow),
        one_set("gemm", "fp8_block", {**narrow, "kernel_s": 3e-6}),
        one_set("moe", "bf16", {**PRODUCT, **grouped}),
        one_set("moe", "fp8_block", {**narrow, **grouped}),
    ]
    for kind in ("gqa", "mla", "dsa", "csa", "hca"):
        for phase in ("prefill", "decode"):
            sets.append(one_set(f"{kind}_{phase}", "bf16", ATTENTION))
            sets.append(one_set(f"{kind}_{phase}", "fp8", {**ATTENTION, "bandwidth_frac": 0.7}))
    for phase in ("prefill", "decode"):
        sets.append(one_set(f"indexer_{phase}", "fp8", stream))
        for kind in ("gated_delta_net", "kimi_delta", "mamba2"):
            sets.append(one_set(f"{kind}_{phase}", "bf16", stream))
    memory = {name: stream[name] for name in law_parameters("elementwise")}
    sets.append(one_set("elementwise", "bf16", memory))
    return document(*sets)


def fitted(data: dict[str, Any] | None = None) -> KernelFile:
    return KernelFile.model_validate(data or everything())


def written(folder: Path, data: dict[str, Any], name: str = "vllm.yaml") -> Path:
    """The document as a file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_yaml(data))
    return path

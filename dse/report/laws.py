"""Which operators run on fitted kernels and which on priors, in one line."""

from __future__ import annotations

from collections.abc import Mapping


def law_line(laws: Mapping[str, Mapping[str, str]], engine: Mapping[str, str]) -> str:
    """`Engine: fitted to 80 measured deployments of ...`, then of kernels; see `_kernel_line`."""
    source = engine["source"]
    first = f"Engine: fitted to {source}." if engine["status"] == "fitted" else "Engine: on priors."
    return f"{first} {_kernel_line(laws)}"


def _kernel_line(laws: Mapping[str, Mapping[str, str]]) -> str:
    """`Kernels: gemm fp8 fitted (...); priors (...): moe fp8, ...`, or that all are priors.

    `laws` are those of a result: operator and dtype -> {"status", "source"}. Operators of one
    source stand together.
    """
    by_source: dict[tuple[str, str], list[str]] = {}
    for name, one in laws.items():
        by_source.setdefault((one["status"], one["source"]), []).append(name)
    fitted = [key for key in by_source if key[0] == "fitted"]
    priors = [key for key in by_source if key[0] != "fitted"]
    if not fitted:
        return f"Kernels: all on priors ({', '.join(source for _, source in priors)})."
    parts = [f"{', '.join(by_source[key])} fitted ({key[1]})" for key in fitted]
    parts += [f"{', '.join(by_source[key])} on priors ({key[1]})" for key in priors]
    return f"Kernels: {'; '.join(parts)}."

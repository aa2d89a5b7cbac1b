"""Kernels of a profile as rows that `dse calibrate kernels --tables` takes."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Any, Final

from dse.profile.shapes import is_dense_product
from dse.profile.summary import Group

COLUMNS: Final = ("operator", "dtype", "kernel_source", "m", "n", "k", "latency_s", "calls")


def points_of(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Plain products whose shapes are known, the median time of each.

    Other operators need sizes that no profiler records: cached tokens of each request, the choice
    of experts, the ranks of a collective.
    """
    rows = []
    for group in groups:
        product = group.work.product
        if product is None or product.batch != 1 or group.kind != "product":
            continue
        times = [call.time_s for call in group.calls if call.n == 1 and call.time_s > 0.0]
        if times and is_dense_product(group.calls[0]):
            rows.append(
                {
                    "operator": "gemm",
                    "dtype": product.dtype,
                    "kernel_source": group.name,
                    "m": product.m,
                    "n": product.n,
                    "k": product.k,
                    "latency_s": statistics.median(times),
                    "calls": len(times),
                }
            )
    return sorted(rows, key=lambda row: [row[name] for name in COLUMNS[1:6]])


def points_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV, times in seconds."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "latency_s": f"{row['latency_s']:.9g}"} for row in rows)
    return out.getvalue()

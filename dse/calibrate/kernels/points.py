"""Measured kernel times: groups of points of one operator, number format and kernel source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.columns import OPERATORS, Columns

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Rows of one operator, number format and kernel source.

    `columns` has a float array per numeric column and a text array per text column, all of the
    length of `latency_s`.
    """

    operator: str
    dtype: str
    kernel_source: str
    columns: Mapping[str, NDArray[Any]]
    latency_s: Floats
    version: str = ""  # of the engine whose kernels these are
    warnings: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.latency_s)

    @property
    def what(self) -> Columns:
        """The columns of the operator."""
        return OPERATORS[self.operator]

    @property
    def label(self) -> str:
        """`operator dtype source`, for messages."""
        return f"{self.operator} {self.dtype} {self.kernel_source}".strip()

    def size(self) -> Floats:
        """Product of the operator's size columns: how large each row is."""
        log = np.zeros(len(self))
        for name in self.what.sizes:
            log += np.log(np.maximum(self.columns[name], 1.0))
        return np.exp(log)

    def take(self, index: NDArray[Any]) -> Points:
        """The points of an index or mask."""
        columns = {name: values[index] for name, values in self.columns.items()}
        return Points(
            self.operator,
            self.dtype,
            self.kernel_source,
            columns,
            self.latency_s[index],
            self.version,
            self.warnings,
        )


def merged(
    operator: str,
    dtype: str,
    kernel_source: str,
    columns: Mapping[str, NDArray[Any]],
    latency_s: Floats,
    version: str = "",
) -> Points:
    """Points with rows of the same shape merged to their median, and what that says in warnings."""
    names = [*OPERATORS[operator].names, *OPERATORS[operator].text]
    keys = [np.unique(columns[name], return_inverse=True)[1] for name in names]
    _, first, of = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
    of = of.reshape(-1)
    n = len(latency_s)
    warnings: tuple[str, ...] = ()
    if len(first) < n:
        order = np.lexsort((latency_s, of))
        starts = np.searchsorted(of[order], np.arange(len(first)))
        ends = np.append(starts[1:], n)
        # The lower median: one of the measured values, not a mean of two modes.
        latency_s = latency_s[order[(starts + ends - 1) // 2]]
        columns = {name: values[first] for name, values in columns.items()}
        warnings = (f"{n - len(first):,} rows repeat a shape; the median of each is taken",)
    warnings += tuple(_constant(operator, columns, len(latency_s)))
    return Points(operator, dtype, kernel_source, columns, latency_s, version, warnings)


def _constant(operator: str, columns: Mapping[str, NDArray[Any]], n: int) -> list[str]:
    needed = OPERATORS[operator].needed
    flat = [name for name in needed if n > 1 and np.ptp(columns[name]) == 0.0]
    return [
        f"{name} is {columns[name][0]:g} in every row; how time depends on it keeps its prior"
        for name in flat
    ]

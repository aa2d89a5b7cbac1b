"""What readers of the tables of `aiconfigurator-core` share.

Units: `latency` is milliseconds; tables of MoE all-to-all and DeepEP are microseconds; the
`message_size` of NCCL and of the custom all-reduce counts elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Table = Mapping[str, NDArray[Any]]

MS: Final = 1e-3
US: Final = 1e-6
_DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "half": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "int8": "int8",
    "sq": "int8",
    "int8_wo": "int8_bf16",
    "int4_wo": "int4",
    "w4afp8": "int4_fp8",
    "w4a16_mxfp4": "mxfp4_bf16",
    "w4a8_mxfp4_mxfp8": "mxfp4_fp8",
    "default": "bf16",
}


@dataclass(frozen=True)
class Rows:
    """Rows of one operator; `dtype` and `source` are text arrays as long as the columns."""

    operator: str
    dtype: NDArray[Any]
    source: NDArray[Any]
    columns: Mapping[str, NDArray[Any]]
    latency_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TableReader:
    """The operators that a kind of table has, and how its rows are read."""

    operators: tuple[str, ...]
    read: Callable[[Table], Iterator[Rows]]


def numbers(table: Table, name: str) -> NDArray[np.float64]:
    """A column as numbers."""
    return np.asarray(table[name], dtype=np.float64)


def dtypes(values: NDArray[Any]) -> NDArray[Any]:
    """The project's names of formats."""
    return np.array([_DTYPES.get(str(value), str(value)) for value in values], dtype=object)


def picked(rows: Rows, mask: NDArray[Any], operator: str = "") -> Rows:
    """The rows of a mask, of another operator where one is named."""
    return Rows(
        operator or rows.operator,
        rows.dtype[mask],
        rows.source[mask],
        {name: values[mask] for name, values in rows.columns.items()},
        rows.latency_s[mask],
    )

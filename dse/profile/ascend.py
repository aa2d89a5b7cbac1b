"""Ascend: kernel_details.csv of torch_npu's profiler and op_summary_*.csv of msprof.

Which columns of pipes there are depends on the metrics that were asked for and on the version:
PipeUtilization has `aic_mac_ratio`, `aiv_vec_ratio`, `aic_mte2_ratio`; ArithmeticUtilization (the
default of old versions) has parts such as `aic_mac_fp16_ratio` and no mte2; chips with one core for
both have them without prefix, and may have `memory_bound`. What is missing stays None.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from dse.profile.call import Call, Counters, Profile, Tensor
from dse.profile.source import Row, Table, find_table

_NAME: Final = ("Name", "Op Name")
_KIND: Final = ("Type", "OP Type")
_CORE: Final = ("Accelerator Core", "Task Type")
_START: Final = ("Start Time(us)", "Task Start Time(us)")
_TIME: Final = ("Duration(us)", "Task Duration(us)")
_WAIT: Final = ("Wait Time(us)", "Task Wait Time(us)")
MARKS: Final = (_NAME, _KIND, _CORE, _TIME)

_MAC: Final = ("aic_mac_ratio", "mac_ratio", "aic_cube_ratio")
_MAC_PARTS: Final = (
    "aic_mac_fp16_ratio", "aic_mac_int8_ratio", "mac_fp16_ratio", "mac_int8_ratio",
    "aic_cube_fp16_ratio", "aic_cube_int8_ratio",
)  # fmt: skip
_VEC: Final = ("aiv_vec_ratio", "vec_ratio")
_VEC_PARTS: Final = tuple(
    f"{prefix}vec_{part}_ratio"
    for prefix in ("aiv_", "")
    for part in ("fp32", "fp16", "int32", "misc")
)
_MTE2: Final = ("aic_mte2_ratio", "aiv_mte2_ratio", "mte2_ratio")
_FLOPS: Final = ("aic_cube_fops", "cube_fops")
_US: Final = 1e-6


def read(text: str, file: str) -> Profile | None:
    """The kernels of an export, or None where it is none of Ascend's."""
    table = find_table(text, file, MARKS)
    if table is None:
        return None
    calls = []
    steps: set[str] = set()
    for row in table.rows():
        calls.append(_call(table, row))
        if "Step Id" in table.places and row.text("Step Id"):
            steps.add(row.text("Step Id"))
    tool = "ascend op_summary" if "Op Name" in table.places else "ascend kernel_details"
    return Profile(file, tool, tuple(calls), len(steps) or None, tuple(_notes(table)))


def _call(table: Table, row: Row) -> Call:
    time_column = table.first(_TIME)
    assert time_column is not None
    start = table.first(_START)
    return Call(
        name=row.text(table.first(_NAME)) or row.text(table.first(_KIND)) or "unnamed",
        kind=row.text(table.first(_KIND)) or row.text(table.first(_NAME)) or "unnamed",
        core=row.text(table.first(_CORE)),
        time_s=row.needed(time_column) * _US,
        start_s=None if start is None else _start(row, start),
        device=row.text(table.first(("Device_id", "Device ID"))),
        wait_s=(row.number(table.first(_WAIT)) or 0.0) * _US,
        inputs=_tensors(row, "Input"),
        outputs=_tensors(row, "Output"),
        counters=_counters(table, row),
    )


def _start(row: Row, column: str) -> Decimal | None:
    text = row.text(column)
    if not text or row.number(column) is None:
        return None
    try:
        return Decimal(text) * Decimal("1e-6")
    except InvalidOperation:
        return None


def _counters(table: Table, row: Row) -> Counters:
    mte2 = [row.number(name) for name in _MTE2 if name in table.places]
    return Counters(
        mac_frac=_whole(table, row, _MAC, _MAC_PARTS),
        vec_frac=_whole(table, row, _VEC, _VEC_PARTS),
        mte2_frac=max((value for value in mte2 if value is not None), default=None),
        memory_bound=row.number(table.first(("memory_bound",))),
        flops=row.number(table.first(_FLOPS)) or None,
    )


def _whole(table: Table, row: Row, names: Sequence[str], parts: Sequence[str]) -> float | None:
    """A ratio, or the sum of the parts that old versions split it into."""
    column = table.first(names)
    if column is not None:
        return row.number(column)
    found = [row.number(name) for name in parts if name in table.places]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _tensors(row: Row, side: str) -> tuple[Tensor, ...]:
    """Tensors of one side; scalars and absent ones, written as nothing, are left out."""
    columns = (f"{side} Shapes", f"{side} Data Types", f"{side} Formats")
    return _read_tensors(
        *(row.text(name if name in row.table.places else None) for name in columns)
    )


@lru_cache(maxsize=4096)  # a profile repeats a few shapes thousands of times
def _read_tensors(shapes: str, dtypes: str, layouts: str) -> tuple[Tensor, ...]:
    names, formats = dtypes.split(";"), layouts.split(";")
    found = []
    for i, text in enumerate(shapes.strip('"').split(";")):
        lengths = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and len(part) < 16 for part in lengths):
            continue
        dtype = _plain(names[i]) if i < len(names) else ""
        layout = formats[i].strip().removeprefix("FORMAT_") if i < len(formats) else ""
        found.append(Tensor(tuple(int(part) for part in lengths), dtype, layout or "ND"))
    return tuple(found)


def _plain(dtype: str) -> str:
    return dtype.strip().upper().removeprefix("DT_")


def _notes(table: Table) -> list[str]:
    notes = []
    if table.first(("memory_bound", *_MTE2)) is None:
        notes.append(
            "no mte2 column: memory_bound is N/A (profile with aic_metrics=PipeUtilization)"
        )
    elif table.first((*_MAC, *_MAC_PARTS, *_VEC, *_VEC_PARTS, "memory_bound")) is None:
        notes.append("no mac and vec columns: memory_bound is N/A")
    if table.first(_START) is None:
        notes.append("no start times: gaps between kernels are unknown")
    return notes

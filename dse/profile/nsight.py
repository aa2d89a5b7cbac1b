"""NVIDIA: CSV of `nsys stats` (cuda_gpu_trace, cuda_gpu_kern_sum) and of `ncu --csv`.

Times of nsys carry their unit in the column's name; of ncu a metric is a row with its unit beside
it. Both may print notices before the header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from dse.profile.call import Call, Counters, Profile
from dse.profile.source import Row, find_table

_SECONDS: Final[Mapping[str, str]] = {
    "ns": "1e-9", "nsecond": "1e-9", "us": "1e-6", "μs": "1e-6", "µs": "1e-6", "usecond": "1e-6",
    "ms": "1e-3", "msecond": "1e-3", "s": "1", "sec": "1", "second": "1",
}  # fmt: skip
_UNITS: Final = ("ns", "us", "μs", "µs", "ms", "s", "sec")
_START: Final = tuple(f"Start ({unit})" for unit in _UNITS)
_TIME: Final = tuple(f"Duration ({unit})" for unit in _UNITS)
_TOTAL: Final = tuple(f"Total Time ({unit})" for unit in _UNITS)
TRACE_MARKS: Final = (_START, _TIME, ("Name",), ("Strm",))
SUM_MARKS: Final = (_TOTAL, ("Instances",), ("Name",))
NCU_MARKS: Final = (("Kernel Name",), ("Metric Name",), ("Metric Unit",), ("Metric Value",))

_DURATION: Final = ("Duration", "gpu__time_duration.sum")
_COMPUTE: Final = (
    "Compute (SM) Throughput",
    "SM Throughput",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
)
_MEMORY: Final = (
    "DRAM Throughput",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)


def read_trace(text: str, file: str) -> Profile | None:
    """`nsys stats --report cuda_gpu_trace --format csv`."""
    table = find_table(text, file, TRACE_MARKS)
    if table is None:
        return None
    start, time = table.first(_START), table.first(_TIME)
    assert start is not None
    assert time is not None
    calls = []
    for row in table.rows():
        name = row.text("Name") or "unnamed"
        calls.append(
            Call(
                name=name,
                kind=short_name(name),
                core=_memory_operation(name),
                time_s=float(Decimal(repr(row.needed(time))) * _scale(time)),
                start_s=_exact(row, start),
                device=row.text(table.first(("Device",))),
            )
        )
    return Profile(file, "nsys cuda_gpu_trace", tuple(calls))


def read_sum(text: str, file: str) -> Profile | None:
    """`nsys stats --report cuda_gpu_kern_sum --format csv`: totals, no times of starting."""
    table = find_table(text, file, SUM_MARKS)
    if table is None:
        return None
    total = table.first(_TOTAL)
    assert total is not None
    calls = []
    for row in table.rows():
        name = row.text("Name") or "unnamed"
        n = row.needed("Instances")
        if n < 1:
            table.fault(row.line, "Instances", f"found {n:g}; expected at least 1")
        time_s = row.needed(total) * float(_scale(total))
        calls.append(Call(name, short_name(name), _memory_operation(name), time_s, n=int(n)))
    note = "a summary has no start times: gaps between kernels are unknown"
    return Profile(file, "nsys cuda_gpu_kern_sum", tuple(calls), notes=(note,))


def read_ncu(text: str, file: str) -> Profile | None:
    """`ncu --csv`, of the section SpeedOfLight (in every set): a launch is the rows of one ID."""
    table = find_table(text, file, NCU_MARKS)
    if table is None:
        return None
    launches: dict[tuple[str, str], dict[str, tuple[Row, str]]] = {}
    for row in table.rows():
        key = row.text(table.first(("ID",))), row.text("Kernel Name") or "unnamed"
        metrics = launches.setdefault(key, {})
        metrics[row.text("Metric Name")] = row, row.text("Metric Unit")
    calls = []
    for (_, name), metrics in launches.items():
        duration = next((metrics[m] for m in _DURATION if m in metrics), None)
        if duration is None:
            continue
        row, unit = duration
        if unit not in _SECONDS:
            known = ", ".join(_SECONDS)
            table.fault(row.line, "Metric Unit", f"found {unit[:20]!r}; expected one of {known}")
            continue
        time_s = row.needed("Metric Value") * float(_SECONDS[unit])
        counters = Counters(
            mac_frac=_percent(metrics, _COMPUTE), mte2_frac=_percent(metrics, _MEMORY)
        )
        calls.append(Call(name, short_name(name), "", time_s, counters=counters))
    table.check()
    left = len(launches) - len(calls)
    notes = ["ncu replays kernels one by one: gaps are unknown, clocks may be locked to base"]
    if left:
        notes.append(f"{left} launches without a duration are left out (--set basic has it)")
    return Profile(file, "ncu", tuple(calls), notes=tuple(notes))


def _percent(metrics: Mapping[str, tuple[Row, str]], names: tuple[str, ...]) -> float | None:
    for name in names:
        if name in metrics:
            value = metrics[name][0].number("Metric Value")
            return None if value is None else value / 100.0
    return None


def _scale(column: str) -> Decimal:
    unit = column[column.index("(") + 1 : -1]
    return Decimal(_SECONDS[unit])


def _exact(row: Row, column: str) -> Decimal | None:
    text = row.text(column).replace(",", "")
    if not text or row.number(column) is None:
        return None
    try:
        return Decimal(text) * _scale(column)
    except InvalidOperation:
        return None


def _memory_operation(name: str) -> str:
    return "memory operation" if name.startswith(("[CUDA mem", "Memcpy", "Memset")) else ""


def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters."""
    if name.startswith("["):
        return name.strip("[]")
    plain = _without(_without(name, "<", ">"), "(", ")")
    plain = re.sub(r"\s+(const|volatile)$", "", plain.strip())
    last = plain.split(" ")[-1].rstrip(":")
    return last or name[:80]


def _without(text: str, opening: str, closing: str) -> str:
    """The text outside of brackets, nested ones too."""
    depth, kept = 0, []
    for character in text:
        if character == opening:
            depth += 1
        elif character == closing and depth:
            depth -= 1
        elif not depth:
            kept.append(character)
    return "".join(kept)

"""Kernel tables of the package `aiconfigurator-core`, in the neutral columns.

The package is optional (`pip install 'dse[calibrate]'`). Its Parquet files lie under
`systems/data/<system>/<op>/<engine>/<version>/<table>_perf.parquet`; each operator takes the newest
version that measured it, unless one is asked for. Its end-to-end file is never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.points import Points, merged
from dse.calibrate.kernels.table_reader import Rows
from dse.calibrate.kernels.tables_rows import READERS
from dse.errors import DseError, did_you_mean, one_of

PACKAGE: Final = "aiconfigurator-core"
LICENCE: Final = "Apache-2.0"
# Catalogue name -> system of the package.
SYSTEMS: Final[Mapping[str, str]] = {
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200-nvl72": "gb200",
    "gb300-nvl72": "gb300",
    "a100-sxm-80gb": "a100_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
ENGINES: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "trtllm",
}
# Collectives of the library that every engine falls back to.
_NCCL: Final = "nccl"
_SPECIAL: Final = ("nongated", "min_latency", "situ_as_silu")
# Fewer rows say nothing that a prior does not.
_MIN_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Table:
    """One Parquet file: which kernels of which version of an engine it measured."""

    path: Path
    op: str
    engine: str
    version: str
    stem: str


def package_version() -> str:
    """The version of the package. Raises DseError, naming the extra, where it is missing."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError as error:
        raise DseError(
            f"{PACKAGE} is not installed, which carries the measured kernel tables; "
            "pip install 'dse[calibrate]', or give your own with --tables FILE"
        ) from error


def find_tables(hardware: str, engine: str, wanted: str | None = None) -> list[Table]:
    """The tables of an engine on a target, newest first by table; only version `wanted` if given.

    Raises DseError for a target, an engine or a version that the package does not have.
    """
    package_version()
    system = _known("hardware", hardware, SYSTEMS)
    name = _known("engine", engine, ENGINES)
    root = Path(str(resources.files("aiconfigurator_core"))) / "systems" / "data" / system
    found = [table for table in _walk(root) if table.engine in (name, _NCCL)]
    own = [table for table in found if table.engine == name]
    if wanted is not None:
        versions = sorted({table.version for table in own}, key=version_key)
        if wanted not in versions:
            hint = did_you_mean(wanted, versions)
            raise DseError(f"--engine: found {engine}@{wanted}{hint}; known: {one_of(versions)}")
        own = [table for table in own if table.version == wanted]
    shared = [table for table in found if table.engine == _NCCL]
    newest_first = sorted([*own, *shared], key=lambda one: version_key(one.version), reverse=True)
    return sorted(newest_first, key=lambda one: (one.op, one.stem))


def main_version(tables: Sequence[Table]) -> str:
    """The version that a file of sets is named after: that of the dense products, else newest."""
    own = [table for table in tables if table.engine != _NCCL]
    gemm = [table.version for table in own if table.op == "gemm"]
    return gemm[0] if gemm else max((table.version for table in own), key=version_key, default="")


def read_tables(tables: Sequence[Table], operators: Sequence[str] = ()) -> Iterator[Points]:
    """The groups of points of the tables, for the operators named (all when none is).

    Of each operator and format the newest version that measured it: a new version of a table may
    hold a few new models only. Groups of kernels for special shapes do not end the search.
    """
    done: dict[tuple[str, str, str], str] = {}
    newest: dict[tuple[str, str, str], str] = {}
    for table in tables:
        reader = READERS.get(table.stem)
        if reader is None or (operators and not set(reader.operators) & set(operators)):
            continue
        for rows in reader.read(_columns(table.path)):
            if operators and rows.operator not in operators:
                continue
            for points in _by_group(rows, table.version):
                key = (table.stem, points.operator, points.dtype)
                own = (points.operator, points.dtype, points.kernel_source)
                found = done.get(key, table.version), newest.setdefault(own, table.version)
                if found != (table.version, table.version):
                    continue
                if not special(points.kernel_source):
                    done[key] = table.version
                yield points


def special(kernel_source: str) -> bool:
    """Whether these kernels serve some shapes only: never the first choice of a deployment."""
    return "+" in kernel_source or any(word in kernel_source for word in _SPECIAL)


def _by_group(rows: Rows, version_: str) -> Iterator[Points]:
    labels = np.char.add(np.char.add(rows.dtype.astype(str), "|"), rows.source.astype(str))
    for label in np.unique(labels):
        mask = (labels == label) & np.isfinite(rows.latency_s) & (rows.latency_s > 0.0)
        if mask.sum() < _MIN_ROWS:
            continue
        dtype, source = str(label).split("|", 1)
        columns = {name: values[mask] for name, values in rows.columns.items()}
        yield merged(rows.operator, dtype, source, columns, rows.latency_s[mask], version_)


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DseError(
            "reading kernel tables needs pyarrow; pip install 'dse[calibrate]'"
        ) from error
    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def _walk(root: Path) -> Iterator[Table]:
    for path in sorted(root.glob("*/*/*/*_perf.parquet")):
        op, engine, version_ = path.parts[-4:-1]
        yield Table(path, op, engine, version_, path.name.removesuffix("_perf.parquet"))


def version_key(text: str) -> tuple[Any, ...]:
    """Order of versions: numbers as numbers, a pre-release (rc, dev) before its release."""
    parts: list[tuple[int, int, str]] = []
    for part in re.findall(r"\d+|[a-z]+", text.lower()):
        if part.isdigit():
            parts.append((1, int(part), ""))
        else:
            parts.append((0 if part in ("rc", "dev", "a", "b") else 2, 0, part))
    return (*parts, (1, -1, ""))


def _known(what: str, name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        raise DseError(
            f"no measured kernels of {what} {name!r}{did_you_mean(name, known)}; "
            f"known: {one_of(list(known))}; give your own with --tables FILE"
        )
    return known[name]

"""The full grid as a data set of Parquet files, one for each stretch of blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dse.errors import DseError
from dse.grid.axes import LISTS
from dse.grid.checkpoint import CheckpointError
from dse.grid.plan import Whole, list_value
from dse.report.atomic import write_bytes
from dse.serving.reasons import Reason

FOLDER: Final = "designs"
DESIGNS_PER_FILE: Final = 1 << 19


def need_parquet() -> None:
    """Raises DseError where pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise DseError(
            "--full writes Parquet files, and pyarrow is not installed; "
            "pip install 'dse[parquet]', or pip install pyarrow"
        ) from None


class Store:
    """Files of fixed stretches of blocks, whatever devices priced them."""

    def __init__(
        self, folder: Path, whole: Whole, numbers: Sequence[tuple[float, ...] | None]
    ) -> None:
        self.folder = folder / FOLDER
        self.whole = whole
        self.numbers = tuple(numbers)
        self.names = list(
            dict.fromkeys(name for part in whole.parts for name in part.base.grid.names)
        )

    def blocks_per_file(self, number: int) -> int:
        """Blocks in a file of a part (its last one may have fewer)."""
        return max(DESIGNS_PER_FILE // self.whole.plans[number].block_size, 1)

    def file_of(self, number: int, first_block: int) -> int:
        """Which file starts at a block of a part."""
        before = sum(
            -(-plan.n_blocks // self.blocks_per_file(i))
            for i, plan in enumerate(self.whole.plans[:number])
        )
        return before + first_block // self.blocks_per_file(number)

    def write(self, number: int, first_block: int, columns: Mapping[str, np.ndarray]) -> list[Any]:
        """Write blocks [n, block size] from `first_block` on; [name, sha256, designs]."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = self._table(number, first_block, columns)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        name = f"part-{self.file_of(number, first_block):05d}.parquet"
        write_bytes(self.folder / name, data)
        return [name, hashlib.sha256(data).hexdigest(), table.num_rows]

    def check(self, files: Sequence[Sequence[Any]]) -> None:
        """Raises CheckpointError where a finished file is gone or has changed."""
        for name, sha256, _ in files:
            path = self.folder / name
            try:
                found = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                raise CheckpointError(
                    f"{path}: cannot be read: {error.strerror}{_ADVICE}"
                ) from error
            if found != sha256:
                raise CheckpointError(f"{path}: is not the file that was written{_ADVICE}")

    def _table(self, number: int, first_block: int, columns: Mapping[str, np.ndarray]) -> Any:
        import pyarrow as pa

        part, places = self.whole.parts[number], self.whole.places[number]
        n_blocks, size = next(iter(columns.values())).shape
        block = np.repeat(np.arange(first_block, first_block + n_blocks, dtype=np.int64), size)
        place = np.tile(np.arange(size, dtype=np.int64), n_blocks)
        real = places.counted(block, place)
        index = places.design(block[real], place[real])
        scenario, design = np.divmod(index, part.base.grid.size)
        arrays: dict[str, Any] = {}
        for name in LISTS:
            arrays[name] = _labels(pa, np.zeros(len(index), np.int32), [list_value(part, name)])
        digits = np.unravel_index(scenario, part.sizes) if part.sizes else ()
        for axis, cover, digit, known in zip(
            self.whole.axes, part.covers, digits, self.numbers, strict=True
        ):
            position = np.asarray(cover)[digit]
            if known is None:
                arrays[axis.path] = _labels(pa, position, axis.labels)
            else:
                arrays[axis.path] = pa.array(np.asarray(known)[position])
        own = dict(
            zip(part.base.grid.names, np.unravel_index(design, part.base.grid.sizes), strict=True)
        )
        for name in self.names:
            arrays[f"design.{name}"] = self._design_column(
                pa, part, name, own.get(name), len(index)
            )
        for name, values in columns.items():
            flat = values.reshape(-1)[real]
            if name == "reason":
                arrays[name] = _labels(pa, flat.astype(np.int32), [r.name.lower() for r in Reason])
            else:
                arrays[name] = pa.array(flat.astype(np.float32))
        return pa.table(arrays)

    def _design_column(self, pa: Any, part: Any, name: str, digit: Any, n: int) -> Any:
        values = next(
            axis.values
            for one in self.whole.parts
            for axis in one.base.grid.axes
            if axis.name == name
        )
        text = isinstance(values[0], str)
        if digit is None:
            kind = pa.dictionary(pa.int32(), pa.string()) if text else pa.int64()
            return pa.nulls(n, kind)
        values = next(axis.values for axis in part.base.grid.axes if axis.name == name)
        if text:
            return _labels(pa, digit, values)
        return pa.array(np.asarray(values, np.int64)[digit])


_ADVICE: Final = "; give another --out, or delete the folder to price the grid from its beginning"


def _labels(pa: Any, codes: Any, labels: Sequence[Any]) -> Any:
    codes = pa.array(np.asarray(codes, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(labels), pa.string()))

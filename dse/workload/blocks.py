"""Hashes of prompt blocks of many requests, kept in one array."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError

Ints = NDArray[np.int64]

MAX_BLOCKS: Final = 200_000_000
_MOST_SIZES: Final = 4096


class BlockLists(Sequence[Ints]):
    """`blocks[i]` are the block hashes of request i; the hashes of all stand in `flat`."""

    def __init__(self, flat: Ints, counts: Ints) -> None:
        self.flat = flat
        self.counts = counts
        self.ends = np.cumsum(counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        i = range(len(self))[index]
        end = int(self.ends[i])
        return self.flat[end - int(self.counts[i]) : end]

    def __iter__(self) -> Iterator[Ints]:
        for i in range(len(self)):
            yield self[i]

    def take(self, which: Ints) -> BlockLists:
        """The lists of some requests, in that order."""
        counts = self.counts[which]
        before = np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(self.ends[which] - counts, counts)
        return BlockLists(self.flat[starts + np.arange(len(before)) - before], counts)

    def shifted(self, by: Ints) -> BlockLists:
        """With `by[i]` added to every hash of request i."""
        return BlockLists(self.flat + np.repeat(by, self.counts), self.counts)

    @classmethod
    def of(cls, lists: Sequence[Any]) -> BlockLists:
        """From one sequence of whole numbers per request."""
        counts = np.array([len(one) for one in lists], np.int64)
        arrays = [np.asarray(one, np.int64) for one in lists if len(one)]
        return cls(np.concatenate(arrays) if arrays else np.empty(0, np.int64), counts)


class BlockReader:
    """Reads the cell of a request: a list of numbers or text, or text such as `0-13 27`."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._n = 0

    def read(self, cell: Any) -> Ints:
        """The hashes as whole numbers. Raises ValueError for a cell that is none of the forms."""
        found = self._numbers(cell)
        self._n += len(found)
        if self._n > MAX_BLOCKS:
            raise DseError(f"more than {MAX_BLOCKS:,} block hashes; read fewer rows")
        return found

    def _numbers(self, cell: Any) -> Ints:
        if isinstance(cell, list):
            return np.array([self._number(item) for item in cell], np.int64)
        if not isinstance(cell, str):
            raise ValueError("no list of block hashes")
        pieces = []
        for part in cell.strip().strip("[]").replace(",", " ").replace(";", " ").split():
            first, dash, last = part.partition("-")
            if dash and first.isdigit() and last.isdigit():
                if not int(first) <= int(last) < int(first) + MAX_BLOCKS - self._n:
                    raise ValueError("a range of block hashes that falls or has no end")
                pieces.append(np.arange(int(first), int(last) + 1))
            else:
                pieces.append(np.array([self._number(part.strip("'\""))]))
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def _number(self, item: Any) -> int:
        if isinstance(item, bool) or not isinstance(item, int | str):
            raise ValueError("a block hash is a number or text")
        if isinstance(item, str) and item.isdigit() and len(item) < 18:
            return int(item)
        if isinstance(item, int) and 0 <= item < 2**62:
            return item
        # Text and very large numbers count down from -1, apart from all numbers.
        return self._ids.setdefault(str(item), -1 - len(self._ids))


def block_size(isl: Ints, counts: Ints) -> int | None:
    """Tokens per block, from how many blocks prompts of each length have; None where unclear.

    Every prompt must have ceil(isl/b) blocks, or every one floor(isl/b); of several such b the one
    power of two.
    """
    n, tokens = counts.astype(np.float64), isl.astype(np.float64)
    some, many = n > 0, n > 1
    if not some.any():
        return None
    bounds = (
        # (n - 1) b < isl <= n b; a prompt without hashes says nothing.
        (
            np.max(tokens[some] / n[some]),
            np.min((tokens[many] - 1) / (n[many] - 1), initial=np.inf),
        ),
        # n b <= isl < (n + 1) b
        (np.max((tokens + 1) / (n + 1)), np.min(tokens[some] / n[some])),
    )
    fits = [b for low, high in bounds for b in _whole_numbers(float(low), float(high))]
    powers = {b for b in fits if b & (b - 1) == 0}
    chosen = powers or set(fits)
    return chosen.pop() if len(chosen) == 1 else None


def _whole_numbers(low: float, high: float) -> range:
    """Those from low to high; none where there is no upper limit, the first few where many."""
    first = math.ceil(low)
    return (
        range(first, min(math.floor(high), first + _MOST_SIZES) + 1)
        if high < math.inf
        else range(0)
    )

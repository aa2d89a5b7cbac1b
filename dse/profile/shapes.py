"""Flops and bytes of a kernel from the shapes of its tensors, where they can be told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dse.profile.call import PRODUCT_DTYPE, Call, Shape, Tensor

_STREAMING: Final = frozenset(
    ("normalization", "activation", "quantization", "position", "elementwise")
)
# Of what moves data, those that read all that they are handed; a slice or a gather does not.
_MOVES_ALL: Final = ("cast", "transpose", "transdata", "tensormove", "viewcopy")
_FRACTAL: Final = 32  # tiled layouts pad rows and columns up to this
_GEMM: Final = ("matmul", "gemm", "mm", "linear", "nvjet", "cutlass")
_RESULT_BYTES: Final = 2.0  # of an element, where a profiler records no results


@dataclass(frozen=True, slots=True)
class Product:
    """Y = X W of one kernel: m rows, depth k, n columns, `batch` times or in as many groups."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str

    @property
    def flops(self) -> float:
        """A multiply-add counts twice."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel has to do at least; None where its shapes do not tell."""

    flops: float | None = None
    bytes: float | None = None
    dtype: str = ""
    product: Product | None = None


def work_of(call: Call, kind: str) -> Work:
    """Flops and bytes; every tensor crosses the memory once.

    Of a class that only streams its tensors the bytes are enough. Attention is left out: its
    tensors do not tell how much of a cache was read.
    """
    total = _bytes(call)
    if kind in ("product", "experts"):
        # What adds up the parts of a split product has its shapes, not its flops.
        parts = "reduce" in call.kind.lower()
        found = None if parts else product_of(call, grouped=kind == "experts")
        if found is None:
            return Work(call.counters.flops)
        if total is None and not call.outputs:
            total = _bytes_of(call.inputs, _RESULT_BYTES * found.batch * found.m * found.n)
        return Work(call.counters.flops or found.flops, total, found.dtype, found)
    moves = kind == "data movement" and call.kind.lower().startswith(_MOVES_ALL)
    if (kind in _STREAMING or moves) and call.outputs:
        return Work(None, total)
    return Work()


def product_of(call: Call, *, grouped: bool = False) -> Product | None:
    """The product that the first two matrices make; None where the shapes contradict it."""
    matrices = [tensor for tensor in call.inputs if len(tensor.shape) >= 2 and tensor.size]
    if len(matrices) < 2:
        return None
    first, second = matrices[:2]
    dtype = PRODUCT_DTYPE.get(first.dtype)
    if dtype is None or first.dtype != second.dtype or first.layout != "ND":
        return None
    result = call.outputs[0] if call.outputs else None
    if grouped:
        return _grouped(first, second, result, dtype)
    batch = _batch(first.shape, second.shape, second.layout)
    if batch is None:
        return None
    sizes = _sizes(first.shape[-2:], second, batch, None if result is None else result.shape)
    return None if sizes is None else Product(*sizes, batch, dtype)


def _batch(first: Shape, second: Shape, layout: str) -> int | None:
    if layout != "ND":
        return 1 if len(first) == 2 else None
    if first[:-2] != second[:-2]:
        return None
    return math.prod(first[:-2])


def _sizes(
    first: Shape, second: Tensor, batch: int, result: Shape | None
) -> tuple[int, int, int] | None:
    """(m, n, k), either factor transposed or not; of several readings the one that fits."""
    if result is not None and (len(result) < 2 or math.prod(result[:-2]) != batch):
        return None
    for m, k in (first, first[::-1]):
        if second.layout != "ND":
            if result is not None and result[0] == m and _padded(second.size, result[1] * k):
                return m, result[1], k
            continue
        for depth, n in (second.shape[-2:], second.shape[-2:][::-1]):
            if depth == k and (result is None or result[-2:] == (m, n)):
                return m, n, k
    return None


def _padded(found: int, wanted: int) -> bool:
    return wanted <= found <= wanted * (1 + 1 / _FRACTAL) + _FRACTAL * _FRACTAL


def _grouped(first: Tensor, second: Tensor, result: Tensor | None, dtype: str) -> Product | None:
    """Rows of all groups times one matrix each: every row meets one of them."""
    if len(first.shape) != 2 or len(second.shape) != 3 or second.layout != "ND":
        return None
    rows, k = first.shape
    for depth, n in (second.shape[1:], second.shape[:0:-1]):
        if depth == k and (result is None or result.shape == (rows, n)):
            return Product(rows, n, k, 1, dtype)
    return None


def _bytes(call: Call) -> float | None:
    """Bytes of all tensors; None without results, or with formats that are not known."""
    return _bytes_of((*call.inputs, *call.outputs), 0.0) if call.outputs else None


def _bytes_of(tensors: Sequence[Tensor], more: float) -> float | None:
    sizes = [tensor.n_bytes for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return math.fsum([*known, more]) if len(known) == len(sizes) else None


def is_dense_product(call: Call) -> bool:
    """Whether the kernel is one plain product, with nothing fused into it by its name."""
    plain = call.kind.lower().replace("_", "")
    return any(word in plain for word in _GEMM) and "batch" not in plain and "reduce" not in plain

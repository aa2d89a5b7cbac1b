"""Parameters of the kernel law, one struct for each kind of operator (formulas: `dse.cost.law`).

Priors and fitted sets fill the same structs. Times are seconds, sizes bytes; a `_frac` is a share
of a data sheet's peak and never above 1. What is 0 in every prior changes nothing until it is
fitted: `unit_s`, `ramp_bytes`, `slot_s`, `additive_frac`, and of attention the fields from
`wave_overhead` on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import jax

from dse.struct import Scalar, replace, struct


@struct
class ProductLaw:
    """One matrix product in one number format.

    Where a pool's formats hold it for all dense products, a field is a number for all parts of the
    model or a dict of numbers by part (`dse.cost.gemm.of_parts`).
    """

    kernel_s: Scalar  # t_0: launch and tail of one kernel
    compute_frac: Scalar  # e_c, of the peak
    tile_rows: Scalar  # b_m
    tile_columns: Scalar  # b_n
    depth_half: Scalar  # k_h: depth at which half of the rate is reached
    serial_s: Scalar  # c_s: one pass over a depth of 1024
    serial_power: Scalar  # b_s
    wave_overhead: Scalar  # g
    unit_s: Scalar  # c_u: per work unit of a compute unit
    bandwidth_frac: Scalar  # e_m
    ramp_bytes: Scalar  # b_h: added to what is moved
    additive_frac: Scalar  # c: 0 joins both sides as a root of squares, 1 adds them
    quantize_passes: Scalar  # q_a: traffic of quantizing activations on the fly


@struct
class GroupedLaw:
    """The grouped product of routed experts in one number format."""

    product: ProductLaw
    handed_passes: Scalar  # c_T: rows of tokens that it is handed, in and out
    picked_passes: Scalar  # c_K: rows of their picks, on the rank or not, in and out
    slot_s: Scalar  # per expert slot of a rank


@struct
class AttentionLaw:
    """One kind of softmax attention in one phase, for one format of the cache."""

    kernel_s: Scalar
    compute_frac: Scalar  # of the 16-bit peak, whatever the cache's format
    width_offset: Scalar  # d_o: softmax work as extra head width
    group_tile: Scalar  # g_m: query heads per key head are padded to about this (decode)
    bandwidth_frac: Scalar
    unit_s: Scalar
    ramp_bytes: Scalar
    additive_frac: Scalar
    wave_overhead: Scalar  # g: little work leaves compute (prefill) or memory (decode) idle
    wave_rows: Scalar  # s_m: cached rows of all key heads from which memory is busy (decode)
    query_passes: Scalar  # c_q: queries and outputs crossed again, by parts of a context (decode)
    split_s: Scalar  # t_r: of splitting a context and joining the parts (decode)
    split_rows: Scalar  # context at which half of it is paid (decode)
    serial_s: Scalar  # one row's pass over 1024 keys of width 256 (prefill)
    tile_rows: Scalar  # b_m: query rows of a prompt are padded to about this (prefill)
    packing_frac: Scalar  # share of a group's query heads that fill one tile together (prefill)


@struct
class StreamLaw:
    """Work with little reuse: element-wise, recurrent states, scores of an indexer."""

    kernel_s: Scalar
    compute_frac: Scalar
    bandwidth_frac: Scalar
    ramp_bytes: Scalar
    additive_frac: Scalar


@struct
class CacheLaw:
    """How much faster a benchmark finds operands that still lie in the cache (calibration only)."""

    cache_bytes: Scalar  # L2_eff
    gain: Scalar  # r
    power: Scalar  # q


LawStruct = ProductLaw | GroupedLaw | AttentionLaw | StreamLaw
L = TypeVar("L", ProductLaw, GroupedLaw, AttentionLaw, StreamLaw)

# Fixed times: they shrink with no peak and no bandwidth.
FIXED_TIMES: Final = ("kernel_s", "serial_s", "slot_s", "split_s")
# Where more is faster; less is in every other field.
RATES: Final = ("compute_frac", "bandwidth_frac", "split_rows", "packing_frac")


def changed(law: L, change: Callable[[str, Scalar], Scalar]) -> L:
    """The law with each number replaced by `change(name of its field, number)`."""
    found = {}
    for name in type(law).__dataclass_fields__:
        value = getattr(law, name)
        if isinstance(value, ProductLaw):
            found[name] = changed(value, change)
        else:
            found[name] = jax.tree.map(partial(change, name), value)
    return replace(law, **found)


def scaled(law: L, factors: Mapping[str, Scalar]) -> L:
    """The law with the fields named in `factors` multiplied."""
    return changed(law, lambda name, leaf: leaf * factors[name] if name in factors else leaf)

"""The neutral columns of measured kernels: what each operator's rows must state.

One row is one kernel time of one rank. All sizes are those of the rank; `latency_s` is seconds.
Every file may also have `operator`, `dtype` and `kernel_source`. Which columns make a shape family
matters: held-out errors are of whole families that the fit never saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LATENCY: Final = "latency_s"
TEXT_COLUMNS: Final = ("operator", "dtype", "kernel_source", "distribution")


@dataclass(frozen=True, slots=True)
class Columns:
    """What the rows of one operator state.

    `needed` and `optional` (with defaults) are numbers; `family` names the shape that stays whole
    when rows are held out; `sizes` are the columns whose product grows with a request, a batch or
    a message: extrapolation is to the largest products.
    """

    needed: tuple[str, ...]
    family: tuple[str, ...]
    sizes: tuple[str, ...]
    optional: Mapping[str, float] = field(default_factory=dict)
    text: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every numeric column."""
        return (*self.needed, *self.optional)


_ATTENTION = ("q_heads", "kv_heads", "head_dim")
_PREFILL = Columns(
    needed=("batch", "rows", *_ATTENTION),  # rows: new tokens of each request
    optional={"prefix": 0.0, "window": 0.0},  # cached tokens before them; 0: no window
    family=(*_ATTENTION, "window"),
    sizes=("batch", "rows", "rows"),
)
_DECODE = Columns(
    needed=("batch", "context", *_ATTENTION),  # context: cached tokens of each request
    optional={"window": 0.0},
    family=(*_ATTENTION, "window"),
    sizes=("batch", "context"),
)
_MLA_PREFILL = Columns(
    needed=("batch", "rows", "q_heads"),
    optional={"prefix": 0.0},
    family=("q_heads", "rows"),
    sizes=("batch", "rows", "rows"),
)
_MLA_DECODE = Columns(
    needed=("batch", "context", "q_heads"),
    family=("q_heads", "context"),
    sizes=("batch", "context"),
)
_SPARSE_PREFILL = Columns(
    needed=("batch", "rows", "q_heads", "hidden"),
    optional={"prefix": 0.0},
    family=("q_heads", "hidden", "rows"),
    sizes=("batch", "rows"),
    text=("gemm_dtype",),
)
_SPARSE_DECODE = Columns(
    needed=("batch", "context", "q_heads", "hidden"),
    family=("q_heads", "hidden", "context"),
    sizes=("batch", "context"),
    text=("gemm_dtype",),
)
_RECURRENT_PREFILL = Columns(
    needed=("batch", "rows", "k_heads", "v_heads", "k_dim", "v_dim"),
    family=("k_heads", "v_heads", "rows"),
    sizes=("batch", "rows"),
)
_RECURRENT_DECODE = Columns(
    needed=("batch", "k_heads", "v_heads", "k_dim", "v_dim"),
    family=("k_heads", "v_heads"),
    sizes=("batch",),
)
_COLLECTIVE = Columns(  # bytes: of the whole vector on each rank (all-gather: of the result)
    needed=("bytes", "ranks"), family=("bytes", "ranks"), sizes=("bytes",)
)
_EXCHANGE = Columns(
    needed=("tokens", "hidden", "top_k", "experts", "ranks", "element_bytes"),
    optional={"ranks_per_node": 8.0},
    family=("hidden", "top_k", "experts", "ranks"),
    sizes=("tokens",),
)

OPERATORS: Final[Mapping[str, Columns]] = {
    "gemm": Columns(needed=("m", "n", "k"), family=("n", "k"), sizes=("m",)),
    "gqa_decode": _DECODE,
    "gqa_prefill": _PREFILL,
    "moe": Columns(
        # tokens: of the whole expert-parallel domain; intermediate: of the undivided expert
        needed=("tokens", "hidden", "intermediate", "top_k", "experts"),
        optional={"tp": 1.0, "ep": 1.0, "matrices": 3.0},
        family=("hidden", "intermediate", "top_k", "experts"),
        sizes=("tokens",),
        text=("distribution",),
    ),
    "mla_decode": _MLA_DECODE,
    "mla_prefill": _MLA_PREFILL,
    "all_reduce": _COLLECTIVE,
    "all_gather": _COLLECTIVE,
    "reduce_scatter": _COLLECTIVE,
    "all_to_all": _COLLECTIVE,
    "dispatch": _EXCHANGE,
    "combine": _EXCHANGE,
    "dsa_prefill": _SPARSE_PREFILL,
    "dsa_decode": _SPARSE_DECODE,
    "csa_prefill": _SPARSE_PREFILL,
    "csa_decode": _SPARSE_DECODE,
    "hca_prefill": _SPARSE_PREFILL,
    "hca_decode": _SPARSE_DECODE,
    "gated_delta_net_prefill": _RECURRENT_PREFILL,
    "gated_delta_net_decode": _RECURRENT_DECODE,
    "kimi_delta_prefill": _RECURRENT_PREFILL,
    "kimi_delta_decode": _RECURRENT_DECODE,
}
# Zero has a meaning in these; everywhere else a size is above zero.
MAY_BE_ZERO: Final = ("prefix", "window")

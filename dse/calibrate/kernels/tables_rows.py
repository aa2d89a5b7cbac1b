"""How each table of `aiconfigurator-core` says what the neutral columns say.

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

_MS: Final = 1e-3
_US: Final = 1e-6
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


def _f(table: Table, name: str) -> NDArray[np.float64]:
    return np.asarray(table[name], dtype=np.float64)


def _dtype(values: NDArray[Any]) -> NDArray[Any]:
    return np.array([_DTYPES.get(str(value), str(value)) for value in values], dtype=object)


def _pick(rows: Rows, mask: NDArray[Any], operator: str = "") -> Rows:
    return Rows(
        operator or rows.operator,
        rows.dtype[mask],
        rows.source[mask],
        {name: values[mask] for name, values in rows.columns.items()},
        rows.latency_s[mask],
    )


def _gemm(table: Table) -> Iterator[Rows]:
    columns = {name: _f(table, name) for name in ("m", "n", "k")}
    dtype, source = _dtype(table["gemm_dtype"]), table["kernel_source"]
    yield Rows("gemm", dtype, source, columns, _f(table, "latency") * _MS)


def _attention(prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        q, kv = _f(table, "num_heads"), _f(table, "num_key_value_heads")
        # Multi-head rows state the query heads alone.
        kv = np.where(kv <= 0.0, q, kv)
        columns = {"batch": _f(table, "batch_size"), "q_heads": q, "kv_heads": kv}
        columns["head_dim"] = _f(table, "head_dim")
        # Tables of older versions have no windows.
        window = _f(table, "window_size") if "window_size" in table else np.zeros(len(q))
        columns["window"] = np.maximum(window, 0.0)
        if prefill:
            columns |= {"rows": _f(table, "isl"), "prefix": _f(table, "step")}
        else:
            # `step` tokens are cached, and the new one is among those read.
            columns["context"] = _f(table, "step") + 1.0
        source = np.asarray(table["kernel_source"], dtype=object)
        if prefill:  # computing in fp8 is another kernel over the same cache
            fp8 = table["attn_dtype"] == "fp8"
            source = np.where(fp8, source + "+fp8", source)
        elif "framework" in table:
            # Decode of TensorRT-LLM runs three kernels under one name: its XQA takes groups of 2
            # to 32 query heads, single heads and wider groups go elsewhere.
            own = table["framework"] == "TRTLLM"
            group = q / kv
            source = np.where(own & (group == 1.0), source + "+single", source)
            source = np.where(own & (group > 32.0), source + "+wide", source)
        operator = "gqa_prefill" if prefill else "gqa_decode"
        dtype = _dtype(table["kv_cache_dtype"])
        yield Rows(operator, dtype, source, columns, _f(table, "latency") * _MS)

    return read


def _mla(prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        # `num_heads` are those of the rank (one over `tp_size` of the model's, where that is set).
        columns = {"batch": _f(table, "batch_size"), "q_heads": _f(table, "num_heads")}
        if prefill:
            columns |= {"rows": _f(table, "isl"), "prefix": _f(table, "step")}
            columns["prefix"] = np.where(columns["prefix"] == 1.0, 0.0, columns["prefix"])
        else:
            columns["context"] = _f(table, "step") + 1.0
        operator = "mla_prefill" if prefill else "mla_decode"
        dtype, source = _dtype(table["kv_cache_dtype"]), table["kernel_source"]
        yield Rows(operator, dtype, source, columns, _f(table, "latency") * _MS)

    return read


def _moe(table: Table) -> Iterator[Rows]:
    columns: dict[str, NDArray[Any]] = {
        "tokens": _f(table, "num_tokens"),
        "hidden": _f(table, "hidden_size"),
        "intermediate": _f(table, "inter_size"),
        "top_k": _f(table, "topk"),
        "experts": _f(table, "num_experts"),
        "tp": _f(table, "moe_tp_size"),
        "ep": _f(table, "moe_ep_size"),
        "distribution": table["distribution"],
    }
    source = np.asarray(table["kernel_source"], dtype=object)
    plain = np.array(["nongated" in str(name) for name in source])
    columns["matrices"] = np.where(plain, 2.0, 3.0)
    # Triton compiles another kernel where a size is no multiple of 16, two to three times slower.
    triton = np.array(["triton" in str(name) and "trtllm" not in str(name) for name in source])
    odd = columns["intermediate"] / columns["tp"] % 16.0 != 0.0
    source = np.where(triton & odd, source + "+unaligned", source)
    yield Rows("moe", _dtype(table["moe_dtype"]), source, columns, _f(table, "latency") * _MS)


def _all_reduce(table: Table) -> Iterator[Rows]:
    size = _f(table, "message_size") * 2.0  # elements of 16 bit
    columns = {"bytes": size, "ranks": _f(table, "num_gpus")}
    dtype, source = _dtype(table["allreduce_dtype"]), table["kernel_source"]
    # Eager rows time the host: a step runs from a graph.
    graph = np.array(["eager" not in str(name) for name in source])
    rows = Rows("all_reduce", dtype, source, columns, _f(table, "latency") * _MS)
    yield _pick(rows, graph)


def _nccl(table: Table) -> Iterator[Rows]:
    width = np.where(table["nccl_dtype"] == "half", 2.0, 1.0)
    columns = {"bytes": _f(table, "message_size") * width, "ranks": _f(table, "num_gpus")}
    dtype = _dtype(table["nccl_dtype"])
    rows = Rows("", dtype, table["kernel_source"], columns, _f(table, "latency") * _MS)
    for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        mask = (table["op_name"] == name) & (table["nccl_dtype"] == "half")
        yield _pick(rows, mask, "all_to_all" if name == "alltoall" else name)


def _exchange_columns(table: Table, tokens: str, top_k: str, ranks: Any) -> dict[str, Any]:
    n = _f(table, tokens)
    return {
        "tokens": n,
        "hidden": _f(table, "hidden_size"),
        "top_k": _f(table, top_k),
        "experts": _f(table, "num_experts"),
        "ranks": np.broadcast_to(np.asarray(ranks, dtype=np.float64), n.shape).copy(),
        "ranks_per_node": np.full(n.shape, 8.0),
    }


def _moe_a2a(table: Table) -> Iterator[Rows]:
    columns = _exchange_columns(table, "num_tokens", "topk", _f(table, "ep_size"))
    nodes = np.maximum(_f(table, "node_num"), 1.0)
    columns["ranks_per_node"] = columns["ranks"] / nodes
    width = {"fp8": 1.0, "nvfp4": 0.5625, "fp4": 0.5625}
    columns["element_bytes"] = np.array([width.get(str(d), 2.0) for d in table["comm_dtype"]])
    dtype, source = _dtype(table["comm_dtype"]), table["comm_backend"]
    rows = Rows("", dtype, source, columns, _f(table, "latency") * _US)
    for name in ("dispatch", "combine"):
        yield _pick(rows, table["phase"] == name, name)


def _deepep(low_latency: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        nodes = np.maximum(_f(table, "node_num"), 1.0)
        columns = _exchange_columns(table, "num_token", "num_topk", 8.0 * nodes)
        n = len(columns["tokens"])
        for name in ("dispatch", "combine"):
            # DeepEP dispatches in fp8 with its scales and combines in 16 bit.
            width = 1.03125 if name == "dispatch" and low_latency else 2.0
            own = {**columns, "element_bytes": np.full(n, width)}
            if low_latency:
                time, mask = _f(table, f"{name}_avg_t_us"), np.ones(n, dtype=bool)
                kind = "deepep_ll"
            else:
                time = _f(table, f"{name}_transmit_us") + _f(table, f"{name}_notify_us")
                # The engine's own number of units; the others are a sweep of that setting.
                units = _f(table, f"{name}_sms")
                mask, kind = units == 20.0, "deepep_normal"
            dtype = np.full(n, "bf16" if width == 2.0 else "fp8", dtype=object)
            rows = Rows(name, dtype, np.full(n, kind, dtype=object), own, time * _US)
            yield _pick(rows, mask)

    return read


def _sparse(kind: str, prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    """Modules of sparse attention: projections, indexer, compressor and attention together."""

    def read(table: Table) -> Iterator[Rows]:
        # Models differ in width: their rows are groups of their own.
        models = np.array([str(name).rsplit("/", 1)[-1] for name in table["model"]], dtype=object)
        columns: dict[str, Any] = {
            "batch": _f(table, "batch_size"),
            "q_heads": _f(table, "num_heads"),
            "hidden": np.array([_HIDDEN.get(_family(name), 7168.0) for name in models]),
            "gemm_dtype": _dtype(table["gemm_type"]),
        }
        if prefill:
            columns |= {"rows": _f(table, "isl"), "prefix": _f(table, "step")}
        else:
            columns["context"] = _f(table, "step") + 1.0
        operator = f"{kind}_{'prefill' if prefill else 'decode'}"
        dtype = _dtype(table["kv_cache_dtype"])
        rows = Rows(operator, dtype, table["kernel_source"], columns, _f(table, "latency") * _MS)
        skip = np.array(["skip_indexer" in str(name) for name in table["op_name"]])
        yield _pick(rows, ~skip)

    return read


_HIDDEN: Final = {"flash": 4096.0, "pro": 7168.0, "glm": 6144.0, "deepseek": 7168.0}


def _family(model: str) -> str:
    name = model.lower()
    for key in ("flash", "pro", "glm"):
        if key in name:
            return key
    return "deepseek"


def _recurrent(operator: str) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        columns = {
            "batch": _f(table, "batch_size"),
            "rows": np.maximum(_f(table, "seq_len"), 1.0),
            "k_heads": _f(table, "num_k_heads"),
            "v_heads": _f(table, "num_v_heads"),
            "k_dim": _f(table, "head_k_dim"),
            "v_dim": _f(table, "head_v_dim"),
        }
        n = len(columns["batch"])
        source = np.asarray(table["kernel_source"], dtype=object)
        state = np.array(["conv1d" not in str(name) for name in source])
        dtype = np.full(n, "bf16", dtype=object)
        rows = Rows("", dtype, source, columns, _f(table, "latency") * _MS)
        for phase, name in (("context", "prefill"), ("generation", "decode")):
            yield _pick(rows, state & (table["phase"] == phase), f"{operator}_{name}")

    return read


READERS: Final[Mapping[str, TableReader]] = {
    "gemm": TableReader(("gemm",), _gemm),
    "generation_attention": TableReader(("gqa_decode",), _attention(False)),
    "context_attention": TableReader(("gqa_prefill",), _attention(True)),
    "moe": TableReader(("moe",), _moe),
    "generation_mla": TableReader(("mla_decode",), _mla(False)),
    "context_mla": TableReader(("mla_prefill",), _mla(True)),
    "custom_allreduce": TableReader(("all_reduce",), _all_reduce),
    "nccl": TableReader(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), _nccl),
    "moe_a2a": TableReader(("dispatch", "combine"), _moe_a2a),
    "wideep_deepep_ll": TableReader(("dispatch", "combine"), _deepep(True)),
    "wideep_deepep_normal": TableReader(("dispatch", "combine"), _deepep(False)),
    "dsa_context_module": TableReader(("dsa_prefill",), _sparse("dsa", True)),
    "dsa_generation_module": TableReader(("dsa_decode",), _sparse("dsa", False)),
    "dsv4_csa_context_module": TableReader(("csa_prefill",), _sparse("csa", True)),
    "dsv4_csa_generation_module": TableReader(("csa_decode",), _sparse("csa", False)),
    "dsv4_hca_context_module": TableReader(("hca_prefill",), _sparse("hca", True)),
    "dsv4_hca_generation_module": TableReader(("hca_decode",), _sparse("hca", False)),
    "gdn": TableReader(
        ("gated_delta_net_prefill", "gated_delta_net_decode"), _recurrent("gated_delta_net")
    ),
    "kda": TableReader(("kimi_delta_prefill", "kimi_delta_decode"), _recurrent("kimi_delta")),
}

"""How each table of `aiconfigurator-core` says what the neutral columns say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dse.calibrate.kernels.table_reader import MS, Rows, Table, TableReader, dtypes, numbers, picked
from dse.calibrate.kernels.tables_collectives import COLLECTIVE_READERS


def _gemm(table: Table) -> Iterator[Rows]:
    columns = {name: numbers(table, name) for name in ("m", "n", "k")}
    dtype, source = dtypes(table["gemm_dtype"]), table["kernel_source"]
    yield Rows("gemm", dtype, source, columns, numbers(table, "latency") * MS)


def _attention(prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        q, kv = numbers(table, "num_heads"), numbers(table, "num_key_value_heads")
        # Multi-head rows state the query heads alone.
        kv = np.where(kv <= 0.0, q, kv)
        columns = {"batch": numbers(table, "batch_size"), "q_heads": q, "kv_heads": kv}
        columns["head_dim"] = numbers(table, "head_dim")
        # Tables of older versions have no windows.
        window = numbers(table, "window_size") if "window_size" in table else np.zeros(len(q))
        columns["window"] = np.maximum(window, 0.0)
        if prefill:
            columns |= {"rows": numbers(table, "isl"), "prefix": numbers(table, "step")}
        else:
            # `step` tokens are cached, and the new one is among those read.
            columns["context"] = numbers(table, "step") + 1.0
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
        dtype = dtypes(table["kv_cache_dtype"])
        yield Rows(operator, dtype, source, columns, numbers(table, "latency") * MS)

    return read


def _mla(prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        # `num_heads` are those of the rank (one over `tp_size` of the model's, where that is set).
        columns = {"batch": numbers(table, "batch_size"), "q_heads": numbers(table, "num_heads")}
        if prefill:
            columns |= {"rows": numbers(table, "isl"), "prefix": numbers(table, "step")}
            columns["prefix"] = np.where(columns["prefix"] == 1.0, 0.0, columns["prefix"])
        else:
            columns["context"] = numbers(table, "step") + 1.0
        operator = "mla_prefill" if prefill else "mla_decode"
        dtype, source = dtypes(table["kv_cache_dtype"]), table["kernel_source"]
        yield Rows(operator, dtype, source, columns, numbers(table, "latency") * MS)

    return read


def _moe(table: Table) -> Iterator[Rows]:
    columns: dict[str, NDArray[Any]] = {
        "tokens": numbers(table, "num_tokens"),
        "hidden": numbers(table, "hidden_size"),
        "intermediate": numbers(table, "inter_size"),
        "top_k": numbers(table, "topk"),
        "experts": numbers(table, "num_experts"),
        "tp": numbers(table, "moe_tp_size"),
        "ep": numbers(table, "moe_ep_size"),
        "distribution": table["distribution"],
    }
    source = np.asarray(table["kernel_source"], dtype=object)
    plain = np.array(["nongated" in str(name) for name in source])
    columns["matrices"] = np.where(plain, 2.0, 3.0)
    # Triton compiles another kernel where a size is no multiple of 16, two to three times slower.
    triton = np.array(["triton" in str(name) and "trtllm" not in str(name) for name in source])
    odd = columns["intermediate"] / columns["tp"] % 16.0 != 0.0
    source = np.where(triton & odd, source + "+unaligned", source)
    yield Rows("moe", dtypes(table["moe_dtype"]), source, columns, numbers(table, "latency") * MS)


def _sparse(kind: str, prefill: bool) -> Callable[[Table], Iterator[Rows]]:
    """Modules of sparse attention: projections, indexer, compressor and attention together."""

    def read(table: Table) -> Iterator[Rows]:
        # Models differ in width: their rows are groups of their own.
        models = np.array([str(name).rsplit("/", 1)[-1] for name in table["model"]], dtype=object)
        columns: dict[str, Any] = {
            "batch": numbers(table, "batch_size"),
            "q_heads": numbers(table, "num_heads"),
            "hidden": np.array([_HIDDEN.get(_family(name), 7168.0) for name in models]),
            "gemm_dtype": dtypes(table["gemm_type"]),
        }
        if prefill:
            columns |= {"rows": numbers(table, "isl"), "prefix": numbers(table, "step")}
        else:
            columns["context"] = numbers(table, "step") + 1.0
        operator = f"{kind}_{'prefill' if prefill else 'decode'}"
        dtype = dtypes(table["kv_cache_dtype"])
        rows = Rows(
            operator, dtype, table["kernel_source"], columns, numbers(table, "latency") * MS
        )
        skip = np.array(["skip_indexer" in str(name) for name in table["op_name"]])
        yield picked(rows, ~skip)

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
            "batch": numbers(table, "batch_size"),
            "rows": np.maximum(numbers(table, "seq_len"), 1.0),
            "k_heads": numbers(table, "num_k_heads"),
            "v_heads": numbers(table, "num_v_heads"),
            "k_dim": numbers(table, "head_k_dim"),
            "v_dim": numbers(table, "head_v_dim"),
        }
        n = len(columns["batch"])
        source = np.asarray(table["kernel_source"], dtype=object)
        state = np.array(["conv1d" not in str(name) for name in source])
        dtype = np.full(n, "bf16", dtype=object)
        rows = Rows("", dtype, source, columns, numbers(table, "latency") * MS)
        for phase, name in (("context", "prefill"), ("generation", "decode")):
            yield picked(rows, state & (table["phase"] == phase), f"{operator}_{name}")

    return read


READERS: Final[Mapping[str, TableReader]] = {
    "gemm": TableReader(("gemm",), _gemm),
    "generation_attention": TableReader(("gqa_decode",), _attention(False)),
    "context_attention": TableReader(("gqa_prefill",), _attention(True)),
    "moe": TableReader(("moe",), _moe),
    "generation_mla": TableReader(("mla_decode",), _mla(False)),
    "context_mla": TableReader(("mla_prefill",), _mla(True)),
    **COLLECTIVE_READERS,
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

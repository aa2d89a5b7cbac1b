"""How tables of collectives say what the neutral columns say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from dse.calibrate.kernels.table_reader import (
    MS,
    US,
    Rows,
    Table,
    TableReader,
    dtypes,
    numbers,
    picked,
)


def _all_reduce(table: Table) -> Iterator[Rows]:
    size = numbers(table, "message_size") * 2.0  # elements of 16 bit
    columns = {"bytes": size, "ranks": numbers(table, "num_gpus")}
    dtype, source = dtypes(table["allreduce_dtype"]), table["kernel_source"]
    # Eager rows time the host: a step runs from a graph.
    graph = np.array(["eager" not in str(name) for name in source])
    rows = Rows("all_reduce", dtype, source, columns, numbers(table, "latency") * MS)
    yield picked(rows, graph)


def _nccl(table: Table) -> Iterator[Rows]:
    width = np.where(table["nccl_dtype"] == "half", 2.0, 1.0)
    columns = {"bytes": numbers(table, "message_size") * width, "ranks": numbers(table, "num_gpus")}
    dtype = dtypes(table["nccl_dtype"])
    rows = Rows("", dtype, table["kernel_source"], columns, numbers(table, "latency") * MS)
    for name in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        mask = (table["op_name"] == name) & (table["nccl_dtype"] == "half")
        yield picked(rows, mask, "all_to_all" if name == "alltoall" else name)


def _exchange_columns(table: Table, tokens: str, top_k: str, ranks: Any) -> dict[str, Any]:
    n = numbers(table, tokens)
    return {
        "tokens": n,
        "hidden": numbers(table, "hidden_size"),
        "top_k": numbers(table, top_k),
        "experts": numbers(table, "num_experts"),
        "ranks": np.broadcast_to(np.asarray(ranks, dtype=np.float64), n.shape).copy(),
        "ranks_per_node": np.full(n.shape, 8.0),
    }


def _moe_a2a(table: Table) -> Iterator[Rows]:
    columns = _exchange_columns(table, "num_tokens", "topk", numbers(table, "ep_size"))
    nodes = np.maximum(numbers(table, "node_num"), 1.0)
    columns["ranks_per_node"] = columns["ranks"] / nodes
    width = {"fp8": 1.0, "nvfp4": 0.5625, "fp4": 0.5625}
    columns["element_bytes"] = np.array([width.get(str(d), 2.0) for d in table["comm_dtype"]])
    dtype, source = dtypes(table["comm_dtype"]), table["comm_backend"]
    rows = Rows("", dtype, source, columns, numbers(table, "latency") * US)
    for name in ("dispatch", "combine"):
        yield picked(rows, table["phase"] == name, name)


def _deepep(low_latency: bool) -> Callable[[Table], Iterator[Rows]]:
    def read(table: Table) -> Iterator[Rows]:
        nodes = np.maximum(numbers(table, "node_num"), 1.0)
        columns = _exchange_columns(table, "num_token", "num_topk", 8.0 * nodes)
        n = len(columns["tokens"])
        for name in ("dispatch", "combine"):
            # DeepEP dispatches in fp8 with its scales and combines in 16 bit.
            width = 1.03125 if name == "dispatch" and low_latency else 2.0
            own = {**columns, "element_bytes": np.full(n, width)}
            if low_latency:
                time, mask = numbers(table, f"{name}_avg_t_us"), np.ones(n, dtype=bool)
                kind = "deepep_ll"
            else:
                time = numbers(table, f"{name}_transmit_us") + numbers(table, f"{name}_notify_us")
                # The engine's own number of units; the others are a sweep of that setting.
                units = numbers(table, f"{name}_sms")
                mask, kind = units == 20.0, "deepep_normal"
            dtype = np.full(n, "bf16" if width == 2.0 else "fp8", dtype=object)
            rows = Rows(name, dtype, np.full(n, kind, dtype=object), own, time * US)
            yield picked(rows, mask)

    return read


COLLECTIVE_READERS: Final[Mapping[str, TableReader]] = {
    "custom_allreduce": TableReader(("all_reduce",), _all_reduce),
    "nccl": TableReader(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), _nccl),
    "moe_a2a": TableReader(("dispatch", "combine"), _moe_a2a),
    "wideep_deepep_ll": TableReader(("dispatch", "combine"), _deepep(True)),
    "wideep_deepep_normal": TableReader(("dispatch", "combine"), _deepep(False)),
}

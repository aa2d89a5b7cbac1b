"""What each rank of a pool holds, sends and waits for, where the degrees of two parts differ."""

from __future__ import annotations

import numpy as np
import pytest

from dse.cost.memory import request_caches
from dse.cost.step import communication
from dse.cost.transfer import Link, Route, transfer
from tests.support import engine, formats, model, pool, replace, routed, target

V3 = "DeepSeek-V3"
H200 = "h200-sxm"
OUT = (0.0, 1.0, 0.0)


def _terms(tokens: float = 512.0, **degrees: float) -> dict[str, float]:
    lowered = model(V3)
    served = routed(pool(formats(V3, H200), **degrees), lowered)
    found = communication(tokens, lowered.main, lowered, served, target(H200), engine("sglang"))
    return {name: float(seconds) for name, seconds in found.items()}


def test_experts_split_by_tensor_need_every_row_as_well() -> None:
    """With ep 1 each of 8 ranks holds a slice of all experts: rows are gathered, never free."""
    whole = _terms(dp=8, ep=1)
    assert whole["dispatch"] > 0.0
    assert whole["combine"] > whole["dispatch"]
    # as many rows per rank, once with whole experts and once with eighths of them
    plain, sliced = _terms(64.0, dp=8, ep=8), _terms(512.0, dp=64, ep=8)
    assert sliced["dispatch"] > plain["dispatch"]
    assert sliced["combine"] > plain["combine"]


def test_a_shared_expert_is_summed_over_its_tensor_ranks() -> None:
    lowered = model(V3)
    served = routed(pool(formats(V3, H200), tp=4, dp=8, ep=32), lowered)
    without = replace(
        lowered.main, experts=tuple(replace(e, has_shared=0.0) for e in lowered.main.experts)
    )
    args = (lowered, served, target(H200), engine("sglang"))
    whole = float(communication(512.0, lowered.main, *args)["all_reduce"])
    rest = float(communication(512.0, without, *args)["all_reduce"])
    # 61 attention blocks and 3 dense layers against 58 layers with a shared expert
    assert whole / rest == pytest.approx((61 + 3 + 58) / (61 + 3))


def test_index_keys_are_whole_on_every_rank() -> None:
    name = "MiniMax-M3"
    lowered, choice = model(name), formats(name, H200, kv="bf16")
    one, four = (
        float(request_caches(lowered, pool(choice, tp=tp), 8192.0)[0]) for tp in (1.0, 4.0)
    )
    index = 14_592  # 57 sparse layers, one key of 128 elements of 2 bytes
    assert four == pytest.approx((one - index) / 4 + index)


def test_drafts_double_the_compressor_rings() -> None:
    name = "DeepSeek-V4-Flash"
    lowered, choice = model(name), formats(name, "b200-sxm")
    plain, drafting = (
        float(request_caches(lowered, pool(choice, draft_tokens=m), 8192.0)[1]) for m in (0.0, 1.0)
    )
    rings = sum(
        float(np.asarray(k.layers * k.compressor_state_bytes)) for k in lowered.main.attention
    )
    assert drafting - plain == pytest.approx(rings)


def test_one_request_drives_the_links_of_its_attention_rank() -> None:
    choice, chip, lowered = formats(V3, H200), target(H200), model(V3)
    by = engine("generic", transfer_frac=1.0)
    wide, narrow = pool(choice, tp=1, dp=32, ep=32), pool(choice, tp=8)
    one = transfer(lowered, Route(wide, narrow, chip, chip, OUT, Link()), by, 1e5)
    assert float(one.size_bytes / one.payload_s) == pytest.approx(chip.scale_out_bytes_per_s)
    # eight workers of one accelerator fill the links of one worker of eight
    many = pool(choice, tp=1, replicas=8)
    together = transfer(lowered, Route(many, narrow, chip, chip, OUT, Link()), by, 1e5)
    assert float(together.n_parallel) == pytest.approx(8)

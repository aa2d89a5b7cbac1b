"""A refusal for want of memory names the pool that lacks it."""

from __future__ import annotations

from typing import Any

import pytest

import dse

STUDY: dict[str, Any] = {
    "study": "refused",
    "model": "Llama-3.1-70B",
    "hardware": "h100-sxm",
    "engine": "vllm",
    "workload": {"isl": 1000, "osl": 200},
    "objective": {"maximize": "goodput_requests_per_s", "promises": {"ttft_mean": "2 s"}},
}


@pytest.mark.parametrize(
    ("prefill", "decode", "named"),
    [(1, 4, "prefill"), (4, 1, "decode"), (1, 1, "prefill and decode")],
)
def test_the_pool_that_is_too_small_is_named(prefill: int, decode: int, named: str) -> None:
    pools = {
        pool: {"workers": 1, "attention_tp": tp}
        for pool, tp in (("prefill", prefill), ("decode", decode))
    }
    one = dse.evaluate(STUDY, {"mode": "disaggregated", **pools, "max_batch": 8})
    [reason] = one.reasons
    assert reason.startswith("weights and activations do not fit in memory")
    assert reason.endswith(f", on {named} workers")


def test_one_pool_needs_no_name() -> None:
    one = dse.evaluate(STUDY, {"mode": "colocated", "attention_tp": 1, "max_batch": 8})
    assert "workers" not in one.reasons[0]

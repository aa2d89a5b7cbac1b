"""What a measured row becomes: the pools and their limits."""

from __future__ import annotations

import pytest

from dse.calibrate.predict import lower_row
from dse.calibrate.rows import Row

_POOLS = {
    "id": "a",
    "mode": "disaggregated",
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "engine": "tensorrt-llm",
    "isl_tokens": 1000,
    "osl_tokens": 200,
    "concurrency": 36,
    "prefill_workers": 1,
    "prefill_attention_tp": 1,
    "decode_workers": 4,
    "decode_attention_tp": 2,
    "decode_slots": 32,
}


def test_slots_of_all_decode_workers_are_shared_by_them_and_bind_no_prefill() -> None:
    _, design = lower_row(Row.model_validate(_POOLS))
    assert design.decode.max_batch == pytest.approx(8.0)
    assert design.prefill.max_batch > 36.0


def test_without_stated_slots_nothing_binds() -> None:
    _, design = lower_row(Row.model_validate({**_POOLS, "decode_slots": 0}))
    assert design.decode.max_batch > 36.0

"""Numbers for people, by the unit in their name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.report.format import flat, label, number, quantity


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ttft_mean_s", 0.4512, "451.2 ms"),
        ("promises.tpot_mean", 0.05, "50 ms"),
        ("output_tokens_per_s", 39506.1, "39,510 tokens/s"),
        ("output_tokens_per_s_per_accelerator", 123.4, "123.4 tokens/s"),
        ("prefill_utilization_frac", 0.815, "81.5 %"),
        ("peak_flops_per_s.fp8", 1.979e15, "1.979 PFLOP/s"),
        ("memory_bandwidth_bytes_per_s", 3.35e12, "3.35 TB/s"),
        ("memory_bytes", 80e9, "80 GB"),
        ("kv_bytes_per_token", 131072.0, "131,072 B"),
        ("resident_requests", 122.25, "122.2 requests"),
        ("attention_tp", 8, "8"),
        ("max_resident_tokens", 1234567, "1,234,567"),
        ("mode", "colocated", "colocated"),
        ("mixes_phases", True, "yes"),
        ("peak_flops_per_s", [1e12, 2e12], "1 TFLOP/s, 2 TFLOP/s"),
        ("ttft_mean_s", None, "-"),
        ("ttft_mean_s", float("inf"), "-"),
    ],
)
def test_quantity(name: str, value: object, text: str) -> None:
    assert quantity(name, value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ttft_mean_s", "ttft mean"),
        ("output_tokens_per_s_per_user", "output tokens/s per user"),
        ("output_tokens_per_s", "output tokens/s"),
        ("memory_bandwidth_bytes_per_s", "memory bandwidth"),
        ("kv_bytes_per_token", "kv bytes per token"),
        ("decode_utilization_frac", "decode utilization"),
        ("workers", "workers"),
    ],
)
def test_label(name: str, text: str) -> None:
    assert label(name) == text


@given(st.floats(min_value=1e-6, max_value=1e14))
def test_number_keeps_four_digits(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


def test_flat() -> None:
    nested = {"mode": "x", "prefill": {"workers": 2, "tp": [1, 2]}}
    assert list(flat(nested)) == [("mode", "x"), ("prefill.workers", 2), ("prefill.tp", [1, 2])]

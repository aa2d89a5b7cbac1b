"""Closed forms against the simulation on a few fixed draws, and the map made of many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dse.simulate.agreement import (
    METRICS,
    Draw,
    again,
    as_markdown,
    compare,
    draws,
    read,
    summary,
    write,
)

CHAT = Draw(
    model="Llama-3.1-8B",
    hardware="h100-sxm",
    mode="colocated",
    engine="vllm",
    attention_tp=1,
    attention_dp=1,
    moe_ep=1,
    prefill_workers=1,
    decode_workers=1,
    chunk_tokens=4096,
    max_batch=512,
    mix="conversation",
    arrivals_cv=1.0,
    utilization=0.4,
    seed=1,
)
# Largest differences: TTFT p50, p90, p99, TPOT p50, p99; sampling of 3000 requests included.
WITHIN = dict(zip(METRICS, (0.08, 0.2, 0.2, 0.08, 0.12, 0.2), strict=True))


@pytest.mark.parametrize("utilization", [0.4, 0.75])
def test_chat_on_one_accelerator(utilization: float) -> None:
    row = compare(replace(CHAT, utilization=utilization), 3_000)
    assert row is not None
    assert row["status"] == "steady"
    for metric, within in WITHIN.items():
        assert abs(row[f"diff_{metric}"]) < within, (metric, row[f"diff_{metric}"])
    assert again(row)["diff_ttft_p99"] == pytest.approx(row["diff_ttft_p99"], abs=1e-9)


def test_draws_repeat_and_cover_the_range() -> None:
    found = draws(40, 3)
    assert found == draws(40, 3)
    assert found != draws(40, 4)
    levels = sorted(one.utilization for one in found)
    assert all(0.2 + 0.75 * i / 40 <= u <= 0.2 + 0.75 * (i + 1) / 40 for i, u in enumerate(levels))
    assert {one.mode for one in found} == {"colocated", "disaggregated"}
    assert {one.engine for one in found} == {"vllm", "sglang"}


def test_summary_of_written_rows(tmp_path: Path) -> None:
    rows = []
    for i, difference in enumerate((-0.1, 0.02, 0.3)):
        marks = {"slot_wait_frac": 0.0, "status": "steady", "utilization": 0.3 + 0.3 * i}
        base = {"arrivals_cv": 1.0, "mode": "colocated", "engine": "vllm", "mix": "long"}
        both = {"attention_dp": 1, **{f"diff_{metric}": difference for metric in METRICS}}
        rows.append({**base, **marks, **both})
    rows.append({**rows[0], "status": "overloaded", "diff_ttft_p50": -1.0})
    write(tmp_path / "rows.csv", rows)
    lines = summary(read(tmp_path / "rows.csv"))
    [whole] = [line for line in lines if line["regime"] == "all"]
    assert whole["n"] == 3
    assert whole["ttft_p50"] == pytest.approx((10.0, 26.0, 2.0))
    [high] = [line for line in lines if line["regime"] == "from 0.9"]
    assert high["goodput"] == pytest.approx((30.0, 30.0, 30.0))
    assert "| all | 3 | 10 / 26 (+2) |" in as_markdown(lines)
    assert not [line for line in lines if line["regime"] == "bursty"]

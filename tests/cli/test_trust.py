"""What is in doubt of a design reaches documents and people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.report.trust import doubt_lines

Run = Callable[..., Any]

STUDY = """
study: tight
model: Llama-3.1-8B
hardware: [h100-sxm]
engine: {name: vllm, deployments: none}
workload: {isl: {mean: 600, cv: 0.5}, osl: {mean: 60, cv: 0.5}}
objective:
  maximize: goodput_requests_per_s
  promises: {ttft_p99: 2 s, tpot_mean: 12 ms}
space: {max_batch: 16, chunk_tokens: 2048}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_run_says_what_is_in_doubt_and_how_to_play_it(run: Run, study: Path) -> None:
    [one] = run("run", study, "--json").document["recommendations"]
    assert list(one)[-1] == "trust"
    [doubt] = one["trust"]
    assert set(doubt) == {"code", "says", "figures"}
    assert doubt["code"] == "slots_bind"
    ran = run("run", study)
    assert f"in doubt: {doubt['says']}" in ran.out
    assert "--verify plays the best designs" in ran.out


def test_eval_says_what_is_in_doubt(run: Run, study: Path) -> None:
    document = run("eval", study, "--json").document
    assert [one["code"] for one in document["trust"]] == ["slots_bind"]
    assert "in doubt: " in run("eval", study).out


def test_a_line_for_each_doubt() -> None:
    doubts = [{"code": "drift", "says": "it drifts", "figures": []}]
    assert doubt_lines(doubts, "A on B") == ["in doubt of A on B: it drifts"]
    assert doubt_lines([]) == []

"""Sweeps price what they say, and their figures show every series and its best point."""

from __future__ import annotations

from typing import Any

import pytest

from dse.report.sweep_figures import chunk_figure, split_figure
from dse.report.sweeps import GOODPUT, best_by_series, chunk_rows, split_rows
from dse.study import evaluate

_STUDY: dict[str, Any] = {
    "study": "sweep",
    "model": "Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": "vllm",
    "workload": {"isl": 2048, "osl": 256},
    "objective": {"maximize": GOODPUT, "promises": {"ttft_mean": "2 s", "tpot_mean": "30 ms"}},
    "space": {"mode": "colocated", "max_batch": 128},
}
_SPLIT: dict[str, Any] = {
    **_STUDY,
    "space": {"mode": "disaggregated", "max_batch": 128},
}


def test_each_chunk_is_priced_as_evaluate_does() -> None:
    rows = chunk_rows(_STUDY, [256, 4096], "tpot_mean", [0.012, 0.03])
    assert [(row["series"], row["chunk_tokens"]) for row in rows] == [
        (0.012, 256),
        (0.012, 4096),
        (0.03, 256),
        (0.03, 4096),
    ]
    alone = evaluate(_STUDY, {"chunk_tokens": 256}).metrics[GOODPUT]
    assert rows[2][GOODPUT] == pytest.approx(alone, rel=1e-6)
    assert rows[0][GOODPUT] < 0.99 * rows[2][GOODPUT]


def test_a_limit_that_no_chunk_keeps_gives_zeros() -> None:
    rows = chunk_rows(_STUDY, [256, 1024], "tpot_mean", [1e-4])
    assert [row[GOODPUT] for row in rows] == [0.0, 0.0]
    assert best_by_series(rows) == {}


def test_more_chunks_than_a_result_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 16"):
        chunk_rows(_STUDY, range(256, 273), "tpot_mean", [0.03])


def test_best_split_has_more_prefill_workers_for_longer_prompts() -> None:
    long = {**_SPLIT, "workload": {"isl": 4096, "osl": 64}}
    design = {"mode": "disaggregated", "prefill": {}, "decode": {}}
    best = best_by_series(split_rows({"even": _SPLIT, "long": long}, design, 3))
    assert best["long"]["prefill_workers"] > best["even"]["prefill_workers"]


def _rows(axis: str) -> list[dict[str, Any]]:
    values = {"a": (1.0, 3.0, 2.0), "b": (0.0, 1.0, 2.0)}
    return [
        {"series": series, axis: i + 1, "n_workers": 4, GOODPUT: value}
        for series, own in values.items()
        for i, value in enumerate(own)
    ]


def test_best_is_the_highest_and_of_equals_the_first() -> None:
    rows = [{"series": "a", "n": i, GOODPUT: g} for i, g in enumerate((1.0, 2.0, 2.0))]
    assert best_by_series(rows)["a"]["n"] == 1


def test_split_figure_rings_the_best_and_leaves_out_what_breaks_promises() -> None:
    figure = split_figure({"heading": _rows("prefill_workers")}, legends=["ratio"])
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["b"].get_xdata()) == [2, 3]  # type: ignore[arg-type]
    rings = [line.get_xydata()[0].tolist() for line in axes.lines if len(line.get_xdata()) == 1]
    assert rings == [[2.0, 3.0], [3.0, 2.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1:3", "2:2", "3:1"]


def test_chunk_figure_names_the_promise_and_its_limits() -> None:
    rows = [
        {**row, "series": {"a": 0.05, "b": 0.1}[row["series"]]} for row in _rows("chunk_tokens")
    ]
    legend = chunk_figure(rows, promise="tpot_p99").axes[0].get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "TPOT p99 within"
    assert [text.get_text() for text in legend.get_texts()] == ["50 ms", "100 ms", "best"]

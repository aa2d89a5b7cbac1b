"""The table of the Pareto set: which designs it shows, and how it names them."""

from __future__ import annotations

from typing import Any

from dse.report.fronts import axis_headings, axis_value, design_line, front_table, pareto_rows

_POOL: dict[str, Any] = {
    "attention_tp": 1,
    "attention_dp": 1,
    "moe_ep": 1,
    "redundant_experts": 0,
    "pp": 1,
    "max_batch": 64,
    "chunk_tokens": 2048,
    "weight_dtype": "fp8",
    "activation_dtype": "fp8",
    "kv_dtype": "bf16",
}


def _point(speed: float, hardware: str = "h100-sxm", **metrics: float) -> dict[str, Any]:
    return {
        "model": "m",
        "hardware": hardware,
        "design": {"mode": "colocated", "replicas": 1, "draft_tokens": 0, **_POOL},
        "metrics": {"output_tokens_per_s_per_user": speed, "ttft_p99_s": 1 / speed, **metrics},
    }


def test_colocated_design_names_what_is_split_and_limited() -> None:
    design = {"mode": "colocated", "replicas": 2, "draft_tokens": 1, **_POOL, "attention_tp": 4}
    assert design_line(design) == "2 x (tp 4, batch 64, chunk 2,048) fp8, cache bf16, draft 1"


def test_two_pools_are_told_apart_and_formats_that_differ_both_shown() -> None:
    prefill = {**_POOL, "workers": 3, "attention_tp": 8, "weight_dtype": "bf16"}
    decode = {**_POOL, "workers": 1, "attention_dp": 16, "moe_ep": 16, "redundant_experts": 32}
    design = {"mode": "disaggregated", "draft_tokens": 0, "prefill": prefill, "decode": decode}
    assert design_line(design) == (
        "3 x (tp 8, batch 64, chunk 2,048) bf16/fp8, cache bf16 + "
        "1 x (dp 16, ep 16, 32 redundant, batch 64) fp8, cache bf16"
    )


def test_long_front_keeps_both_ends_of_each_target() -> None:
    speeds = [float(100 - i) for i in range(25)]
    points = [_point(s) for s in speeds] + [_point(s, "l40s") for s in speeds[:3]]
    rows = pareto_rows(points, most=5)
    shown = [row["output_tokens_per_s_per_user"] for row in rows if row["hardware"] == "h100-sxm"]
    assert shown == [100.0, 94.0, 88.0, 82.0, 76.0]
    assert [row["hardware"] for row in rows].count("l40s") == 3


def test_one_target_without_hits_has_neither_column() -> None:
    row = pareto_rows([_point(50.0, prefix_hit_frac=0.0)])[0]
    assert "hardware" not in row
    assert "prefix_hit_frac" not in row
    assert row["ttft_p99_s"] == 0.02
    assert pareto_rows([_point(50.0, prefix_hit_frac=0.3)])[0]["prefix_hit_frac"] == 0.3


def test_no_points_no_rows() -> None:
    assert pareto_rows([]) == []


def test_designs_that_read_the_same_are_one_row() -> None:
    unlike = _point(50.0)
    unlike["design"] = {**unlike["design"], "expert_placement": "balanced"}
    rows = pareto_rows([_point(50.0), unlike, _point(50.0001), _point(40.0)])
    assert [row["output_tokens_per_s_per_user"] for row in rows] == [50.0, 40.0]


def test_rows_are_merged_before_they_are_thinned() -> None:
    points = [_point(50.0 + 1e-4 * i) for i in range(20)] + [_point(40.0), _point(30.0)]
    shown = [row["output_tokens_per_s_per_user"] for row in pareto_rows(points, most=3)]
    assert shown == [50.0, 40.0, 30.0]


def test_the_table_says_how_many_designs_it_leaves_out() -> None:
    points = [_point(float(100 - i)) for i in range(25)]
    assert front_table(points, most=5).caption == "20 more with --json"
    assert front_table([*points[:3], points[0]]).caption == "1 more with --json"
    assert front_table(points[:3]).caption is None


def test_axes_that_differ_are_columns_and_the_others_are_said_below() -> None:
    what_ifs = [{"a.hardware.rate": f"x{x}", "workload.isl.mean": "512"} for x in (0.5946035, 1)]
    points = [{**_point(s), "what_if": w} for s, w in zip((50.0, 50.0), what_ifs, strict=True)]
    assert [row["hardware rate"] for row in pareto_rows(points)] == ["x0.5946", "x1"]
    assert front_table(points).caption == "all at workload.isl.mean=512"


def test_headings_of_axes_are_short_where_that_tells_them_apart() -> None:
    paths = ["objective.promises.ttft_mean", "hardware.a.price", "pools.a.price", "engine"]
    assert list(axis_headings(paths).values()) == [
        "promises ttft_mean",
        "hardware a price",
        "pools a price",
        "engine",
    ]


def test_values_of_axes_have_few_digits() -> None:
    values = ("x0.5946035575", "724.0773439", "16384", "0.1 s", "h100-sxm", "1.5e9", "x1")
    assert [axis_value(v) for v in values] == [
        "x0.5946", "724.1", "16384", "0.1 s", "h100-sxm", "1.5e+09", "x1",
    ]  # fmt: skip

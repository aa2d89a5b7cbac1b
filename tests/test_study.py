"""Running studies and pricing single designs, as people and scripts see them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import dse
from dse.errors import DseError, SpecError
from dse.result import Result, flat_design
from dse.spec.metrics import METRICS
from dse.spec.study import load_study
from dse.study import fixed_space

TEXT = """
study: two-modes
model: Llama-2-7B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1000, osl: 200}
objective: {maximize: goodput_requests_per_s_per_accelerator,
            promises: {ttft_mean: 500 ms, tpot_mean: 30 ms}}
budget: {accelerators: 4}
space:
  mode: [colocated, disaggregated]
  attention_tp: [1, 2]
  max_batch: [16, 64, 256]
  chunk_tokens: [1024, 4096]
  weight_dtype: [bf16]
  activation_dtype: [bf16]
  kv_dtype: [bf16, fp8]
  prefill: {workers: [1, 2], attention_tp: [1, 2]}
  decode: {workers: [1, 2]}
"""
CACHED: dict[str, Result] = {}


def result(**overrides: str) -> Result:
    key = json.dumps(overrides, sort_keys=True)
    if key not in CACHED:
        pairs = [(name.replace("__", "."), value) for name, value in overrides.items()]
        CACHED[key] = dse.run(TEXT, overrides=pairs)
    return CACHED[key]


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for one in value.values() for n in numbers(one)]
    if isinstance(value, list):
        return [n for one in value for n in numbers(one)]
    return [value] if isinstance(value, float) else []


def test_a_run_searches_every_mode() -> None:
    found = result()
    assert found.designs_evaluated == 2 * 3 * 2 * 2 + 2 * 2 * 2 * 2 * 3 * 2 * 2
    assert found.proof == "exact"
    assert found.solver == "enumerate"
    assert found.best.feasible
    assert {row["design"]["mode"] for row in found.designs + found.pareto} <= {
        "colocated",
        "disaggregated",
    }
    counts = found.counts["h100-sxm"]
    assert sum(sum(one.values()) for one in counts.values()) == found.designs_evaluated


def test_the_recommendation_is_the_best_of_all_designs() -> None:
    found = result()
    metric = found.study.objective.metric
    values = [row["metrics"][metric] for row in found.designs]
    assert values == sorted(values, reverse=True) or max(values) / values[0] < 1 + 1e-5
    assert found.best.metrics[metric] == values[0]
    assert found.best.design == found.designs[0]["design"]
    for name, limit in {"ttft_mean_s": 0.5, "tpot_mean_s": 0.03}.items():
        assert found.best.metrics[name] <= limit * 1.01


def test_no_point_of_the_front_is_beaten_by_another() -> None:
    points = [
        (
            point["metrics"]["output_tokens_per_s_per_user"],
            point["metrics"]["output_tokens_per_s_per_accelerator"],
        )
        for point in result().pareto
    ]
    assert len(points) > 1
    for a in points:
        assert not any(b[0] >= a[0] and b[1] >= a[1] for b in points if b != a)


def test_evaluating_the_recommendation_gives_its_figures() -> None:
    found = result()
    for row in (found.designs[0], found.pareto[0]):
        one = dse.evaluate(found.study, row["design"])
        assert one.feasible
        assert one.reasons == []
        assert one.design == row["design"]
        for name, value in row["metrics"].items():
            assert one.metrics[name] == pytest.approx(value, rel=1e-12), name


def test_the_breakdown_sums_to_the_steps() -> None:
    found = result()
    one = dse.evaluate(found.study, found.best.design)
    assert sum(one.breakdown["decode"].values()) == pytest.approx(
        found.best.metrics["itl_mean_s"], rel=0.5
    )
    for phase, terms in one.breakdown.items():
        [bottleneck] = [b for b in one.bottlenecks if b["phase"] == phase]
        assert bottleneck["share_frac"] == pytest.approx(max(terms.values()) / sum(terms.values()))
        assert terms[bottleneck["term"]] == max(terms.values())
    memory = one.memory
    used = memory["weights_bytes"] + memory["activation_bytes"] + memory["reserve_bytes"]
    assert used < memory["capacity_bytes"]
    assert memory["max_resident_requests"] <= found.best.design["max_batch"]


def test_json_is_strict_and_complete() -> None:
    document = result().to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["schema"] == "dse.run/1"
    keys = {"study", "solver", "proof", "designs_evaluated", "wall_s", "recommendations", "pareto"}
    assert keys <= document.keys()
    for one in document["recommendations"]:
        assert {"hardware", "feasible", "reason", "design", "metrics", "bottlenecks"} <= one.keys()
    assert all(math.isfinite(number) for number in numbers(document))


def test_evaluation_json_is_strict_and_complete() -> None:
    found = result()
    document = dse.evaluate(found.study, found.best.design).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["schema"] == "dse.eval/1"
    memory = {
        "capacity_bytes",
        "weights_bytes",
        "kv_bytes_per_token",
        "state_bytes_per_request",
        "activation_bytes",
        "reserve_bytes",
        "max_resident_tokens",
        "max_resident_requests",
    }
    assert memory <= document["memory"].keys()
    assert {"prefill", "decode"} == document["breakdown"].keys() == document["kernels"].keys()


def test_metrics_are_named_or_absent_with_a_reason() -> None:
    best = result().best
    for name in METRICS:
        assert (name in best.metrics) != (name in best.absent), name
    for latency in ("ttft", "tpot", "itl", "e2e"):
        p50, p90, p99 = (best.metrics[f"{latency}_p{n}_s"] for n in (50, 90, 99))
        assert 0.0 < p50 < p90 < p99
        assert best.metrics[f"{latency}_mean_s"] < p99


def test_the_same_study_gives_the_same_document() -> None:
    first, second = result().to_json(), dse.run(TEXT).to_json()
    del first["wall_s"], second["wall_s"]
    assert first == second


def test_nothing_feasible_names_the_nearest_miss() -> None:
    found = result(objective__promises="{tpot_mean: 1 ms}")
    assert not found.feasible
    assert not found.best.feasible
    assert "time per output token" in found.best.reason
    assert found.designs == found.pareto == []
    assert found.best.metrics["tpot_mean_s"] > 0.001
    json.dumps(found.to_json(), allow_nan=False)


def test_a_format_that_a_target_lacks_is_refused_not_an_error() -> None:
    found = result(space__weight_dtype="[bf16, mxfp4]", space__activation_dtype="[bf16, mxfp4]")
    assert found.best.feasible
    assert found.counts["h100-sxm"]["colocated"]["unsupported"] > 0
    only = result(space__weight_dtype="mxfp4", space__activation_dtype="mxfp4")
    assert not only.best.feasible
    assert "mxfp4" in only.best.reason


def test_several_targets_are_recommended_in_order() -> None:
    found = result(hardware="[h100-sxm, l40s]", space__mode="colocated")
    assert [one.hardware for one in found.recommendations] == ["h100-sxm", "l40s"]
    assert found.best.hardware == "h100-sxm"
    with pytest.raises(DseError, match="choose one: h100-sxm or l40s"):
        dse.evaluate(found.study, found.best.design)
    assert dse.evaluate(found.study, found.best.design, target="l40s").hardware == "l40s"
    with pytest.raises(DseError, match="did you mean 'l40s'"):
        dse.evaluate(found.study, found.best.design, target="l40")


def test_pools_of_different_targets() -> None:
    text = TEXT.replace("hardware: [h100-sxm]", "pools: {prefill: h100-sxm, decode: h200-sxm}")
    text = text.replace("mode: [colocated, disaggregated]", "mode: disaggregated")
    found = dse.run(text)
    assert found.best.hardware == "h100-sxm+h200-sxm"
    assert "prefill" in found.best.memory
    price = found.best.metrics["price_usd_per_hour"]
    design = found.best.design
    expected = [
        design[pool]["workers"] * design[pool]["attention_tp"] for pool in ("prefill", "decode")
    ]
    assert found.best.metrics["accelerators"] == sum(expected)
    assert price > 0


@pytest.mark.parametrize(
    ("workload", "metric", "check"),
    [
        ("{isl: 1000, osl: 200, concurrency: 32}", "output_tokens_per_s", 32),
        ("{isl: 1000, osl: 200, arrivals: {rate: 2}}", "requests_per_s", 2),
    ],
)
def test_a_given_load_is_met(workload: str, metric: str, check: float) -> None:
    found = result(workload=workload, space__mode="colocated")
    one = found.best.metrics
    assert found.best.feasible
    if metric == "requests_per_s":
        assert one[metric] == pytest.approx(check, rel=1e-3)
    else:
        littles = one["requests_per_s"] * one["e2e_mean_s"]
        assert littles == pytest.approx(check, rel=1e-3)


def test_without_promises_every_slot_is_taken() -> None:
    found = result(objective="batch-offline", space__mode="colocated")
    metrics, design = found.best.metrics, found.best.design
    slots = min(design["max_batch"], found.best.memory["max_resident_requests"])
    in_flight = metrics["requests_per_s"] * metrics["e2e_mean_s"]
    assert in_flight == pytest.approx(slots * design["replicas"], rel=0.01)


def test_a_percentile_is_held_and_asks_more_than_the_mean() -> None:
    found = result(objective__promises="{ttft_p99: 500 ms}", space__mode="colocated")
    mean = result(objective__promises="{ttft_mean: 500 ms}", space__mode="colocated")
    assert not [one for one in found.warnings if "p99" in one]
    assert found.best.metrics["ttft_p99_s"] <= 0.505
    assert mean.best.metrics["ttft_p99_s"] > 0.505
    goodput = "goodput_requests_per_s_per_accelerator"
    assert found.best.metrics[goodput] < mean.best.metrics[goodput]


def test_long_requests_are_warned_about() -> None:
    found = result(workload="{isl: 100000, osl: 200}", space__mode="colocated")
    assert any("above the" in one for one in found.warnings)


def test_an_objective_without_a_price_names_the_target() -> None:
    with pytest.raises(DseError, match=r"ascend-910b.*price_usd_per_hour"):
        dse.run(
            TEXT,
            overrides=[
                ("objective", "{maximize: goodput_requests_per_usd, promises: {ttft_mean: 1 s}}"),
                ("hardware", "[h100-sxm, ascend-910b]"),
            ],
        )


@pytest.mark.parametrize("metric", ["ttft_mean_s", "ttft_p99_s"])
def test_a_latency_objective_needs_a_load(metric: str) -> None:
    with pytest.raises(DseError, match="depends on the load"):
        dse.run(TEXT, overrides=[("objective", f"{{minimize: {metric}}}")])


def test_a_forced_solver_finds_the_same_and_says_what_it_proves() -> None:
    whole = result()
    found = dse.run(TEXT, solver="eliminate")
    assert (whole.solver, found.solver) == ("enumerate", "eliminate")
    assert (whole.proof, found.proof) == ("exact", "exact")
    assert found.best.design == whole.best.design
    searches = found.to_json()["searches"]
    assert [one["mode"] for one in searches] == ["colocated", "disaggregated"]
    total = sum(one["designs"] for one in searches)
    assert total == found.designs_evaluated == whole.designs_evaluated
    assert all(one["priced"] > 0 and one["why"] == "as asked" for one in searches)


def test_an_unknown_solver_names_the_nearest() -> None:
    with pytest.raises(DseError, match="did you mean 'enumerate'"):
        dse.run(TEXT, solver="enumerat")


def test_progress_ends_at_the_number_of_designs() -> None:
    seen: list[tuple[int, int]] = []
    found = dse.run(TEXT, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (found.designs_evaluated, found.designs_evaluated)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_frame_has_one_row_per_design() -> None:
    found = result()
    frame = found.frame()
    assert len(frame) == len(found.designs)
    assert "kv_dtype" in list(frame) or "kv_dtype" in frame[0]


def test_a_notebook_shows_a_table() -> None:
    page = result()._repr_html_()
    assert page.startswith("<table>")
    assert "h100-sxm" in page


def test_seed_and_overrides_reach_the_study() -> None:
    found = dse.run(TEXT, overrides=[("space.mode", "colocated")], seed=7)
    assert found.study.seed == 7
    assert found.study.space.mode == ("colocated",)


# ---------------------------------------------------------------- designs
SPACE = load_study(TEXT).space
COLOCATED = {"mode": "colocated", "attention_tp": 2, "max_batch": 100, "chunk_tokens": 500}


def test_a_design_need_not_lie_on_the_grid() -> None:
    one = dse.evaluate(TEXT, {**COLOCATED, "kv_dtype": "fp8"})
    assert one.design["max_batch"] == 100
    assert one.metrics["accelerators"] == 2


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({**COLOCATED}, "leaves open: kv_dtype"),
        ({**COLOCATED, "kv_dtype": "fp8", "tp": 3}, "no key 'tp'"),
        ({**COLOCATED, "kv_dtype": ["bf16", "fp8"]}, "several values of: kv_dtype"),
        ({**COLOCATED, "kv_dtype": "fp9"}, "fp8"),
        ({**COLOCATED, "kv_dtype": "fp8", "max_batch": -1}, "max_batch"),
    ],
)
def test_a_faulty_design_says_what_is_wrong(design: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fixed_space(SPACE, design)


def test_the_pools_of_a_design_are_complete() -> None:
    rows = result().designs + result().pareto
    split = [row["design"] for row in rows if row["design"]["mode"] == "disaggregated"]
    for design in split:
        space = fixed_space(SPACE, design)
        assert space.prefill.workers == (design["prefill"]["workers"],)
        assert set(design["prefill"]) == set(design["decode"])
    flat = flat_design({"mode": "disaggregated", "decode": {"workers": 2}, "draft_tokens": 0})
    assert flat == {"mode": "disaggregated", "decode.workers": 2, "draft_tokens": 0}


def test_an_infeasible_design_is_an_answer() -> None:
    one = dse.evaluate(TEXT, {**COLOCATED, "kv_dtype": "fp8", "attention_tp": 3})
    assert not one.feasible
    assert "degree" in one.reasons[0]
    assert all(math.isfinite(number) for number in numbers(one.to_json()))


def test_a_study_of_two_models_recommends_for_each() -> None:
    both = dse.run("quickstart", overrides=[("space.mode", "colocated")])
    assert [one.model for one in both.recommendations] == ["Llama-2-7B", "Llama-3.1-8B"]
    alone = dse.run(
        "quickstart", overrides=[("space.mode", "colocated"), ("model", "Llama-3.1-8B")]
    )
    assert both.recommendations[1] == alone.recommendations[0]
    assert set(both.counts) == {"Llama-2-7B on h100-sxm", "Llama-3.1-8B on h100-sxm"}


def test_one_of_several_models_must_be_chosen_to_price_a_design() -> None:
    with pytest.raises(DseError, match=r"choose one .*: Llama-2-7B or Llama-3.1-8B"):
        dse.evaluate("quickstart", {**COLOCATED, "kv_dtype": "fp8"})
    with pytest.raises(DseError, match=r"no model 'Llama-3-8B'; did you mean 'Llama-3.1-8B'"):
        dse.evaluate("quickstart", COLOCATED, model="Llama-3-8B")
    both = [
        dse.evaluate("quickstart", {**COLOCATED, "kv_dtype": "fp8"}, model=name)
        for name in ("Llama-2-7B", "Llama-3.1-8B")
    ]
    assert [one.study.model for one in both] == [("Llama-2-7B",), ("Llama-3.1-8B",)]
    assert both[0].metrics["requests_per_s"] < both[1].metrics["requests_per_s"]

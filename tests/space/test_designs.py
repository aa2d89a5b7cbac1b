"""Positions, rows and simplex weights give the same deployments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.lower.routing import Choice, lower_routing
from dse.lower.study import Problem, lower_study
from dse.space.designs import digit_arrays, gathered, layout, relaxed, row_deployment, row_digits
from dse.space.grid import Axis, Grid
from dse.spec.routing import RoutingSpec
from dse.spec.study import load_study

STUDY = """
study: designs
model: Llama-2-7B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1000, osl: 200}
objective: interactive-chat
space:
  mode: [colocated, disaggregated]
  replicas: [1, 2]
  attention_tp: [1, 2, 4]
  pp: [1, 2]
  max_batch: [8, 32, 100]
  chunk_tokens: [1024, 4096]
  weight_dtype: [bf16, fp8]
  activation_dtype: [bf16, fp8]
  kv_dtype: [bf16, fp8]
  prefill: {workers: [1, 3], kv_dtype: [fp8], attention_tp: [2, 8]}
  decode: {workers: [1, 2, 5]}
"""


def problems() -> list[Problem]:
    [(_, found)] = lower_study(load_study(STUDY)).problems
    return list(found)


EXPERTS = """
study: experts
model: Qwen3-30B-A3B
hardware: [h100-sxm]
engine: vllm
workload: {isl: 1000, osl: 200}
objective: interactive-chat
routing: {popularity: {law: gamma, cv: 1.2}, drift: 0.05}
space:
  mode: [disaggregated]
  attention_dp: [4, 8]
  moe_ep: [1, 4, 8]
  redundant_experts: [0, 16]
  expert_placement: [contiguous, eplb]
  max_batch: [8, 32]
  prefill: {workers: 2, redundant_experts: [0, 8, 16]}
"""


def expert_problem() -> Problem:
    [(_, [found])] = lower_study(load_study(EXPERTS)).problems
    return found


PROBLEMS = {problem.mode: problem for problem in problems()} | {"experts": expert_problem()}
MODES = pytest.mark.parametrize("mode", ["colocated", "disaggregated"])
ALL = pytest.mark.parametrize("mode", list(PROBLEMS))


def leaves(deployment: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(deployment)]


@ALL
@settings(max_examples=20)
@given(data=st.data())
def test_a_corner_of_every_simplex_equals_the_table(mode: str, data: st.DataObject) -> None:
    problem = PROBLEMS[mode]
    index = data.draw(st.integers(0, problem.grid.size - 1))
    positions = digit_arrays(problem.grid, [index])
    weights = {
        axis.name: jax.nn.one_hot(int(positions[axis.name][0]), axis.size)
        for axis in problem.grid.axes
    }
    tables = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), problem.tables)
    mixed = leaves(relaxed(tables, weights))
    picked = leaves(gathered(tables, positions))
    assert len(mixed) == len(picked)
    for a, b in zip(mixed, picked, strict=True):
        assert a == b.reshape(-1)[0]


@MODES
def test_gathered_values_are_those_of_the_axes(mode: str) -> None:
    problem = PROBLEMS[mode]
    for index in range(0, problem.grid.size, 97):
        values = problem.grid.values(index)
        design = gathered(problem.tables, digit_arrays(problem.grid, [index]))
        tp = values.get("decode.attention_tp", values.get("attention_tp"))
        workers = values["replicas"] if mode == "colocated" else values["decode.workers"]
        assert float(design.decode.tp[0]) == tp
        assert float(design.decode.replicas[0]) == workers
        assert float(design.decode.max_batch[0]) == values["max_batch"]
        if mode == "disaggregated":
            assert float(design.prefill.tp[0]) == values["prefill.attention_tp"]
            assert float(design.prefill.draft_tokens[0]) == 0.0


@MODES
def test_formats_are_those_of_their_dtypes(mode: str) -> None:
    problem = PROBLEMS[mode]
    for index in range(0, problem.grid.size, 61):
        positions = digit_arrays(problem.grid, [index])
        design = gathered(problem.tables, positions)
        for pool, choices in problem.choices.items():
            values = problem.grid.values(index)
            asked = [
                values.get(f"{pool}.{d}_dtype", values.get(f"{d}_dtype"))
                for d in ("weight", "activation", "kv")
            ]
            chosen = problem.format_choice(pool, {k: int(v[0]) for k, v in positions.items()})
            assert [chosen.weight, chosen.activation, chosen.kv] == asked
            assert chosen in choices
            got = leaves(getattr(design, pool).formats)
            for a, b in zip(got, leaves(chosen.formats), strict=True):
                assert a.reshape(-1)[0] == pytest.approx(b)


@ALL
@pytest.mark.parametrize("longest", [1, 5, 16, 100, 1 << 20])
def test_a_row_holds_the_designs_of_its_index(mode: str, longest: int) -> None:
    problem = PROBLEMS[mode]
    cut = layout(problem.grid, longest)
    for row in {0, cut.n_parts - 1, cut.n_rows // 2, cut.n_rows - 1}:
        whole, counted = row_deployment(problem.tables, cut, jnp.int32(row))
        columns = np.flatnonzero(counted)
        single = gathered(
            problem.tables, digit_arrays(problem.grid, [cut.design(row, int(c)) for c in columns])
        )
        for a, b in zip(leaves(whole), leaves(single), strict=True):
            spread = np.broadcast_to(a, (cut.n_columns,))[columns]
            wanted = np.broadcast_to(b, spread.shape).astype(spread.dtype)
            np.testing.assert_array_equal(spread, wanted)


@pytest.mark.parametrize(
    ("sizes", "longest"),
    [([7], 3), ([7], 99), ([5, 11], 25), ([2, 11, 3], 12), ([3, 1, 4], 4), ([2, 3, 5], 30)],
)
def test_rows_hold_every_design_once_in_order(sizes: list[int], longest: int) -> None:
    axes = tuple(Axis(f"a{i}", tuple(range(n))) for i, n in enumerate(sizes))
    grid = Grid("colocated", axes)
    cut = layout(grid, longest)
    seen: list[int] = []
    for row in range(cut.n_rows):
        _, counted = row_digits(cut, grid.names, jnp.int32(row))
        seen += [cut.design(row, int(column)) for column in np.flatnonzero(counted)]
    assert seen == list(range(grid.size))
    assert cut.n_columns <= longest
    assert cut.n_rows * cut.n_columns < 2 * grid.size


def test_more_rows_than_32_bits_are_refused() -> None:
    axes = tuple(Axis(f"a{i}", tuple(range(1000))) for i in range(6))
    with pytest.raises(OverflowError, match=str(1000**6)):
        layout(Grid("colocated", axes), 16384)


def test_routing_is_that_of_its_ranks_slots_and_placement() -> None:
    problem = PROBLEMS["experts"]
    kind = problem.system.model.main.experts[0]
    wanted = RoutingSpec.model_validate({"popularity": {"law": "gamma", "cv": 1.2}, "drift": 0.05})
    seen = set()
    for index in range(0, problem.grid.size, 5):
        values = problem.grid.values(index)
        design = gathered(problem.tables, digit_arrays(problem.grid, [index]))
        for name, served in (("decode", design.decode), ("prefill", design.prefill)):
            spare = int(values.get(f"{name}.redundant_experts", values.get("redundant_experts", 0)))
            choice = Choice(int(values["moe_ep"]), spare, str(values["expert_placement"]))
            expected = lower_routing(kind, wanted, choice)
            for a, b in zip(leaves(served.routing[0]), leaves(expected), strict=True):
                assert a.reshape(-1)[0] == b
            assert float(served.redundant_experts[0]) == spare
            seen.add(choice)
    assert len(seen) > 10


def test_pools_that_share_a_domain_use_its_links() -> None:
    problem = PROBLEMS["disaggregated"]
    seen = set()
    for index in range(0, problem.grid.size, 13):
        design = gathered(problem.tables, digit_arrays(problem.grid, [index]))
        total = float(np.asarray(design.accelerators).reshape(-1)[0])
        up, out, host = (float(np.asarray(one).reshape(-1)[0]) for one in design.fabric)
        assert (up, out, host) == ((1.0, 0.0, 0.0) if total <= 8 else (0.0, 1.0, 0.0))
        seen.add(total <= 8)
    assert seen == {True, False}


@pytest.mark.parametrize("fabric", ["scale_up", "scale_out", "host"])
def test_a_given_link_holds_for_every_design(fabric: str) -> None:
    [(_, found)] = lower_study(load_study(STUDY, [("link", f"{{fabric: {fabric}}}")])).problems
    problem = found[1]
    design = gathered(problem.tables, digit_arrays(problem.grid, [0, problem.grid.size - 1]))
    expected = [float(name == fabric) for name in ("scale_up", "scale_out", "host")]
    for weight, wanted in zip(design.fabric, expected, strict=True):
        assert np.all(np.asarray(weight) == wanted)

"""Positions, blocks and simplex weights give the same deployments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.lower.study import Problem, lower_study
from dse.space.designs import block_deployment, digit_arrays, gathered, layout, relaxed
from dse.space.grid import Axis, Grid
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


PROBLEMS = {problem.mode: problem for problem in problems()}
MODES = pytest.mark.parametrize("mode", list(PROBLEMS))


def leaves(deployment: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(deployment)]


@MODES
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


@MODES
@pytest.mark.parametrize(("block", "row"), [(64, 8), (1 << 20, 1 << 20), (1, 1)])
def test_a_block_holds_the_designs_of_its_rows(mode: str, block: int, row: int) -> None:
    problem = PROBLEMS[mode]
    cut = layout(problem.grid, block, row)
    first = (cut.n_outer - 1) // cut.rows * cut.rows
    whole = block_deployment(problem.tables, cut, jnp.int32(first))
    n_rows = min(cut.rows, cut.n_outer - first)
    indices = [(first + r) * cut.n_inner + c for r in range(n_rows) for c in range(cut.n_inner)]
    single = gathered(problem.tables, digit_arrays(problem.grid, indices))
    for a, b in zip(leaves(whole), leaves(single), strict=True):
        spread = np.broadcast_to(a, (cut.rows, cut.n_inner))[:n_rows].reshape(-1)
        wanted = np.broadcast_to(b, spread.shape).astype(spread.dtype)
        np.testing.assert_array_equal(spread, wanted)


@MODES
def test_blocks_cover_the_grid(mode: str) -> None:
    grid = PROBLEMS[mode].grid
    for block, row in [(1, 1), (100, 7), (4096, 64), (1 << 22, 1 << 22)]:
        cut = layout(grid, block, row)
        assert cut.n_outer * cut.n_inner == grid.size
        assert (cut.n_blocks - 1) * cut.rows < cut.n_outer <= cut.n_blocks * cut.rows
        assert cut.n_inner <= max(row, 1)


def test_more_rows_than_32_bits_are_refused() -> None:
    axes = tuple(Axis(f"a{i}", tuple(range(1000))) for i in range(6))
    with pytest.raises(OverflowError, match=str(1000**6)):
        layout(Grid("colocated", axes), 16384, 1024)


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

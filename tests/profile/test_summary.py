"""Work from shapes, bounds, gaps, comparison and calibration points."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.calibrate.kernels.own_rows import read_points
from dse.profile.bounds import Roof, bound_of, memory_bound
from dse.profile.call import Call, Counters, Profile, Tensor
from dse.profile.compare import TERMS, comparison
from dse.profile.gaps import gaps_of
from dse.profile.points import points_csv, points_of
from dse.profile.shapes import Work, product_of, work_of
from dse.profile.summary import document_of, groups_of

ROOF = Roof("target", {"bf16": 400e12, "int8": 800e12}, 1.6e12)


def _call(*shapes: tuple[int, ...], out: tuple[int, ...] | None = None, **changed: Any) -> Call:
    dtype = changed.pop("dtype", "BF16")
    layout = changed.pop("layout", "ND")
    inputs = tuple(Tensor(s, dtype, layout if i else "ND") for i, s in enumerate(shapes))
    outputs = () if out is None else (Tensor(out, "BF16"),)
    return Call(
        **{
            "name": "MatMulV2",
            "kind": "MatMulV2",
            "core": "AI_CORE",
            "time_s": 1e-3,
            "inputs": inputs,
            "outputs": outputs,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("first", "second", "out"),
    [
        ((8, 32), (32, 16), (8, 16)),
        ((8, 32), (16, 32), (8, 16)),
        ((32, 8), (32, 16), (8, 16)),
        ((32, 8), (16, 32), (8, 16)),
        ((8, 32), (32, 16), None),
    ],
)
def test_products_however_they_are_transposed(
    first: tuple[int, ...], second: tuple[int, ...], out: tuple[int, ...] | None
) -> None:
    found = product_of(_call(first, second, out=out))
    assert found is not None
    assert (found.m, found.n, found.k, found.batch, found.dtype) == (8, 16, 32, 1, "bf16")
    assert found.flops == 2 * 8 * 16 * 32


def test_the_counter_of_a_public_sample_agrees() -> None:
    found = product_of(_call((4096, 12288), (4608, 12288), out=(4096, 4608), dtype="FLOAT16"))
    assert found is not None
    assert found.flops == pytest.approx(473250242560, rel=0.025)


def test_batches_groups_and_tiled_weights() -> None:
    batched = product_of(_call((12, 64, 32), (12, 32, 16), out=(12, 64, 16)))
    assert batched is not None
    assert (batched.batch, batched.flops) == (12, 12 * 2 * 64 * 32 * 16)
    grouped = product_of(_call((100, 32), (8, 32, 16), out=(100, 16)), grouped=True)
    assert grouped is not None
    assert grouped.flops == 2 * 100 * 32 * 16  # each row meets one expert
    tiled = product_of(_call((8, 64), (1, 4, 16, 64), out=(8, 64), layout="FRACTAL_NZ"))
    assert tiled is not None
    assert (tiled.m, tiled.n, tiled.k) == (8, 64, 64)


@pytest.mark.parametrize(
    "call",
    [
        _call((81920, 4096), (8192, 512), out=(4096, 512)),  # a row of a public sample
        _call((8, 32), (32, 16), out=(8, 17)),
        _call((8, 32), out=(8, 32)),
        _call((8, 32), (32, 16), out=(8, 16), dtype="FLOAT"),  # no peak to hold it against
        _call((2, 8, 32), (3, 32, 16), out=(2, 8, 16)),
        _call((8, 64), (1, 9, 16, 64), out=(8, 64), layout="FRACTAL_NZ"),
        _call((8, 0), (0, 16), out=(8, 16)),
    ],
)
def test_shapes_that_contradict_each_other_are_no_product(call: Call) -> None:
    assert product_of(call) is None
    assert work_of(call, "product").flops is None


def test_results_that_no_profiler_recorded_are_16_bit() -> None:
    call = _call((8, 32), (32, 16), kind="nvjet_tst_64x8")
    work = work_of(call, "product")
    assert work.bytes == 2 * (8 * 32 + 32 * 16 + 8 * 16)
    assert work.flops == 2 * 8 * 16 * 32
    parts = work_of(replace(call, kind="cublasLt::splitKreduce_kernel"), "product")
    assert (parts.flops, parts.product) == (None, None)


def test_bytes_of_streams_and_of_formats_that_nobody_knows() -> None:
    add = _call((512, 4), (512, 4), out=(512, 4), kind="Add", name="Add")
    assert work_of(add, "elementwise") == Work(None, 3 * 2 * 512 * 4)
    odd = replace(add, inputs=(Tensor((512, 4), "FP12"),))
    assert work_of(odd, "elementwise").bytes is None
    gather = replace(add, kind="GatherV2")
    assert work_of(gather, "data movement").bytes is None  # reads a part of its table


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_memory_bound_is_its_formula(mac: float, vec: float, mte2: float) -> None:
    found = memory_bound(Counters(mac, vec, mte2))
    if max(mac, vec) > 0:
        assert found == mte2 / max(mac, vec)
    else:
        assert found is None


@pytest.mark.parametrize(
    "counters", [Counters(0.5, 0.1, None), Counters(None, None, 0.5), Counters(0.0, 0.0, 0.5)]
)
def test_memory_bound_is_not_available_without_its_ratios(counters: Counters) -> None:
    assert memory_bound(counters) is None


@pytest.mark.parametrize(
    ("kind", "counters", "share", "work", "expected"),
    [
        ("product", Counters(0.8, 0.0, 0.9), None, Work(), "memory bandwidth"),
        ("product", Counters(0.8, 0.0, 0.7), None, Work(), "compute"),
        ("product", Counters(0.1, 0.0, 0.15), None, Work(), "latency"),
        ("communication", Counters(0.8, 0.0, 0.9), None, Work(), "communication"),
        ("host", Counters(), None, Work(), "host"),
        ("product", Counters(), 0.8, Work(4e12, 1e6, "bf16"), "compute"),
        ("product", Counters(), 0.8, Work(4e6, 1e9, "bf16"), "memory bandwidth"),
        ("elementwise", Counters(), 0.8, Work(None, 1e9), "memory bandwidth"),
        ("product", Counters(), 0.05, Work(4e12, 1e6, "bf16"), "latency"),
        ("product", Counters(0.9), None, Work(), None),
    ],
)
def test_bounds(
    kind: str, counters: Counters, share: float | None, work: Work, expected: str | None
) -> None:
    assert bound_of(kind, counters, share, work, ROOF) == expected


def _at(*intervals: tuple[str, float], device: str = "0") -> list[Call]:
    return [
        Call("k", "k", "", time_s, start_s=Decimal(start), device=device)
        for start, time_s in intervals
    ]


def test_gaps_are_those_of_all_streams_together() -> None:
    # Two kernels overlap, one lies inside of another; microseconds that long after 1970.
    base = "1736413971.5589"
    calls = _at(
        (base + "00", 10e-6), (base + "05", 10e-6), (base + "30", 50e-6), (base + "32", 1e-6)
    )
    found = gaps_of(calls)
    assert found is not None
    assert found.n_gaps == 1
    assert found.gaps_s == pytest.approx(15e-6, rel=1e-9)
    assert found.span_s == pytest.approx(80e-6, rel=1e-9)
    assert found.busy_s == pytest.approx(65e-6, rel=1e-9)
    both = gaps_of([*calls, *_at(("5", 1e-6), ("6", 1e-6), device="1")])
    assert both is not None
    assert (both.n_devices, both.n_gaps) == (2, 2)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=30))
def test_gaps_and_busy_time_make_the_span(intervals: list[tuple[int, int]]) -> None:
    found = gaps_of(_at(*[(str(start), float(length)) for start, length in intervals]))
    assert found is not None
    seconds = {t for start, length in intervals for t in range(start, start + length)}
    assert found.busy_s == pytest.approx(len(seconds))
    assert found.gaps_s == pytest.approx(found.span_s - len(seconds))


def _profile(*calls: Call) -> Profile:
    return Profile("f.csv", "test", calls)


def test_kernels_of_one_shape_stand_together() -> None:
    product = _call((8, 32), (32, 16), out=(8, 16), counters=Counters(0.5, 0.0, 1.0))
    slower = replace(product, time_s=3e-3, counters=Counters(0.25, 0.0, 1.0))
    other = replace(product, inputs=product.inputs[::-1], time_s=1e-3)
    document = document_of(_profile(product, slower, other), None)
    first, second = document["kernels"]
    assert (first["calls"], second["calls"]) == (2, 1)
    assert first["time_s"] == pytest.approx(4e-3)
    assert first["share_frac"] + second["share_frac"] == pytest.approx(1.0)
    assert first["mac_frac"] == pytest.approx((0.5 * 1 + 0.25 * 3) / 4)
    assert first["memory_bound"] == pytest.approx(1.0 / first["mac_frac"])
    assert document["gaps_s"] is None


def test_the_document_has_the_keys_that_scripts_rely_on() -> None:
    document = document_of(_profile(*_at(("1", 1.0), ("3", 1.0))), None)
    assert document["schema"] == "dse.profile/1"
    assert document["gaps_s"] == pytest.approx(1.0)
    keys = {"name", "time_s", "share_frac", "bound", "memory_bound"}
    assert keys <= set(document["kernels"][0])


def test_groups_are_compared_in_shares_and_with_steps_in_seconds() -> None:
    calls = [
        _call((8, 32), (32, 16), time_s=0.6, start_s=Decimal(0)),
        Call("hcom", "hcom", "HCCL", 0.2, start_s=Decimal("0.7")),
        Call("AICPU", "Cast", "AI_CPU", 0.1, start_s=Decimal("0.9")),
    ]
    document = document_of(_profile(*calls), None)
    breakdown = {"mlp": 0.05, "head": 0.01, "all_reduce": 0.02, "host": 0.02, "draft": 0.0}
    found = comparison(document, breakdown, "decode", 10)
    rows = {row["group"]: row for row in found["rows"]}
    assert set(rows) == {"products", "communication", "gaps"}
    assert rows["products"]["measured_share_frac"] == pytest.approx(0.6)
    assert rows["products"]["predicted_share_frac"] == pytest.approx(0.6)
    assert rows["products"]["ratio"] == pytest.approx(1.0)
    assert rows["gaps"]["measured_s"] == pytest.approx(0.02)  # a gap and the chip's own CPU
    assert found["measured_step_s"] == pytest.approx(0.1)
    unknown = comparison(document, breakdown, "decode", None)
    assert {row["measured_s"] for row in unknown["rows"]} == {None}


def test_every_term_of_the_cost_model_has_a_group() -> None:
    from dataclasses import fields

    from dse.cost.types import Breakdown

    assert {field.name for field in fields(Breakdown)} - {"draft"} == set(TERMS)


def test_points_are_what_calibration_reads(tmp_path: Path) -> None:
    calls = [
        _call((m, 1024), (2048, 1024), out=(m, 2048), time_s=time)
        for m in (1, 16, 256)
        for time in (2e-5, 3e-5, 9e-5)
    ]
    left_out = [
        _call((2, 8, 32), (2, 32, 16), out=(2, 8, 16)),
        _call((81920, 4096), (8192, 512), out=(4096, 512)),
        _call((8, 32), (32, 16), out=(8, 16), kind="GroupedMatmul"),
        replace(calls[0], n=5, inputs=calls[0].inputs[::-1]),
    ]
    rows = points_of(groups_of(_profile(*calls, *left_out)))
    assert [(row["m"], row["latency_s"], row["calls"]) for row in rows] == [
        (1, 3e-5, 3),
        (16, 3e-5, 3),
        (256, 3e-5, 3),
    ]
    path = tmp_path / "calibration.csv"
    path.write_text(points_csv(rows))
    (points,) = read_points(path)
    assert (points.operator, points.dtype, len(points)) == ("gemm", "bf16", 3)
    assert sorted(points.columns["k"]) == [1024] * 3

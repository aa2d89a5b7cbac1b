"""Every format's kernels, and every way in which a file can be none."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.errors import SpecError
from dse.profile import ascend, nsight, torch_trace
from dse.profile.bounds import memory_bound
from dse.profile.call import Profile
from dse.profile.detect import read_profile
from dse.profile.nsight import short_name

from . import exports


def _read(folder: Path, text: str | bytes, name: str = "export.csv") -> Profile:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_profile(path)


def _fault(folder: Path, text: str | bytes) -> str:
    with pytest.raises(SpecError) as raised:
        _read(folder, text)
    assert "export.csv" in str(raised.value)
    return str(raised.value)


def test_new_layout_of_ascend(tmp_path: Path) -> None:
    profile = _read(tmp_path, exports.ascend([exports.matmul(), exports.communication()]))
    product, collective = profile.calls
    assert (profile.tool, profile.n_steps) == ("ascend kernel_details", 1)
    assert product.time_s == pytest.approx(1478.18e-6)
    assert product.start_s == Decimal("1736413971.558972912")  # a float would lose it
    assert [tensor.shape for tensor in product.inputs] == [(4096, 12288), (4608, 12288)]
    assert (product.inputs[0].dtype, product.inputs[0].layout) == ("FLOAT16", "ND")
    assert memory_bound(product.counters) == pytest.approx(0.964 / 0.824)
    assert memory_bound(collective.counters) is None
    assert collective.inputs == ()


def test_old_layout_has_parts_and_no_mte2(tmp_path: Path) -> None:
    parts = {"aic_mac_fp16_ratio": "0.8", "aic_mac_int8_ratio": "0.05", "aiv_vec_fp32_ratio": "0.1"}
    columns = (*exports.HEAD, *exports.PARTS)
    profile = _read(tmp_path, exports.ascend([exports.matmul(**parts)], columns))
    (call,) = profile.calls
    assert call.counters.mac_frac == pytest.approx(0.85)
    assert call.counters.vec_frac == pytest.approx(0.1)
    assert call.counters.mte2_frac is None
    assert memory_bound(call.counters) is None  # not zero, and not unbounded
    assert any("no mte2 column" in note for note in profile.notes)


def test_one_core_for_both_and_the_profilers_own_memory_bound(tmp_path: Path) -> None:
    columns = (*exports.HEAD, "mac_ratio", "vec_ratio", "mte2_ratio", "memory_bound")
    ratios = {"mac_ratio": "0.2", "vec_ratio": "0.5", "mte2_ratio": "0.6"}
    profile = _read(
        tmp_path,
        exports.ascend(
            [
                exports.matmul(**ratios, memory_bound="N/A"),
                exports.matmul(**ratios, memory_bound="1.3", **{"Start Time(us)": "1"}),
            ],
            columns,
        ),
    )
    found = [memory_bound(call.counters) for call in profile.calls]
    assert found == [pytest.approx(0.6 / 0.5), pytest.approx(1.3)]


def test_op_summary_names_its_columns_otherwise(tmp_path: Path) -> None:
    text = exports.ascend([exports.matmul()])
    for old, new in (
        (",Name,Type,Accelerator Core", ",Op Name,OP Type,Task Type"),
        ("Start Time(us)", "Task Start Time(us)"),
        ("Duration(us)", "Task Duration(us)"),
        ("Wait Time(us)", "Task Wait Time(us)"),
    ):
        assert old in text
        text = text.replace(old, new)
    profile = _read(tmp_path, text)
    assert profile.tool == "ascend op_summary"
    assert profile.calls[0].wait_s == pytest.approx(1.5e-6)


def test_scalars_and_absent_tensors_are_left_out(tmp_path: Path) -> None:
    row = exports.matmul(**{"Input Shapes": '"4,2;;;8;"', "Output Shapes": '";"'})
    (call,) = _read(tmp_path, exports.ascend([row])).calls
    assert [tensor.shape for tensor in call.inputs] == [(4, 2), (8,)]
    assert call.outputs == ()


def test_nsys_trace_behind_notices(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "NOTICE: Existing SQLite export found",
            "Processing [x.sqlite] with [cuda_gpu_trace.py]...",
            exports.TRACE,
            exports.trace_row(1000, 500, "void flash::flash_fwd_kernel<Traits<64, 128>>(Params)"),
            exports.trace_row(1600, 100, "[CUDA memcpy Host-to-Device]"),
        ]
    )
    first, second = _read(tmp_path, text).calls
    assert (first.kind, first.time_s) == ("flash::flash_fwd_kernel", pytest.approx(5e-7))
    assert first.start_s == Decimal("0.000001000")
    assert second.core == "memory operation"


def test_nsys_units_stand_in_the_header(tmp_path: Path) -> None:
    header = exports.TRACE.replace("(ns)", "(us)")
    (call,) = _read(tmp_path, header + "\n" + exports.trace_row(1, 2, "k")).calls
    assert call.time_s == pytest.approx(2e-6)


def test_nsys_summary(tmp_path: Path) -> None:
    text = exports.SUMMARY + '\n60.0,7520000,88,1,1,1,1,0,"void gemm_kernel<4>(half const*)"\n'
    profile = _read(tmp_path, text)
    (call,) = profile.calls
    assert (call.n, call.time_s, call.start_s) == (88, pytest.approx(7.52e-3), None)
    assert any("gaps" in note for note in profile.notes)


def test_ncu_rows_of_one_launch(tmp_path: Path) -> None:
    def rows(launch: int, unit: str, duration: str) -> list[str]:
        head = f'"{launch}","void gemm<128>(float*)","1","7","GPU Speed Of Light Throughput"'
        return [
            f'{head},"Duration","{unit}","{duration}"',
            f'{head},"DRAM Throughput","%","62.5"',
            f'{head},"Compute (SM) Throughput","%","25.0"',
        ]

    text = ["==PROF== Connected to process 42", exports.NCU]
    text += rows(0, "us", "1,234.5") + rows(1, "ns", "900")
    first, second = _read(tmp_path, "\n".join(text)).calls
    assert (first.time_s, second.time_s) == (pytest.approx(1.2345e-3), pytest.approx(9e-7))
    assert (first.counters.mte2_frac, first.counters.mac_frac) == (0.625, 0.25)
    bad = "\n".join([exports.NCU, *rows(0, "furlong", "1")])
    assert "2:7: Metric Unit: found 'furlong'" in _fault(tmp_path, bad)


def test_torch_trace_finds_shapes_by_external_id(tmp_path: Path) -> None:
    operator = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "args": {
            "External id": 9,
            "Input Dims": [[16, 32], [32, 64], []],
            "Input type": ["c10::BFloat16", "c10::BFloat16", ""],
        },
    }
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2"}
    copy = {**exports.kernel_event(3, 1, "Memcpy HtoD"), "cat": "gpu_memcpy"}
    kernel = exports.kernel_event(1.5, 10, "nvjet_tst_64x8", **{"External id": 9})
    profile = _read(tmp_path, exports.torch([operator, step, kernel, copy]))
    product, copied = profile.calls
    assert (profile.tool, profile.n_steps) == ("torch.profiler trace", 1)
    assert [tensor.shape for tensor in product.inputs] == [(16, 32), (32, 64)]
    assert product.inputs[0].dtype == "BF16"
    assert (product.start_s, product.time_s) == (Decimal("0.0000015"), pytest.approx(1e-5))
    assert copied.core == "memory operation"


@pytest.mark.parametrize("value", ["x", None, -1, float("nan"), True])
def test_faulty_events_are_named(tmp_path: Path, value: Any) -> None:
    message = _fault(tmp_path, exports.torch([{"ph": "M"}, exports.kernel_event(1, value, "k")]))
    assert "traceEvents[1].dur: found" in message


def test_windows_lines_and_a_byte_order_mark_are_no_matter(tmp_path: Path) -> None:
    text = exports.ascend([exports.matmul()])
    assert "\r\n" in text
    plain = _read(tmp_path, text.replace("\r\n", "\n"))
    assert _read(tmp_path, b"\xef\xbb\xbf" + text.encode()).calls == plain.calls
    assert _read(tmp_path, text.encode("utf-16")).calls == plain.calls


def test_copies_of_a_row_count_once(tmp_path: Path) -> None:
    profile = _read(tmp_path, exports.ascend([exports.matmul()] * 3))
    assert len(profile.calls) == 1
    assert "2 copies of rows count once" in profile.notes


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"Duration(us)": ""}, "2:6: Duration(us): is empty"),
        ({"Duration(us)": "N/A"}, "2:6: Duration(us): is empty"),
        ({"Duration(us)": "fast"}, "Duration(us): found 'fast'"),
        ({"Duration(us)": "nan"}, "Duration(us): found nan"),
        ({"Duration(us)": "-3"}, "Duration(us): found -3"),
        ({"aic_mac_ratio": "inf"}, "aic_mac_ratio: found inf"),
        ({"Start Time(us)": "noon"}, "Start Time(us): found 'noon'"),
        ({"Duration(us)": "0"}, "holds no kernel that took time"),
    ],
)
def test_faulty_cells_are_named(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    assert said in _fault(tmp_path, exports.ascend([exports.matmul(**changed)]))


def test_many_faults_are_not_all_listed(tmp_path: Path) -> None:
    rows = [exports.matmul(**{"Duration(us)": "x"})] * 500
    with pytest.raises(SpecError) as raised:
        _read(tmp_path, exports.ascend(rows))
    assert len(raised.value.faults) == 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (b"\x00\xff\xfe\x80", "no text in UTF-8"),
        ("just words\n", "found 'just words'"),
        ("a,b,c\n1,2,3\n", "found columns a, b, c; expected Ascend's kernel_details.csv"),
        (exports.ascend([exports.matmul()]).replace(",", ";"), "separated by semicolons"),
        (exports.ascend([exports.matmul()]).replace(",", "\t"), "separated by tabs"),
        (exports.ascend([]), "holds no kernel"),
        (exports.ascend([exports.matmul()]) + "1,2\r\n", "found 2 cells; expected 17"),
        ("Name,Name,Type,Accelerator Core,Duration(us)\n", "column 'Name' twice"),
        ('{"ph": 1', "1:9: not JSON"),
        ('{"traceEvents": 3, "ph": 1}', "expected a list of events"),
        ('{"ph": ' + "[" * 100_000, "nested too deeply"),
        (exports.SUMMARY + "\n1,5,0,1,1,1,1,0,k\n", "Instances: found 0"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in _fault(tmp_path, text)


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    text = exports.ascend([exports.matmul()]).replace("Duration(us)", "Durations(us)")
    message = _fault(tmp_path, text)
    assert "kernel_details has Duration(us) too; did you mean 'Durations(us)'? Expected" in message


def test_no_start_times_no_gaps(tmp_path: Path) -> None:
    columns = [name for name in (*exports.HEAD, *exports.PIPES) if name != "Start Time(us)"]
    profile = _read(tmp_path, exports.ascend([exports.matmul()], columns))
    assert profile.calls[0].start_s is None
    assert any("gaps" in note for note in profile.notes)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void cutlass::device_kernel<Gemm<(int)1, 2>>(T1::Params)", "cutlass::device_kernel"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)",
         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        ("[CUDA memset]", "CUDA memset"),
        ("_fused_moe_kernel", "_fused_moe_kernel"),
        ("<unnamed>::k", "::k"),
        ("()", "()"),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


_CELL = st.text(st.characters(exclude_characters="\r\n"), max_size=12) | st.sampled_from(
    ["N/A", "", "0.5", "1e400", "-1", "nan", '"1,2;3"', "1736413971558972.912\t"]
)


@given(st.lists(st.lists(_CELL, min_size=17, max_size=17), max_size=4))
def test_whatever_the_cells_hold_there_are_kernels_or_faults(rows: Sequence[Sequence[str]]) -> None:
    columns = (*exports.HEAD, *exports.PIPES)
    text = exports.ascend([dict(zip(columns, row, strict=True)) for row in rows])
    try:
        profile = ascend.read(text, "f.csv")
    except SpecError:
        return
    assert profile is not None
    for call in profile.calls:
        assert 0 <= call.time_s < float("inf")
        ratio = memory_bound(call.counters)
        assert ratio is None or 0 <= ratio < float("inf")


@given(st.text(max_size=300))
def test_no_text_breaks_a_reader(text: str) -> None:
    for read in (
        torch_trace.read,
        ascend.read,
        nsight.read_trace,
        nsight.read_sum,
        nsight.read_ncu,
    ):
        for content in (text, '{"ph"' + text, exports.SUMMARY + "\n" + text):
            try:
                read(content, "f")
            except SpecError:
                continue

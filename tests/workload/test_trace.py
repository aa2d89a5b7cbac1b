"""Reading traces: every known layout, every repair reported, every broken file refused in words."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dse.errors import DseError, SpecError
from dse.workload import Trace, read_trace
from dse.workload.blocks import BlockLists, block_size
from dse.workload.trace_change import unit_change
from dse.workload.trace_text import MAX_LINE_BYTES
from tests.workload.traces import DATA, recorded

HEADER = "arrival_s,input_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "".join(f"{0.5 * i},{100 + i},{10 + i % 7}\n" for i in range(100))


def _read(folder: Path, text: str | bytes, name: str = "t.csv", **options: object) -> Trace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path, **options)  # type: ignore[arg-type]


def _refused(folder: Path, text: str | bytes, name: str = "t.csv") -> str:
    with pytest.raises(SpecError) as caught:
        _read(folder, text, name)
    return str(caught.value).replace(f"{folder}/", "")


def _times(header: str, times: list[object], row: str = "{},100,10\n") -> str:
    return header + "".join(row.format(time) for time in times)


def test_plain_csv(tmp_path: Path) -> None:
    trace = _read(tmp_path, HEADER + GOOD)
    assert len(trace.requests) == 100
    assert trace.requests.arrival_s[:3].tolist() == [0.0, 0.5, 1.0]
    assert trace.requests.isl[[0, -1]].tolist() == [100, 199]
    assert trace.report.time_unit == "s"
    assert trace.report.dropped == {}
    assert trace.has_arrivals


@pytest.mark.parametrize(
    ("header", "times", "unit"),
    [
        (AZURE, "2023-11-16 18:17:{:02d}.9799600", "date"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            "2024-05-10 00:00:{:02d}.009930+00:00",
            "date",
        ),
        (AZURE, "2024-05-10T02:00:{:02d}.5+02:00", "date"),
        (AZURE, "2024-05-10T00:00:{:02d}Z", "date"),
        ("arrival_time_ms,prompt_tokens,completion_tokens\n", "{}000", "ms"),
        ("timestampUs,isl,osl\n", "{}000000", "us"),
        ("time (ns),isl,osl\n", "{}000000000", "ns"),
        ("timestamp,isl,osl\n", "17000000{:02d}", "s"),
        ("timestamp,isl,osl\n", "17000000{:02d}000", "ms"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n", "{}", "s"),
    ],
)
def test_known_names_and_units(tmp_path: Path, header: str, times: str, unit: str) -> None:
    """One request a second, whatever it is called and however time is written."""
    options = {"time_unit": "s"} if header.startswith("arrived_at") else {}
    trace = _read(tmp_path, _times(header, [times.format(i) for i in range(60)]), **options)
    assert trace.report.time_unit == unit
    assert trace.requests.arrival_s == pytest.approx(np.arange(60.0), abs=1e-6)


def test_mooncake_jsonl_is_in_milliseconds(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 250 * i, "input_length": 512 * (i % 3) + 7, "output_length": 5}
        | {"hash_ids": list(range(i % 3 + 1))}
        for i in range(50)
    ]
    trace = _read(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    assert trace.report.time_unit == "ms"
    assert trace.requests.rate_requests_per_s == pytest.approx(4.0)
    assert trace.requests.block_tokens == 512
    assert trace.requests.blocks is not None
    assert trace.requests.blocks[2].tolist() == [0, 1, 2]


def test_burstgpt_is_in_seconds(tmp_path: Path) -> None:
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    text = header + "".join(f"{45 * i},ChatGPT,{100 + i},50,{150 + i},API log\n" for i in range(30))
    trace = _read(tmp_path, text)
    assert trace.report.time_unit == "s"
    assert trace.requests.arrival_s[1] == 45.0


def test_lengths_alone(tmp_path: Path) -> None:
    trace = _read(tmp_path, "type,input_tokens,output_tokens\nchat,5,6\ncode,7,8\n")
    assert not trace.has_arrivals
    assert trace.requests.arrival_s.tolist() == [0.0, 0.0]
    assert any("lengths alone" in note for note in trace.report.notes)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_comments_and_marks(tmp_path: Path, delimiter: str) -> None:
    text = "\ufeff# a source\n\n" + (HEADER + GOOD).replace(",", delimiter).replace("\n", "\r\n")
    assert len(_read(tmp_path, text).requests) == 100


def test_gzip_is_read_by_its_content(tmp_path: Path) -> None:
    packed = _read(tmp_path, gzip.compress((HEADER + GOOD).encode()), "packed.csv")
    assert packed.requests.isl.tolist() == _read(tmp_path, HEADER + GOOD).requests.isl.tolist()


def test_a_plausible_rate_decides_and_is_stated(tmp_path: Path) -> None:
    text = _times("timestamp,input_tokens,output_tokens\n", [0.2 * i for i in range(300)])
    report = _read(tmp_path, text).report
    assert report.time_unit == "s"
    assert "plausible (5 requests/s)" in report.time_unit_reason
    assert any("taken as s" in note for note in report.notes)


def test_an_uncertain_unit_is_refused_until_said(tmp_path: Path) -> None:
    text = _times("timestamp,input_tokens,output_tokens\n", [2 * i for i in range(300)])
    said = _refused(tmp_path, text)
    assert "in seconds 0.5 requests/s, in milliseconds 500 requests/s" in said
    for unit, rate in (("s", 0.5), ("ms", 500.0)):
        trace = _read(tmp_path, text, time_unit=unit)
        assert trace.requests.rate_requests_per_s == pytest.approx(rate)
        assert trace.report.time_unit_reason == "as asked for"


def test_dates_take_no_unit(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,5\n"
    with pytest.raises(SpecError, match="take no time unit"):
        _read(tmp_path, text, time_unit="s")


def test_rows_out_of_order_are_sorted_and_reported(tmp_path: Path) -> None:
    rows = [f"{(37 * i) % 100 * 0.5},{(37 * i) % 100 + 1},10\n" for i in range(100)]
    trace = _read(tmp_path, HEADER + "".join(rows))
    assert trace.requests.isl.tolist() == list(range(1, 101))
    assert trace.report.n_out_of_order == 36
    assert any("36 rows were out of order" in note for note in trace.report.notes)


def test_blocks_follow_their_rows_when_sorted(tmp_path: Path) -> None:
    header = "timestamp_ms,input_tokens,output_tokens,hash_ids\n"
    text = header + "2000,20,5,3-4\n1000,10,5,7\n3000,30,5,[8; 9; 10]\n0,16,5,'a'\n"
    blocks = _read(tmp_path, text, block_tokens=16).requests.blocks
    assert blocks is not None
    assert [one.tolist() for one in blocks] == [[-1], [7], [3, 4], [8, 9, 10]]
    assert [one.tolist() for one in blocks[1:3]] == [[7], [3, 4]]


@pytest.mark.parametrize(
    ("rows", "reason", "n"),
    [
        ("51,-5,5\n52,0,5\n53,5,0\n", "without prompt or output tokens", 3),
        ("nan,5,5\n51,nan,5\n", "unreadable", 2),
        ("51,5.5,5\n", "unreadable", 1),
        ("51,1e30,5\n", "unreadable", 1),
        ("51,5\n", "unreadable", 1),
        ("51,5,6,7\n", "unreadable", 1),
        (",5,6\n", "unreadable", 1),
        (HEADER, "repeated headers", 1),
    ],
)
def test_a_few_bad_rows_are_left_out_and_counted(
    tmp_path: Path, rows: str, reason: str, n: int
) -> None:
    trace = _read(tmp_path, HEADER + GOOD + rows)
    assert trace.report.dropped == {reason: n}
    assert len(trace.requests) == 100
    assert any(f"{n} " in note and "left out" in note for note in trace.report.notes)


def test_bad_json_rows_are_left_out(tmp_path: Path) -> None:
    row = json.dumps({"arrival_s": 1.5, "input_tokens": 5, "output_tokens": 6})
    bad = ["{", "[1]", '{"arrival_s": 1}', row.replace("5,", "1" + "0" * 400 + ",")]
    trace = _read(tmp_path, "\n".join([row] * 100 + bad), "t.jsonl")
    assert trace.report.dropped == {"unreadable": 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv: is empty"),
        ("\n \n# only\n", "is empty"),
        (HEADER, "t.csv: has no request"),
        (GOOD, "t.csv:1: has no header: its first row is 0.0, 100, 10"),
        (
            "arrival_s,inputtoken,foo\n1,2,3\n",
            "t.csv:1: has no column of prompt lengths",
        ),
        ("arrival_s,inputtoken,foo\n1,2,3\n", "('inputtoken' looks like it): ContextTokens"),
        ("arrival_s,inputtoken,foo\n1,2,3\n", "found columns: 'arrival_s', 'inputtoken', 'foo'"),
        ("a,isl,isl,osl\n", "the header has 'isl' twice"),
        ("arrival_s,timestamp,isl,osl\n", "'arrival_s' and 'timestamp' could both be the arrival"),
        ("arival_time,isl,osl\n1,2,3\n", "'arival_time' looks like the arrivals"),
        (HEADER + GOOD + "abc,5,5\n" * 20, "20 of 120 rows are unreadable"),
        (HEADER + GOOD + "abc,5,5\n" * 20, "t.csv:102: arrival_s: found 'abc'; expected a time"),
        (HEADER + GOOD + "51,-5,5\n" * 20, "20 of 120 rows are without prompt or output tokens"),
        (HEADER + GOOD + '"52,5,5\n' + GOOD, "t.csv:102: a quote that its line does not close"),
        (HEADER + "1,2\0,3\n", "t.csv:2: found a NUL byte"),
        ((HEADER + GOOD).encode() + b"50,caf\xe9,3\n", "t.csv:102:7: found byte 0xe9"),
        ((HEADER + GOOD).encode("utf-16"), "is UTF-16 text"),
        (random.Random(0).randbytes(5000), "expected text in UTF-8"),
        (b"PAR1\x15\x04", "is a Parquet file"),
        (b"PK\x03\x04", "is a zip archive"),
        (gzip.compress((HEADER + GOOD).encode())[:-20], "the gzip data is damaged or cut short"),
        (HEADER + "1" * (MAX_LINE_BYTES + 1), "t.csv:2: a line of more than 8 MB"),
        ('[{"timestamp": 1}]', "as a JSON array does"),
        ('{"timestamp": ', "its first line is not a JSON object"),
        ('{"isl": 5, "osl": 5}\n{"osl": 5}\n', "t.csv:2: has no 'isl'"),
        ('{"isl": 5, "osl": 5}\n' + '{"a":' * 50_000, "t.csv:2: is not a JSON object"),
        ('{"isl": 5, "osl": 5, "hash_ids": {}}\n', "t.csv:1: hash_ids: found {}"),
        ("isl,osl,hash_ids\n5,5,5-1\n", "t.csv:2: hash_ids: found '5-1'"),
        ("isl,osl,hash_ids\n5,5,1 2 3\n900,5,4\n", "say the block size"),
        (
            "TIMESTAMP,isl,osl\n2023-11-16 18:00:00,5,5\n17,5,5\n",
            "t.csv:3: column 'TIMESTAMP' mixes dates and plain numbers",
        ),
        (
            "TIMESTAMP,isl,osl\n2023-11-16 18:00:00,5,5\n2023-11-16 18:00:01Z,5,5\n",
            "t.csv:3: some dates name a time zone",
        ),
        (_times("time,isl,osl\n", [1.7e12, 1.7e9] * 9), "mixes units"),
        (_times("time_s,isl,osl\n", [1.7e12 + i for i in range(9)]), "looks like milliseconds"),
        (_times(HEADER, [*range(50), *range(1_700_000, 1_700_050)]), "mixes units: one gap"),
        (_times("time,isl,osl\n", [5] * 30), "holds one number, 5, for all 30 requests"),
    ],
)
def test_broken_traces_are_refused_in_words(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in _refused(tmp_path, text)


def _two_units(factor: float, at: int = 500, n: int = 1000) -> list[object]:
    """Seconds, and from a row on another unit."""
    times = np.random.default_rng(0).exponential(0.5, n).cumsum()
    return [*np.round(times[:at], 3), *np.round(times[at:] * factor, 6)]


@pytest.mark.parametrize(
    ("factor", "at", "said"),
    [(1e3, 500, "1,000 times as short"), (1e3, 60, "times as short"), (1e-3, 700, "as long")],
)
def test_two_units_of_time_are_refused_with_their_row(
    tmp_path: Path, factor: float, at: int, said: str
) -> None:
    for header in (HEADER, "timestamp,isl,osl\n"):
        text = _times(header, _two_units(factor, at))
        refused = _refused(tmp_path, text)
        assert f"the unit appears to change at row {at + 1}: " in refused
        assert said in refused
        assert "--time-unit UNIT takes all rows as of one unit" in refused


def test_two_units_of_time_can_be_forced(tmp_path: Path) -> None:
    text = _times(HEADER, _two_units(1e3))
    trace = _read(tmp_path, text, time_unit="ms")
    assert trace.report.time_unit_reason == "as asked for"
    assert len(trace.requests) == 1000


def test_gaps_of_another_scale_are_warned_about(tmp_path: Path) -> None:
    """A service that wakes up: nothing goes on in another unit, so it may be true."""
    gaps = np.random.default_rng(0).exponential(1.0, 600) * np.repeat([1.0, 1e-3], 300)
    trace = _read(tmp_path, _times(HEADER, list(gaps.cumsum())))
    [warned] = [note for note in trace.report.notes if note.startswith("warning")]
    assert "from there on the gaps are 1,000 times as short" in warned
    assert "row 301" in warned


@given(st.integers(0, 10_000), st.floats(0.2, 8.0), st.integers(45, 2000))
@example(3720, 8.0, 337)  # twenty gaps of next to nothing before the first long one
def test_bursts_are_no_change_of_unit(seed: int, cv: float, n: int) -> None:
    gaps = np.random.default_rng(seed).gamma(1 / cv**2, cv**2, n)
    change = unit_change(gaps.cumsum())
    assert change is None or not change.certain


def test_a_recording_is_no_change_of_unit() -> None:
    for name in ("azure2023_conv", "mooncake_conversation"):
        assert unit_change(recorded(name).requests.arrival_s) is None


def test_bare_names_are_lengths_where_no_other_column_is(tmp_path: Path) -> None:
    assert _read(tmp_path, "input,output\n5,6\n").requests.osl.tolist() == [6]
    text = "output,prompt,output_tokens,input_tokens\nhello,hi,6,5\n"
    trace = _read(tmp_path, text)
    assert trace.requests.isl.tolist() == [5]
    assert trace.report.columns == {"prompt": "input_tokens", "output": "output_tokens"}


def test_no_file_and_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(HEADER)
    for path, said in (
        (tmp_path / "trase.csv", "did you mean 'trace.csv'"),
        (tmp_path, "is a folder"),
        (Path("/dev/null"), "is not a regular file"),
        (tmp_path / "nul\0", "not a path"),
    ):
        with pytest.raises(SpecError) as caught:
            read_trace(path)
        assert said in str(caught.value)


def test_columns_may_be_named(tmp_path: Path) -> None:
    text = "when,n_in,osl\n" + GOOD
    given = {"arrival": "when", "prompt": "n_in"}
    assert len(_read(tmp_path, text, columns=given, time_unit="s").requests) == 100
    with pytest.raises(SpecError, match=r"no column is named 'n_on'; did you mean 'n_in'"):
        _read(tmp_path, text, columns={"prompt": "n_on"})


def test_only_the_first_rows_are_read(tmp_path: Path) -> None:
    assert len(_read(tmp_path, HEADER + GOOD, limit=7).requests) == 7
    rows = [json.dumps({"isl": 5, "osl": i + 1}) for i in range(9)]
    assert _read(tmp_path, "\n".join(rows), limit=3).requests.osl.tolist() == [1, 2, 3]


def test_batches_join_without_a_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _read(tmp_path, HEADER + GOOD + "x,5,5\n")
    monkeypatch.setattr("dse.workload.trace_rows._BATCH", 7)
    pieces = _read(tmp_path, HEADER + GOOD + "x,5,5\n")
    assert pieces.requests.isl.tolist() == whole.requests.isl.tolist()
    assert pieces.report == whole.report


def test_a_coarse_clock_is_spread_and_stated() -> None:
    """The recording's clock ticks every 3 s; without spreading, batches of ten would come."""
    trace = recorded("mooncake_conversation")
    assert trace.report.clock_tick_s == pytest.approx(3.0)
    assert any("clock ticks every 3 s" in note for note in trace.report.notes)
    gaps = np.diff(trace.requests.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)
    again = read_trace(DATA / "mooncake_conversation.csv.gz")
    assert np.array_equal(again.requests.arrival_s, trace.requests.arrival_s)


def test_whole_seconds_are_spread_too(tmp_path: Path) -> None:
    """Half a request a second: few seconds hold two, and those did not come at once."""
    arrival_s = np.random.default_rng(0).exponential(2.0, 4000).cumsum()
    rows = "".join(f"{int(time)},100,10\n" for time in arrival_s)
    trace = _read(tmp_path, HEADER + rows)
    assert trace.report.clock_tick_s == 1.0
    assert len(np.unique(trace.requests.arrival_s)) == 4000
    exact = arrival_s - arrival_s[0]
    assert np.abs(trace.requests.arrival_s - exact).max() <= 2.0


def test_a_fine_clock_is_left_alone(tmp_path: Path) -> None:
    assert recorded("azure2023_conv").report.clock_tick_s is None
    regular = _read(tmp_path, HEADER + GOOD)
    assert regular.report.clock_tick_s is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"", HEADER.encode(), b'{"isl": 5, "osl": 5}\n'):
        with tempfile.NamedTemporaryFile(suffix=".csv") as file, suppress(DseError):
            file.write(start + data)
            file.flush()
            trace = read_trace(file.name)
            assert len(trace.requests) == trace.report.n_requests > 0


@given(st.integers(0, 12), st.lists(st.integers(1, 5000), min_size=30, max_size=60))
def test_block_size_is_found_from_lengths(power: int, lengths: list[int]) -> None:
    size = 2**power
    isl = np.array([*lengths, 40 * size, 40 * size + 1, 41 * size - 1])
    for counts in (-(-isl // size), isl // size):
        assert block_size(isl, counts) == size


def test_odd_block_sizes_are_found_or_left_open() -> None:
    isl = np.arange(1, 2000)
    assert block_size(isl, -(-isl // 100)) == 100
    assert block_size(np.array([500]), np.array([5])) is None  # 100 to 124 all fit
    assert block_size(np.array([500]), np.array([0])) is None


def test_block_lists_behave_as_lists() -> None:
    lists = BlockLists.of([[1, 2], [], [3]])
    assert [one.tolist() for one in lists] == [[1, 2], [], [3]]
    assert lists[-1].tolist() == [3]
    assert [one.tolist() for one in lists.take(np.array([2, 0]))] == [[3], [1, 2]]
    assert lists.shifted(np.array([10, 20, 30])).flat.tolist() == [11, 12, 33]
    with pytest.raises(IndexError):
        lists[3]

"""Reading YAML: what is read, where it stands, and every way a file can be broken."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import Fault, SpecError
from dse.spec import yaml_source
from dse.spec.document import Place, locate
from dse.spec.plain import dump_yaml
from dse.spec.yaml_source import MAX_BYTES, MAX_VALUES, parse_text, parse_value, read_document


def plain(text: str) -> Any:
    document = parse_text(text, "t.yaml")
    assert document.faults == ()
    return document.root.plain()


def stopped(text: str) -> Fault:
    """The last fault of text that cannot be read on."""
    with pytest.raises(SpecError) as caught:
        parse_text(text, "t.yaml")
    return caught.value.faults[-1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80e9", 80e9),
        ("1e-3", 1e-3),
        ("-.5", -0.5),
        ("7", 7),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        # Numbers, booleans and dates of YAML 1.1 that people mean as text.
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("! 5", "5"),
        ("!!str 5", "5"),
        ("50 ms", "50 ms"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    read = plain(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_special_floats_are_read_as_such_for_a_field_to_refuse() -> None:
    assert plain("a: .inf")["a"] == float("inf")
    assert plain("a: -.Inf")["a"] == float("-inf")
    assert plain("a: .nan")["a"] != plain("a: .nan")["a"]


def test_aliases_are_copied_and_point_at_what_they_repeat() -> None:
    document = parse_text("a: &x {b: 1}\nc: *x\n", "t.yaml")
    assert document.root.plain() == {"a": {"b": 1}, "c": {"b": 1}}
    assert locate(document.root, ["c", "b"]) == (Place("t.yaml", 1, 11), "c.b")


def test_places_count_from_one_in_nested_blocks() -> None:
    root = parse_text("a:\n  b:\n    - 1\n    - {c: 2}\n", "t.yaml").root
    assert locate(root, ["a", "b", 0]) == (Place("t.yaml", 3, 7), "a.b[0]")
    assert locate(root, ["a", "b", 1, "c"]) == (Place("t.yaml", 4, 11), "a.b[1].c")
    assert locate(root, ["a", "b"], of_key=True) == (Place("t.yaml", 2, 3), "a.b")
    assert locate(root, ["a", "b", 1, "c", "[key]"]) == (Place("t.yaml", 4, 8), "a.b[1].c")


def test_missing_key_is_placed_at_the_block_that_lacks_it() -> None:
    root = parse_text("a:\n  b: 1\n", "t.yaml").root
    assert locate(root, ["a", "x", "y", 2]) == (Place("t.yaml", 2, 3), "a.x.y[2]")


def test_parts_that_were_never_written_are_left_out_of_a_path() -> None:
    root = parse_text("isl: 5\n", "t.yaml").root
    assert locate(root, ["isl", "mean"]) == (Place("t.yaml", 1, 6), "isl")
    assert locate(root, ["isl", 0]) == (Place("t.yaml", 1, 6), "isl")


def test_every_duplicate_key_is_reported_with_the_first_line() -> None:
    document = parse_text("a: 1\na: 2\nb:\n  - {c: 1, c: 2}\n", "t.yaml")
    assert [str(fault) for fault in document.faults] == [
        "t.yaml:2:1: key 'a' is written twice; first on line 1",
        "t.yaml:4:12: b[0]: key 'c' is written twice; first on line 4",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/object/apply:os.system ['true']", "tag !!python/object/apply:os.system"),
        ("a: !custom 3", "tag !custom"),
        ("a: !!set {x}", "tag !!set"),
        ("a: &x {b: 1}\nc: {<<: *x}", "merge keys (<<)"),
        ("? [a]\n: 1", "as a key"),
        ("? {a: 1}\n: 1", "as a key"),
    ],
)
def test_constructs_that_are_refused(text: str, said: str) -> None:
    (fault,) = parse_text(text, "t.yaml").faults
    assert said in fault.message
    assert fault.line is not None


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a: [1, 2\nb: 3", 2, 2, "not valid YAML: while parsing a flow sequence"),
        ("a:\n\tb: 1", 2, 1, "cannot start any token"),
        ("a: 'x", 1, 6, "unexpected end of stream"),
        ("a: b: c", 1, 5, "not allowed"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a: &x [*x]", 1, 8, "refers to what contains it"),
        ("a: *nowhere", 1, 4, "refers to no anchor before it"),
        ("- " * 41 + "x", 1, 81, "levels deep"),
    ],
)
def test_unreadable_text_is_a_fault_with_line_and_column(
    text: str, line: int, column: int, said: str
) -> None:
    fault = stopped(text)
    assert (fault.file, fault.line, fault.column) == ("t.yaml", line, column)
    assert said in fault.message


def test_faults_before_a_syntax_error_are_kept() -> None:
    with pytest.raises(SpecError) as caught:
        parse_text("a: 1\na: 2\nb: [", "t.yaml")
    assert len(caught.value.faults) == 2


def test_multiplying_aliases_are_stopped_before_they_expand() -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "aliases expand to more than" in stopped("\n".join(["a0: &a0 x", *levels])).message


def test_aliases_cannot_build_depth_either() -> None:
    chain = "\n".join(["- &a0 [x]", *(f"- &a{i} [*a{i - 1}]" for i in range(1, 100))])
    assert "levels deep" in stopped(chain).message


@pytest.mark.parametrize("item", ["[]", "{}", "1"])
def test_number_of_values_is_bounded(item: str) -> None:
    text = f"[{','.join([item] * (MAX_VALUES + 1))}]"
    assert f"more than {MAX_VALUES} values" in stopped(text).message


@pytest.mark.parametrize("text", ["a: \0", "a: \ud800", "a: \x07"])
def test_characters_that_are_not_text_are_faults(text: str) -> None:
    assert stopped(text).message


def test_pure_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {b: [1, 'two', 3e4]}\nc: *x\nd: |\n  text\n"
    fast = parse_text(text, "t.yaml")
    monkeypatch.setattr(yaml_source, "_Loader", yaml.SafeLoader)
    assert parse_text(text, "t.yaml") == fast
    assert "not valid YAML" in stopped("a: [1\nb: 2").message


def file_fault(path: str | Path) -> Fault:
    with pytest.raises(SpecError) as caught:
        read_document(path)
    (fault,) = caught.value.faults
    return fault


def test_document_knows_its_file_and_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    document = read_document(path)
    assert document.root.plain() == {"a": 1}
    assert document.root.key_places["a"] == Place(str(path), 1, 1)
    assert document.sha256 is not None
    assert len(document.sha256) == 64


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    assert file_fault(tmp_path).message == "is a folder; expected a YAML file"


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").touch()
    fault = file_fault(tmp_path / "studdy.yaml")
    assert fault.message == "no such file; did you mean 'study.yaml'?"
    assert file_fault(tmp_path / "no" / "x.yaml").message == "no such file"


def test_size_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(100_000_000)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("opened a file that is too large")

    monkeypatch.setattr("builtins.open", never)
    assert file_fault(path).message == "100.0 MB is too large; a file may have 5 MB"


def test_file_that_grows_while_it_is_read_is_still_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grown.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 10))
    small = tmp_path / "small"
    small.touch()
    before = os.stat(small)
    monkeypatch.setattr("os.stat", lambda *_, **__: before)
    assert "too large" in file_fault(path).message


def test_device_is_not_a_file() -> None:
    assert file_fault("/dev/zero").message == "is not a regular file; expected a YAML file"


def test_other_encodings_are_faults_with_a_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    fault = file_fault(path)
    assert (fault.line, fault.column) == (2, 7)
    assert fault.message == "found byte 0xe9; expected text in UTF-8"


def test_unreadable_file_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.touch()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    assert file_fault(path).message == "cannot be read: permission denied"


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_impossible_paths_are_faults(path: str) -> None:
    assert len(str(file_fault(path))) < 500


def test_value_of_an_override_stands_at_one_place() -> None:
    place = Place("--set")
    node = parse_value("{a: [1, 2 ms]}", place)
    assert node.plain() == {"a": [1, "2 ms"]}
    assert locate(node, ["a", 1]) == (place, "a[1]")


_TOKENS = ["a", ": ", "\n", "  ", "- ", "[", "]", "{", "}", ",", "&x ", "*x", "!!int ", "'", '"']
_ODD_TOKENS = ["|", ">", "#", "? ", "---\n", "...\n", "%", "\t", "1e5", "<<", "\x00", "\u2028"]
_fragments = st.lists(st.sampled_from([*_TOKENS, *_ODD_TOKENS]), max_size=40).map("".join)


@settings(max_examples=300)
@given(st.text(max_size=60) | _fragments)
def test_any_text_is_a_document_or_a_spec_error(text: str) -> None:
    with suppress(SpecError):
        parse_text(text, "t.yaml").root.plain()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_a_spec_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    with suppress(SpecError):
        read_document(path)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["1e5", "0o17", "on", "~", "<<", "=", ".5", "1:30", "\x85", "2026-01-01"])
)
_data = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_data)
def test_dumped_data_reads_back_the_same(data: Any) -> None:
    read = parse_text(dump_yaml({"x": data})).root.plain()["x"]
    assert read == data
    assert repr(read) == repr(data)  # 1 is not 1.0, and 0.0 is not -0.0

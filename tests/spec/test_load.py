"""Loading: files, text and data alike, overrides, and all faults at once in the file's order."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import SpecError
from dse.spec.load import load, load_spec
from dse.spec.objective import Objective
from dse.spec.space import Space
from dse.spec.study import Study, load_study
from dse.spec.workload import Workload
from tests.spec.samples import fault, faults, study


def test_path_text_and_data_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    text = "isl: 1024\nosl: {mean: 128, cv: 1}\n"
    path.write_text(text)
    wanted = load_spec(Workload, {"isl": 1024, "osl": {"mean": 128, "cv": 1}})
    assert load_spec(Workload, path) == wanted
    assert load_spec(Workload, str(path)) == wanted
    assert load_spec(Workload, text) == wanted
    assert load_spec(Workload, "{isl: 1024, osl: {mean: 128, cv: 1}}") == wanted


def test_fault_reads_file_line_column_path_message(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("isl: 1024\nosl:\n  mean: 12 GB\n")
    assert str(fault(Workload, path)) == (
        f"{path}:3:9: osl.mean: found '12 GB', which is a size; "
        "expected a number of tokens, a number in tokens, or one with tokens"
    )


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    text = """\
osl: 0
isl: {mean: x, csv: 1}
concurrency: -1
isl: 3
prefix_hit_frac: 2
name: 7
"""
    found = faults(Workload, text)
    assert [(one.line, one.column, one.path) for one in found] == [
        (1, 6, "osl"),
        (2, 13, "isl.mean"),
        (2, 16, "isl.csv"),
        (3, 14, "concurrency"),
        (4, 1, ""),
        (5, 18, "prefix_hit_frac"),
        (6, 7, "name"),
    ]


@pytest.mark.parametrize("text", ["\n", "# nothing\n\n", "---\n", "~\n", "''\n"])
def test_empty_text_says_what_belongs_there(text: str) -> None:
    found = fault(Workload, text)
    assert "is empty; expected a mapping with name, description" in found.message


@pytest.mark.parametrize(
    ("text", "what"), [("- 1\n- 2", "a list of 2"), ("hello\n", "'hello'"), ("5\n", "5")]
)
def test_root_is_a_mapping(text: str, what: str) -> None:
    found = fault(Workload, text)
    assert (found.line, found.column, found.path) == (1, 1, "")
    assert found.message.startswith(f"found {what}; expected a mapping with name, ")


def test_duplicate_keys_are_reported_beside_faulty_values() -> None:
    found = faults(Workload, "isl: 5\nisl: 6\nosl: 0\n")
    assert [one.line for one in found] == [2, 3]


def test_overrides_validate_like_the_file() -> None:
    space = load_spec(
        Space,
        {"attention_tp": [1, 2, 4], "mode": "disaggregated"},
        [
            ("max_batch", "{log2: [1, 4]}"),
            ("attention_tp[2]", "8"),
            ("prefill.workers", "[1, 2]"),
            ("kv_dtype", "fp8"),
        ],
    )
    assert space.max_batch == (1, 2, 4)
    assert space.attention_tp == (1, 2, 8)
    assert space.prefill.workers == (1, 2)
    assert space.kv_dtype == ("fp8",)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("max_batch", "0", "--set: max_batch: found 0; expected a whole number from 1 to 1048576"),
        ("max_bach", "8", "--set: max_bach: unknown key 'max_bach'; did you mean 'max_batch'?"),
        ("prefill.worker", "8", "--set: prefill.worker: unknown key 'worker'; did you mean"),
        ("max_batch.x", "8", "--set: max_batch.x: cannot take '.x': 4 stands there"),
        ("attention_tp[5]", "8", "--set: attention_tp[5]: cannot take [5]: the list has 2 values"),
        ("max_batch[0]", "8", "--set: max_batch[0]: cannot take [0]: what stands there is not a"),
        ("max_batch", "[1, 2", "--set: max_batch: not valid YAML"),
        ("max_batch", "{a: 1, a: 2}", "--set: max_batch: key 'a' is written twice"),
        ("", "8", "--set: found ''; expected a path such as space.max_batch"),
        (".max_batch", "8", "--set: .max_batch: found '.max_batch'; expected a path"),
        ("max_batch[", "8", "--set: max_batch[: found 'max_batch['; expected a path"),
        ("max_batch..x", "8", "--set: max_batch..x: found 'max_batch..x'; expected a path"),
        ("[0]", "8", "--set: [0]: found '[0]'; expected a path"),
        ("attention_tp[1]x", "8", "--set: attention_tp[1]x: found"),
    ],
)
def test_faulty_override_is_one_fault_at_set(path: str, value: str, text: str) -> None:
    base = {"max_batch": 4, "attention_tp": [1, 2], "mode": "disaggregated"}
    assert str(fault(Space, base, (path, value))).startswith(text)


def test_override_does_not_reach_through_an_alias() -> None:
    text = "mode: disaggregated\nprefill: &p {workers: 1}\ndecode: *p\n"
    space = load_spec(Space, text, [("decode.workers", "7")])
    assert (space.prefill.workers, space.decode.workers) == ((1,), (7,))


def test_null_override_takes_a_key_back() -> None:
    base = {"isl": 1, "osl": 2, "arrivals": {"rate": 1}}
    workload = load_spec(Workload, base, [("arrivals", "null"), ("concurrency", "4")])
    assert workload.concurrency == 4


def test_faults_of_overrides_come_last() -> None:
    found = faults(Space, "pp: 0\nmoe_ep: 0\n", ("max_batch", "0"), ("x", "1"))
    assert [str(one).split(":")[0] for one in found] == ["<text>", "<text>", "--set", "--set"]


def test_files_that_were_read_are_listed_with_their_fingerprints(tmp_path: Path) -> None:
    goal = tmp_path / "goal.yaml"
    goal.write_text("maximize: requests_per_s\n")
    path = tmp_path / "s.yaml"
    path.write_text(
        "study: s\nmodel: m\nhardware: h100\nengine: vllm\n"
        "workload: {isl: 1, osl: 2}\nobjective: goal.yaml\n"
    )
    inputs = load(Study, path).inputs
    assert [Path(one.path).name for one in inputs] == ["s.yaml", "h100-sxm.yaml", "goal.yaml"]
    assert len({one.sha256 for one in inputs}) == 3


def test_faults_of_a_file_that_is_referred_to_name_that_file(tmp_path: Path) -> None:
    goal = tmp_path / "goal.yaml"
    goal.write_text("maximize: requests_per_s\npromises:\n  ttft_p95: 2 s\n")
    path = tmp_path / "s.yaml"
    path.write_text("objective: goal.yaml\nstudy: 5\n")
    found = faults(Study, path)
    assert str(found[-1]).startswith(f"{goal}:3:3: promises.ttft_p95: unknown key 'ttft_p95'")
    assert found[0].file == str(path)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["h100", "poisson", "50 ms", "../x", "x.yaml", "a\0b/", "interactive-chat"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*Space.model_fields, *Workload.model_fields, "log2", "range", "mean"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.sampled_from([*Study.model_fields, "x"]), _values)
def test_any_value_of_any_key_validates_or_is_a_spec_error(key: str, value: Any) -> None:
    with suppress(SpecError):
        load_study(study(**{key: value}))


@settings(max_examples=200)
@given(
    st.sampled_from([Space, Workload, Objective]),
    st.dictionaries(
        st.sampled_from([*Space.model_fields, *Workload.model_fields, *Objective.model_fields]),
        _values,
        max_size=6,
    ),
)
def test_any_block_validates_or_every_fault_has_a_message(model: Any, data: Any) -> None:
    try:
        load_spec(model, data)
    except SpecError as error:
        shown = str(error)
    else:
        return
    assert shown.count("\n") + 1 >= 1
    assert "Traceback" not in shown
    assert "pydantic" not in shown
    assert "function-" not in shown


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_override_is_applied_or_a_spec_error(path: str, value: str) -> None:
    with suppress(SpecError):
        load_spec(Space, {"max_batch": 4}, [(path, value)])


def test_a_number_of_a_named_target_is_no_override_of_a_study() -> None:
    study = {"study": "x", "hardware": ["h100-sxm"]}
    with pytest.raises(SpecError) as failed:
        load_spec(Study, study, [("hardware.memory_bandwidth_bytes_per_s", "4 TB/s")])
    [message] = [one.message for one in failed.value.faults if one.file == "--set"]
    assert "a list stands there" in message
    assert "a copy of its file, or by `dse grid --axis`" in message

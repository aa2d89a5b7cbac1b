"""Files and names that no command should choke on: exit 2, one clear message, no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
FLAGS = ("--hardware", "h100-sxm", "--isl", "100", "--osl", "10")


def _refused(ran: Any, *messages: str) -> None:
    assert ran.code == 2, ran.err
    assert "Traceback" not in ran.err
    assert "fault of dse" not in ran.err
    for message in messages:
        assert message in ran.err


@pytest.mark.parametrize("command", ["run", "eval", "explain"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study: x\nmodel: [\n", "study.yaml:3:1: not valid YAML"),
        ("", "is empty"),
        ("[1, 2]", "expected a mapping"),
        ("study: x\nstudy: y\n", "study"),
        (BOMB, "alias"),
        ("study: \xff", "study.yaml"),
        ("a: " + "[" * 2000, "study.yaml"),
    ],
    ids=["malformed", "empty", "list", "twice", "bomb", "latin-1", "deep"],
)
def test_faulty_study(run: Run, tmp_path: Path, command: str, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes(text.encode("latin-1"))
    _refused(run(command, path), message)


@pytest.mark.parametrize("command", ["run", "validate"])
def test_enormous_file_is_refused_at_once(run: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "study.yaml"
    with path.open("wb") as stream:
        stream.truncate(100_000_000)
    _refused(run(command, path), "study.yaml", "too large")


@pytest.mark.parametrize("command", ["run", "eval", "explain", "validate"])
def test_folder_instead_of_a_file(run: Run, tmp_path: Path, command: str) -> None:
    _refused(run(command, tmp_path), "is a folder")


@pytest.mark.parametrize("command", ["run", "eval", "explain"])
def test_unknown_study_lists_the_nearest(run: Run, command: str) -> None:
    _refused(run(command, "quikstart"), "did you mean 'quickstart'")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "llama", "hidden_size": Infinity}', "hidden_size"),
        ('{"model_type": "llama", "hidden_size": -64}', "hidden_size"),
        ('{"model_type": "llama", "hidden_size": "64"', "is not JSON"),
        ("[]", "expected an object"),
        ('{"hidden_size": 64}', "config.json"),
    ],
)
def test_faulty_model(run: Run, tmp_path: Path, config: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    _refused(run("eval", "--model", path, *FLAGS), message)


def test_unknown_model_lists_the_nearest(run: Run) -> None:
    _refused(run("eval", "--model", "Llama-2-7bb", *FLAGS), "did you mean", "Llama-2-7b")


def test_faults_come_as_a_document_too(run: Run) -> None:
    ran = run("eval", "--model", "Llama-2-7B", *FLAGS, "--tp", "0", "--json")
    assert ran.code == 2
    assert ran.document["schema"] == "dse.error/1"
    assert ran.document["error"]["faults"][0]["path"] == "--tp"


@pytest.mark.parametrize("solver", ["fastest", "annealing"])
def test_unknown_solver(run: Run, solver: str) -> None:
    _refused(run("run", "quickstart", "--solver", solver), "unknown solver", "enumerate")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--requests", "1"), "'--requests': found '1'; expected a whole number from 2 to"),
        (("--requests", "many"), "'--requests': found 'many'; expected a whole number"),
        (("--seed", "-1"), "'--seed': found '-1'; expected a whole number from 0 to 4294967295"),
        (("--warmup", "2"), "'--warmup': found '2'; expected a number from 0 to 0.9"),
        (("--warmup", "nan"), "'--warmup': found 'nan'"),
    ],
)
def test_numbers_out_of_range_name_what_was_found(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    ran = run("simulate", "quickstart", *arguments)
    assert ran.code == 2
    assert said in ran.err


def test_override_of_nothing(run: Run) -> None:
    _refused(run("run", "quickstart", "--set", "space.bach=3"), "--set: space.bach", "max_batch")


def test_design_of_another_kind(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "design.json"
    path.write_text(json.dumps({"schema": "dse.validate/1", "rows": 3}))
    _refused(run("eval", "quickstart", "--design", path), "holds no design")
    _refused(run("explain", "quickstart", "--design", tmp_path), "is a folder")
    _refused(run("eval", "--design", path), "--design needs the study")


def test_unknown_target(run: Run) -> None:
    _refused(run("eval", "quickstart", "--target", "h200"), "--target: found 'h200'", "h100-sxm")

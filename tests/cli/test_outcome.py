"""Exit codes, messages and tracebacks, by what a sub-command does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import typer

from dse.cli import outcome
from dse.cli.app import with_common_options
from dse.cli.options import Overrides, Seed, parse_overrides
from dse.cli.outcome import guard
from dse.cli.session import Session
from dse.errors import DseError, Fault, InfeasibleError, SpecError

Capture = pytest.CaptureFixture[str]


def _raising(error: BaseException) -> Callable[[], int | None]:
    def work() -> int | None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DseError("bad"), 2),
        (SpecError.of("bad"), 2),
        (InfeasibleError("bad"), 3),
        (RuntimeError("bad"), 1),
        (FileNotFoundError("bad"), 1),
        (MemoryError(), 1),
        (RecursionError(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_of_an_error(error: BaseException, code: int, capsys: Capture) -> None:
    assert guard(Session(), _raising(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (outcome.CHECK_FAILED, 4)])
def test_exit_code_of_a_return(returned: int | None, code: int) -> None:
    assert guard(Session(), lambda: returned) == code


def test_our_fault_says_so(capsys: Capture) -> None:
    guard(Session(), _raising(KeyError("lost")))
    err = capsys.readouterr().err
    assert "this is a fault of dse; run with --debug for the traceback" in err
    assert "KeyError: 'lost'" in err


@pytest.mark.parametrize("error", [KeyError("lost"), DseError("bad")])
def test_debug_shows_the_traceback(error: Exception, capsys: Capture) -> None:
    guard(Session(debug=True), _raising(error))
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "run with --debug" not in err


def test_faults_reach_a_script(capsys: Capture) -> None:
    faults = [Fault("a.yaml", 3, 7, "space.pp", "found 0"), Fault("a.yaml", None, None, "", "x")]
    assert guard(Session(json=True), _raising(SpecError(faults))) == 2
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["schema"] == "dse.error/1"
    assert document["exit_code"] == 2
    assert document["error"]["faults"][0] == {
        "file": "a.yaml",
        "line": 3,
        "column": 7,
        "path": "space.pp",
        "message": "found 0",
    }
    assert "a.yaml:3:7: space.pp: found 0" in captured.err


def test_typers_own_exits_pass() -> None:
    with pytest.raises(typer.Exit):
        guard(Session(), _raising(typer.Exit(5)))


def _app(function: Callable[..., int | None]) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(with_common_options(function))
    return app


def test_own_and_common_options_arrive() -> None:
    seen: dict[str, object] = {}

    def command(
        session: Session, study: str, overrides: Overrides = None, seed: Seed = None
    ) -> int:
        """Do it."""
        pairs = parse_overrides(overrides)
        seen.update(session=session, study=study, overrides=pairs, seed=seed)
        return 4

    arguments = ["s.yaml", "--set", "a.b=1", "--set", "c=x=y", "--seed", "7", "--json", "-vv"]
    with pytest.raises(SystemExit) as stopped:
        _app(command)(arguments)
    assert stopped.value.code == 4
    assert seen["session"] == Session(json=True, verbosity=2)
    assert (seen["study"], seen["seed"]) == ("s.yaml", 7)
    assert seen["overrides"] == [("a.b", "1"), ("c", "x=y")]


@pytest.mark.parametrize("seed", ["-1", "4294967296", "x"])
def test_seed_out_of_range_is_wrong_usage(seed: str, capsys: Capture) -> None:
    def command(session: Session, seed: Seed = None) -> None:
        """Do it."""

    with pytest.raises(SystemExit) as stopped:
        _app(command)(["--seed", seed])
    assert stopped.value.code == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "a.b", "=1", " =1"])
def test_override_needs_path_and_value(text: str) -> None:
    with pytest.raises(SpecError, match="PATH=VALUE"):
        parse_overrides([text])


@pytest.mark.parametrize(("verbosity", "heard"), [(-1, False), (0, True), (1, True)])
def test_quiet_silences_notes(verbosity: int, heard: bool, capsys: Capture) -> None:
    Session(verbosity=verbosity).note("reading [h100]")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ("reading [h100]\n" if heard else "")

"""Running the command line in this process and in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.cli.app import main


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one strict JSON document."""

        def refuse(constant: str) -> Any:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines long enough that no sentence or table cell is folded, whatever runs the tests."""
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `dse` with the arguments, in this process."""

    def run_dse(*arguments: str | Path) -> Ran:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = stopped.value.code
        assert isinstance(code, int)
        return Ran(code, captured.out, captured.err)

    return run_dse


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run this interpreter on the tested package, in a process of its own."""

    def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        home = str(Path(dse.__file__).parents[1])
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": home, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run_python

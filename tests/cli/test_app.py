"""The frame that all sub-commands share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.cli.app import COMMANDS

Run = Callable[..., Any]
Python = Callable[..., subprocess.CompletedProcess[str]]

_HEAVY = "{'jax', 'matplotlib', 'numpy', 'yaml'}"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([n, "-h"] for n in COMMANDS)])
def test_help_loads_nothing_heavy(python: Python, arguments: list[str]) -> None:
    done = python(
        "-c",
        "import sys\n"
        "from dse.cli.app import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as done:\n"
        "    assert done.code == 0, done.code\n"
        f"heavy = {_HEAVY} & set(sys.modules)\n"
        "sys.exit(f'it pulled in {sorted(heavy)}' if heavy else 0)",
    )
    assert done.returncode == 0, done.stderr


def test_only_the_named_command_is_loaded(python: Python) -> None:
    done = python(
        "-c",
        "import sys\n"
        "from dse.cli.app import build\n"
        "build(['list', 'metrics'])\n"
        "sys.exit('dse.cli.list' not in sys.modules or 'dse.cli.check' in sys.modules)",
    )
    assert done.returncode == 0, done.stderr


def test_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"dse {dse.__version__}\n")


def test_help_names_every_command(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert f"  {name} " in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    for option in ("--json", "--quiet", "--verbose", "--debug"):
        assert option in ran.out


@pytest.mark.parametrize(
    "arguments",
    [[], ["lits"], ["list"], ["show", "metrics"], ["list", "metrics", "--no-such-option"]],
)
def test_wrong_usage_is_2(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert "Usage: dse" in ran.out + ran.err


def test_module_and_program_are_the_same(python: Python) -> None:
    done = python("-m", "dse", "--version")
    assert (done.returncode, done.stdout) == (0, f"dse {dse.__version__}\n")


def test_reader_that_leaves_is_no_failure(python: Python) -> None:
    """`dse list metrics | head -1`, with a reader that is gone before anything is written."""
    done = python(
        "-c",
        "import os, subprocess, sys\n"
        "reader, writer = os.pipe()\n"
        "os.close(reader)\n"
        "command = [sys.executable, '-m', 'dse', *sys.argv[1:]]\n"
        "done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)\n"
        "sys.stderr.write(done.stderr)\n"
        "sys.exit(done.returncode)",
        "list",
        "metrics",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_terminal_without_unicode_is_served(python: Python) -> None:
    done = python("-m", "dse", "list", "metrics", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "ttft_mean_s" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_full_disk_is_not_our_fault(python: Python, extra: list[str]) -> None:
    done = python(
        "-c",
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'dse', 'list', 'metrics', *sys.argv[1:]]\n"
        "with open('/dev/full', 'w') as full:\n"
        "    sys.exit(subprocess.run(command, stdout=full).returncode)",
        *extra,
    )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write: No space left on device\n"

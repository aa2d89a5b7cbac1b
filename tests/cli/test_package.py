"""What `import dse` promises."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib import import_module

import pytest

import dse

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_version_is_semantic() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", dse.__version__)


def test_import_is_light(python: Python) -> None:
    done = python(
        "-c",
        "import sys, dse\n"
        "heavy = {'jax', 'matplotlib', 'pydantic', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'import dse pulled in {sorted(heavy)}' if heavy else 0)",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(dse.__all__) - {"__version__"}))
def test_public_name_resolves(name: str) -> None:
    assert getattr(dse, name) is getattr(import_module(dse._PUBLIC[name]), name)
    assert name in dir(dse)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        dse.no_such_thing  # noqa: B018 - the access is what is tested

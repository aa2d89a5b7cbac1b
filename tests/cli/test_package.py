"""What `import dse` promises."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dse


def test_version_is_semantic() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", dse.__version__)


def test_import_is_light() -> None:
    code = (
        "import sys, dse\n"
        "heavy = {'jax', 'matplotlib', 'pydantic', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'import dse pulled in {sorted(heavy)}' if heavy else 0)"
    )
    home = Path(dse.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(dse.__all__) - {"__version__"}))
def test_public_name_resolves(name: str) -> None:
    assert getattr(dse, name) is getattr(import_module(dse._PUBLIC[name]), name)
    assert name in dir(dse)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        dse.no_such_thing  # noqa: B018 - the access is what is tested

"""Differentiable design-space optimizer for LLM inference serving."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Name -> module that holds it. Loaded on first use, so that `import dse` costs nothing and pulls in
# neither jax nor a plotting library.
_PUBLIC = {
    "DseError": "dse.errors",
    "evaluate": "dse.study",
    "load_model": "dse.arch",
    "run": "dse.study",
}

__all__ = ["DseError", "__version__", "evaluate", "load_model", "run"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module the first time it is asked for."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})

"""The catalogue: YAML files by kind and name, wherever this installation keeps them.

An installed package carries them inside `dse/catalog/`; in a checkout `hardware/`, `objectives/`
and `studies/` stand beside `dse/`.
"""

from __future__ import annotations

from dse.catalog.files import (
    KINDS,
    Entry,
    InputFile,
    Kind,
    entries,
    fingerprint,
    folder,
    is_path,
    names,
    resolve,
)

__all__ = [
    "KINDS",
    "Entry",
    "InputFile",
    "Kind",
    "entries",
    "fingerprint",
    "folder",
    "is_path",
    "names",
    "resolve",
]

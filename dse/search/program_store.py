"""Programs kept on disk, so that a process need not trace and write them again.

A file holds a program's text and its constants: plain data, checked against a digest and against
its own name. Functions are those that `numpy_rules` names, classes those that are loaded. A name
stands for all that a program depends on: the sources of this package, the versions of what traces
it, the function, the structure and types of its arguments. Whoever may write to the folder decides
what runs, as with compiled programs: a folder that others may write to is not used.

Whatever goes wrong here is no error: the program is traced as if there were no store.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

import dse
from dse.search.numpy_source import Source
from dse.search.tree_text import UnknownStructureError, name_of, plain_text, text_of

# Beyond this, those that were not used for longest go: some 50 kB each.
_MOST_FILES: Final = 1000
_SUFFIX: Final = ".program"
# Sources as young as this process may not be those that it has loaded.
_MARGIN_S: Final = 2.0
_STARTED_S: Final = time.time() - time.process_time()
_folder: Path | None = None


def keep_in(folder: Path | None) -> None:
    """Keep programs in a folder, made if need be; None, as at first: keep none."""
    global _folder
    _folder = None
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _is_private(folder):
            _folder = folder


def _is_private(folder: Path) -> bool:
    """Whether nobody else may write to it, where the system knows owners."""
    found = folder.stat()
    return not hasattr(os, "geteuid") or (
        found.st_uid == os.geteuid() and not found.st_mode & 0o022
    )


def key_of(function: Any, static: tuple[Any, ...], args: tuple[Any, ...]) -> str | None:
    """What a program depends on, as a digest; None where it cannot be kept.

    Kept are functions of this package that are found by their names, of static arguments that are
    plain or such functions themselves.
    """
    origin = _origin() if _folder is not None else None
    if origin is None:
        return None
    try:
        leaves, structure = jax.tree.flatten(args)
        about = [
            _function_text(function),
            [_function_text(one) if callable(one) else plain_text(one) for one in static],
            text_of(structure),
            [_type_of(leaf) for leaf in leaves],
        ]
    except UnknownStructureError:
        return None
    return hashlib.sha256((origin + json.dumps(about)).encode()).hexdigest()


def _function_text(function: Any) -> list[str]:
    name = name_of(function)
    if name is None or not name.startswith(f"{dse.__name__}."):
        raise UnknownStructureError("no function of this package that is found by its name")
    return ["function", name]


def _type_of(leaf: Any) -> list[Any]:
    weak = getattr(leaf, "weak_type", type(leaf) in (bool, int, float))
    dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    return [str(dtype), [str(size) for size in np.shape(leaf)], bool(weak)]


@cache
def _origin() -> str | None:
    """The sources of this package and what traces them; None where it cannot be said."""
    digest = hashlib.sha256()
    home = Path(dse.__file__).parent
    try:
        sources = sorted(home.rglob("*.py"))
        for path in sources:
            if path.stat().st_mtime > _STARTED_S - _MARGIN_S:
                return None
            digest.update(f"{path.relative_to(home)}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        tracers = [f"{one} {version(one)}" for one in ("jax", "jaxlib", "numpy")]
    except (OSError, ImportError):  # unreadable, or installed without saying which version
        return None
    return "\n".join([digest.hexdigest(), sys.version, *tracers]) if sources else None


def save(key: str | None, part: str, document: Any) -> None:
    """Keep one part of a program: what JSON can hold."""
    if _folder is None or key is None:
        return
    path = _path(_folder, key, part)
    packed = zlib.compress(json.dumps(document).encode(), 1)
    with suppress(OSError):
        handle, name = tempfile.mkstemp(dir=_folder, suffix=".tmp")  # for the owner alone
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_digest(path, packed) + packed)
            os.replace(name, path)
        except BaseException:  # an interrupt too must leave nothing behind
            with suppress(OSError):
                os.unlink(name)
            raise
        _drop_old(_folder)


def load(key: str | None, part: str) -> Any:
    """What `save` kept; None where there is nothing, or not the whole of it."""
    if _folder is None or key is None:
        return None
    path = _path(_folder, key, part)
    with suppress(OSError, ValueError, zlib.error):
        written = path.read_bytes()
        digest, packed = written[:_DIGEST_BYTES], written[_DIGEST_BYTES:]
        if digest == _digest(path, packed):
            with suppress(OSError):
                os.utime(path)
            return json.loads(zlib.decompress(packed))
    return None


_DIGEST_BYTES: Final = hashlib.sha256().digest_size


def _path(folder: Path, key: str, part: str) -> Path:
    return folder / f"{hashlib.sha256(f'{key} {part}'.encode()).hexdigest()}{_SUFFIX}"


def _digest(path: Path, packed: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + packed).digest()


def _drop_old(folder: Path) -> None:
    with os.scandir(folder) as found:
        ages = [(one.stat().st_mtime, one.path) for one in found]
    for _, path in sorted(ages)[: max(len(ages) - _MOST_FILES, 0)]:
        with suppress(OSError):
            os.unlink(path)


def document_of(source: Source) -> Any:
    """A program for `save`. Raises UnknownStructureError where text cannot say all of it."""
    if source.operations:
        raise UnknownStructureError("operations that no rule knows have no text")
    constants = {name: _constant(value) for name, value in source.constants.items()}
    return {"text": source.text, "name": source.name, "constants": constants}


def source_in(document: Any) -> Source:
    """The program of a document. Raises UnknownStructureError where it is none."""
    try:
        constants = {name: _value(*one) for name, one in document["constants"].items()}
        return Source(document["text"], document["name"], constants, {})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UnknownStructureError(str(error)) from error


def _constant(value: Any) -> list[Any]:
    if isinstance(value, np.dtype) and value.kind in "biuf":
        return ["dtype", value.str]
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        kind = "array" if isinstance(value, np.ndarray) else "number"
        values = base64.b64encode(value.tobytes()).decode()
        return [kind, value.dtype.str, value.shape, values]
    if isinstance(value, tuple) and all(isinstance(one, slice) for one in value):
        ends = [[one.start, one.stop, one.step] for one in value]
        return ["slices", [[None if one is None else int(one) for one in cut] for cut in ends]]
    raise UnknownStructureError(f"{type(value).__name__} is no constant of programs")


def _value(kind: str, *rest: Any) -> Any:
    if kind == "dtype":
        return np.dtype(rest[0])
    if kind == "slices":
        return tuple(slice(*ends) for ends in rest[0])
    dtype, shape, values = rest
    array = np.frombuffer(base64.b64decode(values), np.dtype(dtype)).reshape(shape).copy()
    return array if kind == "array" else array[()]

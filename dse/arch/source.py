"""Reading JSON from disk: plain files of sane size, with faults that point into the file."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from dse.arch.reader import read_config
from dse.arch.types import ModelArch
from dse.errors import Fault, SpecError

_LARGEST_FILE_BYTES: Final = 5_000_000
_CONFIG: Final = "config.json"
_SIDECAR: Final = "hf_quant_config.json"


def read_model_files(path: Path, name: str | None = None) -> ModelArch:
    """Read a `config.json`, or a directory that holds one, with the sidecar beside it.

    Raises `SpecError` whose faults carry the file and, where found, the line.
    """
    file = path / _CONFIG if path.is_dir() else path
    text = read_text(file)
    config = parse(text, str(file))
    beside = file.parent / _SIDECAR
    sidecar = parse(read_text(beside), str(beside)) if beside.is_file() else None
    try:
        return read_config(config, name or _name(file), sidecar)
    except SpecError as error:
        raise SpecError([_placed(fault, str(file), text) for fault in error.faults]) from None


def read_text(file: Path) -> str:
    """The text of a regular UTF-8 file of at most 5 MB."""
    shown = str(file)
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SpecError.of("is not a regular file", file=shown)
        if status.st_size > _LARGEST_FILE_BYTES:
            raise SpecError.of(
                f"has {status.st_size} bytes, at most {_LARGEST_FILE_BYTES} are read", file=shown
            )
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError.of("is not UTF-8 text", file=shown) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "cannot be read"
        raise SpecError.of(f"cannot be read: {reason}", file=shown) from None


def parse(text: str, file: str) -> Mapping[str, object]:
    """A JSON object; `Infinity` is accepted as Hugging Face writes it, duplicate keys are not."""
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        out = dict(items)
        if len(out) < len(items):
            keys = Counter(key for key, _ in items)
            duplicates.extend(key for key, n in keys.items() if n > 1)
        return out

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg}"
        raise SpecError([Fault(file, error.lineno, error.colno, "", message)]) from None
    except RecursionError:
        raise SpecError.of("is nested too deeply", file=file) from None
    except ValueError:
        raise SpecError.of("holds a number with too many digits", file=file) from None
    if not isinstance(value, dict):
        raise SpecError.of("expected an object at the top of the file", file=file)
    if duplicates:
        faults = [Fault(file, None, None, key[:60], "stands twice") for key in duplicates[:20]]
        raise SpecError([_placed(fault, file, text) for fault in faults])
    return value


def _name(file: Path) -> str:
    """What to call a model read from a file: its folder, or the file's own name."""
    parents = [part.name for part in file.absolute().parents]
    for name in parents:
        if name.startswith("models--"):  # a folder of the hub's cache
            return name.removeprefix("models--").replace("--", "/")
    if file.name == _CONFIG:
        return parents[0]
    return file.stem.removesuffix("_config").replace("--", "/")


def _placed(fault: Fault, file: str, text: str) -> Fault:
    """The fault with its file and the line on which its field first stands."""
    key = re.sub(r"\[\d+\]$", "", fault.path).rsplit(".", 1)[-1]
    found = re.search(rf'"{re.escape(key)}"\s*:', text) if key else None
    if found is None:
        return replace(fault, file=file)
    start = found.start()
    line = text.count("\n", 0, start) + 1
    return replace(fault, file=file, line=line, column=start - text.rfind("\n", 0, start))

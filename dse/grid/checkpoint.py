"""What a killed grid leaves behind: one file, whole or absent, that says what it belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dse.errors import DseError, one_of
from dse.report.atomic import write_text

NAME: Final = "checkpoint.json"
FORMAT: Final = "dse.grid-checkpoint/2"


class CheckpointError(DseError):
    """A checkpoint that is damaged or belongs to another grid."""


def digest(data: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write(folder: Path, fingerprint: Mapping[str, str], state: Any) -> None:
    """Replace the checkpoint of a folder. Raises WriteError, the old one left as it was."""
    body = {"format": FORMAT, "fingerprint": dict(fingerprint), "state": state}
    write_text(folder / NAME, json.dumps({**body, "sha256": digest(body)}) + "\n")


def read(folder: Path, fingerprint: Mapping[str, str]) -> Any:
    """The state that the folder's checkpoint holds; None without one.

    Raises CheckpointError where it is damaged or where its grid is another one.
    """
    path = folder / NAME
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}{_ADVICE}") from error
    body = _body(path, text)
    found = body["fingerprint"]
    if found != dict(fingerprint):
        differs = [key for key in fingerprint if found.get(key) != fingerprint[key]]
        names = one_of(differs or ["its parts"], "and")
        raise CheckpointError(f"{path}: is of another grid; what differs: {names}{_ADVICE}")
    return body["state"]


def damaged(folder: Path, how: str) -> CheckpointError:
    """The error of a checkpoint whose checksum fits but whose content does not."""
    return CheckpointError(f"{folder / NAME}: is damaged: {how}{_ADVICE}")


_ADVICE: Final = "; give another --out, or delete the folder to price the grid from its beginning"


def _body(path: Path, text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
        written = body.pop("sha256")
        if body["format"] != FORMAT:
            raise CheckpointError(
                f"{path}: has the format {body['format']!r:.60}; expected {FORMAT}{_ADVICE}"
            )
        fits = written == digest(body)
    except (ValueError, KeyError, AttributeError, TypeError):
        fits = False
    if not fits:
        raise damaged(path.parent, "its checksum does not fit")
    assert isinstance(body, dict)
    return body

"""Files that are either whole or not there: a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from dse.errors import DseError

_UMASK_PROBE = 0o666


class WriteError(DseError):
    """A place that cannot be written: missing rights, a full disk, a file where a folder is due."""


def require_writable(folder: str | os.PathLike[str]) -> None:
    """Make a folder and try a file in it, before any work. Raises WriteError with the reason."""
    here = Path(folder)
    try:
        here.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(f"{here}: cannot write: {reason}") from error


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text as it is (no newline translation); raises WriteError, see `write_bytes`."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file, and the folders above it, in one step; until then the old content stays.

    The bytes go to a temporary file in the same folder, reach the disk, and take the name at once.
    Raises WriteError, with nothing half-written, when any of that fails.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(f"{target}: cannot write: {reason}") from error
    return target


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".tmp"
    )
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, _mode_for(target))  # mkstemp's own 0600 would hide the file from others
        os.replace(name, target)
    except BaseException:  # an interrupt too must leave nothing behind
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(target.parent)


def _mode_for(target: Path) -> int:
    """Keep the rights of the file being replaced; a new one gets what the umask leaves."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return _UMASK_PROBE & ~umask


def _sync_folder(folder: Path) -> None:
    """Make the new name durable too, where the system lets a folder be opened (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

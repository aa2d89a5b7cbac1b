"""Opening a file that a user names: a folder, a device or no file at all is a SpecError."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dse.errors import SpecError, did_you_mean


@contextmanager
def regular_file(
    path: str | os.PathLike[str], expected: str
) -> Iterator[tuple[str, os.stat_result]]:
    """(the file as errors name it, its status) of a regular file, to be read inside.

    Raises SpecError for what is none, with the nearest name beside it, and for whatever the system
    refuses while it is read; `expected` says what the file should be.
    """
    file = f"{os.fspath(path):.300}"
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise SpecError.of(f"is a folder; expected {expected}", file=file)
        if not stat.S_ISREG(status.st_mode):
            raise SpecError.of(f"is not a regular file; expected {expected}", file=file)
        yield file, status
    except FileNotFoundError:
        raise SpecError.of(f"no such file{_nearest_file(Path(path))}", file=file) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SpecError.of(f"cannot be read: {reason}", file=file) from None
    except ValueError as error:  # a path with a NUL character
        if "null" not in str(error):
            raise
        raise SpecError.of(f"not a path: {file!r:.60}") from None


def _nearest_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()][:10_000]
    except OSError:
        return ""
    return did_you_mean(path.name, names)

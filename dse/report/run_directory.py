"""The folder that a run leaves behind: whole, or as it was before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from dse.report.atomic import WriteError, require_writable, write_bytes

MANIFEST: Final = "manifest.json"


def check_run_directory(folder: str | os.PathLike[str]) -> None:
    """Refuse, before any work, a folder that cannot be written or that holds something else.

    Allowed are a new folder, an empty one and the folder of an earlier run. Raises WriteError.
    """
    here = Path(folder)
    if here.exists() and not here.is_dir():
        raise WriteError(f"{here}: cannot write: a file of that name is there")
    if here.is_dir() and not (here / MANIFEST).exists() and any(here.iterdir()):
        raise WriteError(f"{here}: is not empty and not the folder of an earlier run")
    require_writable(here if here.is_dir() else here.absolute().parent)


def write_run_directory(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Write all files (name -> bytes) into a fresh folder that then takes the name at once.

    What an earlier run left under that name is gone; on a failure it stays. A folder that cannot be
    renamed, such as a mount point, is filled in place, its manifest last. Raises WriteError.
    """
    target = Path(folder).absolute()
    check_run_directory(target)
    try:
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:40]}."))
    except OSError:
        return _fill(target, files)
    try:
        _fill(fresh, files)
        fresh.chmod(0o755)
        if not _take_name(fresh, target):
            _fill(target, files)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _fill(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A reader that finds the manifest finds all that it lists."""
    with suppress(OSError):
        (folder / MANIFEST).unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: name == MANIFEST):
        write_bytes(folder / name, files[name])
    return folder


def _take_name(fresh: Path, target: Path) -> bool:
    """Whether the folder has the name now. Folders cannot be exchanged in one step everywhere: the
    old one steps aside first."""
    aside: Path | None = None
    try:
        if target.exists():
            aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:40]}.old."))
            target.rename(aside / "run")
        fresh.rename(target)
    except OSError:
        if aside is not None and (aside / "run").exists():
            (aside / "run").rename(target)
        return False
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    return True

"""Files are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dse.errors import DseError
from dse.report.atomic import WriteError, write_bytes, write_text


def test_writes_bytes_as_they_are_and_makes_folders(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a" / "b" / "designs.csv", "x,y\r\n1,µ\n")
    assert path.read_bytes() == "x,y\r\n1,µ\n".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["designs.csv"]


def test_replaces_and_keeps_rights(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    path.chmod(0o640)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_new_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_bytes(tmp_path / "new", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_where_a_folder_is_due_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"file/out\.json: cannot write") as caught:
        write_text(tmp_path / "file" / "out.json", "{}")
    assert isinstance(caught.value, DseError)
    assert caught.value.exit_code == 2


def test_a_folder_in_the_place_of_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(WriteError):
        write_text(tmp_path / "out", "{}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_unwritable_folder_is_a_users_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="ermission denied"):
        write_text(tmp_path / "out", "{}")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]

"""A checkpoint is whole, says what it belongs to, and is refused where it does not fit."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from dse.grid import checkpoint
from dse.grid.checkpoint import CheckpointError
from dse.report.atomic import WriteError

PRINT = {"the study": "a", "the axes": "b"}
STATE = {"parts": [{"next_block": 3, "top": [[0.1, 7]]}], "files": []}


def test_it_is_read_back(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path, PRINT) is None
    checkpoint.write(tmp_path, PRINT, STATE)
    assert checkpoint.read(tmp_path, PRINT) == STATE


@pytest.mark.parametrize("cut", [0, 1, 40, -2])
def test_half_a_file_is_refused(tmp_path: Path, cut: int) -> None:
    checkpoint.write(tmp_path, PRINT, STATE)
    path = tmp_path / checkpoint.NAME
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"damaged.*--out"):
        checkpoint.read(tmp_path, PRINT)


def test_a_changed_number_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, PRINT, STATE)
    path = tmp_path / checkpoint.NAME
    path.write_text(path.read_text().replace('"next_block": 3', '"next_block": 4'))
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read(tmp_path, PRINT)


@pytest.mark.parametrize("text", ["null", "[]", "7", '{"sha256": 1}', "\udcff"])
def test_other_content_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / checkpoint.NAME).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path, PRINT)


def test_a_foreign_one_says_what_differs(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, PRINT, STATE)
    with pytest.raises(CheckpointError, match=r"another grid; what differs: the axes;"):
        checkpoint.read(tmp_path, {**PRINT, "the axes": "c"})


def test_one_of_another_format_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, PRINT, STATE)
    path = tmp_path / checkpoint.NAME
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "format": "dse.grid-checkpoint/0"}))
    with pytest.raises(CheckpointError, match="format"):
        checkpoint.read(tmp_path, PRINT)


def test_a_full_disk_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.write(tmp_path, PRINT, STATE)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match="No space left"):
            checkpoint.write(tmp_path, PRINT, {**STATE, "files": [1]})
    assert checkpoint.read(tmp_path, PRINT) == STATE
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]

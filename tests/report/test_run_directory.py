"""A run's folder is whole, or as it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.report import run_directory
from dse.report.atomic import WriteError
from dse.report.run_directory import MANIFEST, check_run_directory, write_run_directory

FILES = {MANIFEST: b"{}", "designs.csv": b"1", "figures/pareto.svg": b"<svg/>"}


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_writes_all_and_leaves_no_scrap(tmp_path: Path) -> None:
    written = write_run_directory(tmp_path / "a" / "run", FILES)
    assert _names(written) == set(FILES)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["run"]
    assert written.stat().st_mode & 0o777 == 0o755


def test_replaces_an_earlier_run_whole(tmp_path: Path) -> None:
    write_run_directory(tmp_path / "run", FILES)
    write_run_directory(tmp_path / "run", {MANIFEST: b"new"})
    assert _names(tmp_path / "run") == {MANIFEST}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_run_directory(tmp_path / "run", FILES)
    assert _names(tmp_path / "run") == set(FILES)


def test_what_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(WriteError, match="not the folder of an earlier run"):
        check_run_directory(tmp_path / "mine")
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="a file of that name"):
        write_run_directory(tmp_path / "file", FILES)
    with pytest.raises(WriteError, match="cannot write"):
        check_run_directory(tmp_path / "file" / "below")


def test_failure_leaves_the_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run_directory(tmp_path / "run", FILES)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_directory, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        write_run_directory(tmp_path / "run", {MANIFEST: b"new"})
    assert (tmp_path / "run" / MANIFEST).read_bytes() == b"{}"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_folder_that_cannot_be_renamed_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mount").mkdir()
    monkeypatch.setattr(run_directory, "_take_name", lambda fresh, target: False)
    write_run_directory(tmp_path / "mount", FILES)
    assert _names(tmp_path / "mount") == set(FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["mount"]

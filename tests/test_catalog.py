"""The catalogue: files are found by name, alias and path, and misses name the nearest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dse import catalog
from dse.catalog import files
from dse.errors import SpecError
from dse.spec.load import load_named
from dse.spec.workload import Workload


@pytest.mark.parametrize("kind", ["hardware", "objectives", "studies", "workloads"])
def test_every_kind_has_files_that_answer_to_their_name(kind: catalog.Kind) -> None:
    found = catalog.entries(kind)
    assert found
    assert [entry.name for entry in found] == sorted(entry.name for entry in found)
    for entry in found:
        assert catalog.resolve(kind, entry.name) == entry.path
        assert entry.path.is_file()


def test_alias_and_case_do_not_matter() -> None:
    wanted = catalog.resolve("hardware", "h100-sxm")
    assert catalog.resolve("hardware", "H100_SXM") == wanted
    assert catalog.resolve("hardware", " h100 ") == wanted


def test_unknown_name_lists_the_nearest_and_how_to_see_all() -> None:
    with pytest.raises(SpecError) as caught:
        catalog.resolve("hardware", "h200-smx")
    assert "no hardware is named 'h200-smx'" in str(caught.value)
    assert "did you mean 'h200-sxm'" in str(caught.value)
    assert "`dse list hardware` shows all" in str(caught.value)


def test_far_name_still_says_how_to_see_all() -> None:
    with pytest.raises(SpecError, match=r"no objective is named 'zzzzzz'; `dse list objectives`"):
        catalog.resolve("objectives", "zzzzzz")


def test_path_is_taken_from_the_base_folder(tmp_path: Path) -> None:
    assert catalog.resolve("hardware", "./my.yaml", tmp_path) == tmp_path / "my.yaml"
    assert catalog.resolve("hardware", "my.yaml", tmp_path) == tmp_path / "my.yaml"
    assert catalog.resolve("hardware", "/etc/my.yaml", tmp_path) == Path("/etc/my.yaml")
    assert catalog.resolve("hardware", tmp_path / "x") == tmp_path / "x"


def test_fingerprint_is_the_sha256_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"name: a\r\n")
    assert catalog.fingerprint(path).sha256 == hashlib.sha256(b"name: a\r\n").hexdigest()


def test_faulty_file_is_listed_under_its_file_name(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "good.yaml").write_text("name: good\naliases: [fine, 3]\ndescription: ' x '")
    found = files._entries("hardware", tmp_path)
    assert [entry.name for entry in found] == ["broken", "good", "list"]
    assert (found[1].aliases, found[1].description) == (("fine",), "x")


def test_installed_package_keeps_its_files_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "dse" / "catalog"
    (inside / "hardware").mkdir(parents=True)
    (tmp_path / "hardware").mkdir()
    monkeypatch.setattr(files, "_HERE", inside)
    assert catalog.folder("hardware") == inside / "hardware"
    (inside / "hardware").rmdir()
    assert catalog.folder("hardware") == tmp_path / "hardware"
    assert catalog.folder("studies") is None
    assert catalog.entries("studies") == ()


@pytest.mark.parametrize("name", catalog.names("workloads"))
def test_shipped_workload_is_valid_and_sourced(name: str) -> None:
    workload = load_named(Workload, "workloads", name).spec
    assert workload.name == name
    assert len(workload.source) > 40
    assert len(workload.description) > 20

"""`dse schema` and `dse doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from dse.cli.cache import cache_folder, is_writable, use_compilation_cache
from dse.search import program_store
from dse.spec.schema import SPECS

Run = Callable[..., Any]


@pytest.mark.parametrize("kind", SPECS)
def test_schema_of_a_kind(run: Run, kind: str) -> None:
    document = run("schema", kind).document
    assert document["$schema"].startswith("https://json-schema.org/")
    assert document["additionalProperties"] is False
    assert set(document["properties"]) == set(SPECS[kind].model_fields)


def test_schema_of_all(run: Run) -> None:
    document = run("schema").document
    assert document["schema"] == "dse.schema/1"
    assert set(document) == {"schema", *SPECS}


def test_unknown_schema_is_wrong_usage(run: Run) -> None:
    ran = run("schema", "studdy")
    assert ran.code == 2
    assert "study" in ran.err


def test_doctor_finds_this_installation_sound(run: Run) -> None:
    ran = run("doctor", "--json")
    document = ran.document
    assert (ran.code, document["problems"]) == (0, [])
    assert document["packages"]["jax"] == jax.__version__
    assert len(document["devices"]) == len(jax.devices())
    assert document["catalogue"]["hardware"]["n_entries"] > 0


def test_doctor_for_people(run: Run) -> None:
    ran = run("doctor")
    assert ran.code == 0
    assert f"jax {jax.__version__}" in ran.out


def test_doctor_finds_what_is_wrong(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    monkeypatch.setenv("DSE_CACHE_DIR", str(occupied / "below"))

    def no_devices() -> list[Any]:
        raise RuntimeError("no driver")

    monkeypatch.setattr(jax, "devices", no_devices)
    ran = run("doctor", "--json")
    assert ran.code == 2
    assert [text.split(":")[0] for text in ran.document["problems"]] == [
        "jax finds no device",
        f"{occupied / 'below'} cannot be written",
    ]


def test_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DSE_CACHE_DIR", raising=False)
    assert cache_folder() == tmp_path / "dse"
    monkeypatch.setenv("DSE_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert is_writable(cache_folder())


@pytest.fixture
def jax_settings() -> Iterator[None]:
    """Those of the cache, put back afterwards."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_enable_compilation_cache",
    )
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("on", [True, False])
def test_programs_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jax_settings: None, on: bool
) -> None:
    monkeypatch.setattr(program_store, "_folder", None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("DSE_CACHE_DIR", str(tmp_path / "cache"))
    jax.config.update("jax_enable_compilation_cache", on)
    use_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "cache")
    assert (tmp_path / "cache").is_dir()
    program_store.save("a key", "part", "it")
    assert program_store.load("a key", "part") == ("it" if on else None)
    assert (tmp_path / "cache" / "programs").exists() == on


def test_programs_are_made_each_time_where_none_can_be_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jax_settings: None
) -> None:
    monkeypatch.setattr(program_store, "_folder", None)
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("DSE_CACHE_DIR", str(tmp_path / "occupied" / "below"))
    use_compilation_cache()
    program_store.save("a key", "part", "it")
    assert program_store.load("a key", "part") is None

"""The tables of flags: every flag is one that its version accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.errors import DseError
from dse.export.flags import accepted, engines, table

# Engines whose command lines are listed whole.
LISTED = ("vllm", "sglang")
RELEASES = [(name, version) for name in LISTED for version in table(name).versions]


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_every_knob_is_a_flag_of_the_version(engine: str, version: str) -> None:
    known = accepted(engine, version)
    flags = table(engine)
    for knob, flag in flags.knobs(version).items():
        if knob == "model" and engine == "vllm":
            continue  # the first word of `vllm serve`
        assert flag.flag in known, (knob, flag.flag)
        kind = known.flags[flag.flag][1]
        assert (kind == "switch") == (flag.takes == "switch"), (knob, kind)


@pytest.mark.parametrize("engine", engines())
def test_sinces_and_untils_are_versions(engine: str) -> None:
    flags = table(engine)
    for flag in flags.flags:
        assert {flag.since, flag.until} <= {"", *flags.versions}
        assert flag.source
    assert flags.default in flags.versions


def test_a_renamed_flag_follows_the_version() -> None:
    sglang = table("sglang")
    old, new = (sglang.flag("graph_requests", version) for version in ("0.5.9", "0.5.23"))
    assert old is not None
    assert new is not None
    assert (old.flag, new.flag) == ("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")
    assert table("vllm").flag("all_to_all", "0.11.0") is None


def test_unknown_versions_and_engines_are_refused() -> None:
    with pytest.raises(DseError, match=r"0\.33\.1.*did you mean '0\.33\.0'.*Known: 0\.11\.0"):
        table("vllm").release("0.33.1")
    assert table("vllm").release("v0.20.2") == "0.20.2"
    with pytest.raises(DseError, match="did you mean 'sglang'"):
        table("sglan")


def test_every_flag_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    for engine in engines():
        for flag in table(engine).flags:
            line = f"| {flag.knob} | `{flag.flag}` |"
            assert line in page, f"docs/export.md lacks {line}"

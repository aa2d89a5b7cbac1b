"""`dse list` and `dse show` on the shipped catalogue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.cli.kinds import KINDS, kind_named
from dse.errors import DseError
from dse.spec.metrics import METRICS

Run = Callable[..., Any]


@pytest.mark.parametrize("kind", KINDS)
def test_list_as_json(run: Run, kind: str) -> None:
    ran = run("list", kind, "--json")
    document = ran.document
    assert (ran.code, ran.err) == (0, "")
    assert (document["schema"], document["kind"]) == ("dse.list/1", kind)
    names = [item["name"] for item in document["items"]]
    # Fits are made apart; a checkout may have none.
    assert names or kind in ("kernels", "deployments")
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", KINDS)
def test_list_for_people_has_every_name(run: Run, kind: str) -> None:
    ran = run("list", kind)
    assert ran.code == 0
    for item in KINDS[kind].rows():
        assert item["name"] in ran.out


def test_no_shipped_target_is_faulty() -> None:
    assert [row for row in KINDS["hardware"].rows() if "memory_bytes" not in row] == []


def test_listed_numbers_are_si(run: Run) -> None:
    items = {item["name"]: item for item in run("list", "hardware", "--json").document["items"]}
    h100 = items["h100-sxm"]
    assert h100["memory_bytes"] == 80e9
    assert h100["memory_bandwidth_bytes_per_s"] == 3.35e12
    assert h100["peak_flops_per_s"]["bf16"] == 989e12


def test_list_metrics_are_the_metrics(run: Run) -> None:
    items = run("list", "metrics", "--json").document["items"]
    assert [item["name"] for item in items] == list(METRICS)


@pytest.mark.parametrize("word", ["models", "model", "MODEL", " models "])
def test_kind_in_singular_plural_and_any_case(word: str) -> None:
    assert kind_named(word) == "models"


def test_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(DseError, match="did you mean 'hardware'"):
        kind_named("hardwar")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_show_everything_that_is_listed(run: Run, kind: str) -> None:
    for item in KINDS[kind].rows()[:6]:
        ran = run("show", kind, item["name"])
        assert ran.code == 0, ran.err
        assert item["name"] in ran.out


def test_show_by_alias_as_json(run: Run) -> None:
    document = run("show", "hardware", "h100", "--json").document
    assert (document["schema"], document["name"]) == ("dse.show/1", "h100-sxm")
    assert document["value"]["memory_bytes"]["value"] == 80e9
    assert document["value"]["memory_bytes"]["source"]


def test_show_hardware_writes_units_and_sources(run: Run) -> None:
    lines = {
        line.split()[0]: line
        for line in run("show", "hardware", "h100").out.splitlines()
        if line.strip()
    }
    assert "1.979 PFLOP/s" in lines["peak_flops_per_s.fp8"]
    assert "datasheet" in lines["peak_flops_per_s.fp8"]
    assert "3.35 TB/s" in lines["memory_bandwidth_bytes_per_s"]


def test_show_prints_a_copyable_file(run: Run, tmp_path: Path) -> None:
    ran = run("show", "objectives", "interactive-chat")
    copy = tmp_path / "copy.yaml"
    copy.write_text(ran.out, encoding="utf-8")
    assert run("check", copy).code == 0


def test_show_a_model_counts_bytes(run: Run) -> None:
    value = run("show", "models", "llama-3.1-8b", "--json").document["value"]
    assert value["n_layers"] == 32
    assert value["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    assert sum(part["n_parameters"] for part in value["parts"]) == value["n_parameters"]


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        ("hardware", "h200-smx", "h200-sxm"),
        ("metrics", "ttft_mean", "ttft_mean_s"),
        ("objectives", "interactiv-chat", "interactive-chat"),
        ("engines", "sgland", "sglang"),
    ],
)
def test_show_unknown_name_suggests(run: Run, kind: str, name: str, nearest: str) -> None:
    ran = run("show", kind, name)
    assert (ran.code, ran.out) == (2, "")
    assert nearest in ran.err

"""Where the catalogues lie in a checkout, and how the tests load them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dse.spec.hardware import Hardware
from dse.spec.load import load_spec
from dse.spec.objective import Objective

ROOT = Path(__file__).resolve().parents[2]

TARGETS = (
    "h100-sxm",
    "h100-pcie",
    "h200-sxm",
    "h20",
    "h800",
    "a100-sxm-80gb",
    "b200-sxm",
    "b300-sxm",
    "gb200-nvl72",
    "gb300-nvl72",
    "l40s",
    "rtx-pro-6000",
    "mi300x",
    "mi325x",
    "mi355x",
    "ascend-910b",
    "ascend-910c",
    "ascend-910c-die",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7",
    "gaudi3",
    "trainium2",
)


@cache
def raw(folder: str, name: str) -> Any:
    """The plain data of one catalogue file."""
    return yaml.safe_load((ROOT / folder / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def load_hardware(name: str) -> Hardware:
    """One target of the catalogue, validated."""
    return load_spec(Hardware, ROOT / "hardware" / f"{name}.yaml")


@cache
def load_objective(name: str) -> Objective:
    """One objective of the catalogue, validated."""
    return load_spec(Objective, ROOT / "objectives" / f"{name}.yaml")


def names(folder: str) -> list[str]:
    """Stems of the YAML files of a catalogue folder."""
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))

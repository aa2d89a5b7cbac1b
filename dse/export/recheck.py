"""An export read again: what its lines say must be the design that they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.arch import load_model
from dse.arch.types import ModelArch
from dse.export.command import shell_line
from dse.export.deployment import Deployment
from dse.export.launch import Launch
from dse.export.read import read_lines
from dse.lower.formats import kv_dtype_of, weight_formats
from dse.spec.hardware import Hardware
from dse.spec.space import POOLS

# Of these the commands carry nothing: they follow from the checkpoint, and are told elsewhere.
_FROM_CHECKPOINT = ("activation_dtype",)


def read_back(deployment: Deployment, launched: Launch, version: str) -> list[str]:
    """Axes that the commands, read as by `dse import`, give another value than the design has."""
    lines = [shell_line(one.command.words, one.command.env) for one in launched.started]
    found = read_lines(lines, version).design
    design = deployment.evaluation.design
    arch = load_model(deployment.study.model[0])
    hardware = {one.role: one.hardware for one in deployment.instances}
    pairs = {"": (design, found, hardware.get("both"))}
    if deployment.disaggregated:
        pairs |= {f"{pool}.": (design[pool], found[pool], hardware[pool]) for pool in POOLS}
    told = " ".join(launched.lacks)
    different = []
    for prefix, (wanted, got, chip) in pairs.items():
        for name, value in wanted.items():
            same = _meaning(name, value, arch, chip) == _meaning(name, got.get(name), arch, chip)
            if not (same or isinstance(value, Mapping) or name in _FROM_CHECKPOINT or name in told):
                different.append(f"{prefix}{name} {value}: the commands say {got.get(name)}")
    return different


def _meaning(name: str, value: Any, arch: ModelArch, chip: Hardware | None) -> Any:
    """Formats by what they are, so that `checkpoint` is what the checkpoint has."""
    if name == "weight_dtype" and value is not None:
        return weight_formats(arch, value)
    if name == "kv_dtype" and value is not None and chip is not None:
        return kv_dtype_of(arch, value, chip)[0]
    return value

"""What published names mean in the catalogue: hardware, models, number formats, engines."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field

from dse import catalog
from dse.arch import load_model
from dse.calibrate.published.case import Case
from dse.errors import DseError
from dse.spec.hardware import Hardware
from dse.spec.load import load, load_spec
from dse.spec.plain import plain_data

_SOURCE: Final = "of the published case"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Entry):
    """A target of the catalogue, with what differs from it, and how many one device is."""

    target: str
    devices: int = Field(default=1, gt=0)
    memory_bytes: str = ""
    memory_bandwidth_bytes_per_s: str = ""
    link_bytes_per_s: str = ""  # of one accelerator, between the pools
    note: str = ""


class EngineName(_Entry):
    """The engine of sources that start with these words."""

    source: str
    engine: str
    assumed: str = ""


class Names(_Entry):
    """The whole of `names.yaml`."""

    hardware: dict[str, Device]
    refused_hardware: dict[str, str]
    models: dict[str, str]
    model_suffixes: tuple[str, ...]
    precisions: dict[str, dict[str, str]]
    engines: tuple[EngineName, ...]


@lru_cache(maxsize=1)
def names() -> Names:
    return Names.model_validate(read_own("names.yaml"))


def read_own(file: str) -> Any:
    """A YAML file of this package."""
    return yaml.safe_load(resources.files("dse.calibrate.published").joinpath(file).read_text())


def device_of(case: Case) -> Device:
    """The target. Raises DseError where the catalogue has none."""
    refusal = names().refused_hardware.get(case.hardware)
    if refusal is not None:
        raise DseError(refusal)
    found = names().hardware.get(case.hardware)
    if found is None:
        raise DseError(f"hardware not in the catalogue: {case.hardware:.60}")
    return found


def hardware_of(device: Device) -> dict[str, Any] | str:
    """A catalogue name, or the block of a target that differs from one in its memory."""
    changed = {
        key: {"value": getattr(device, key), "status": "secondary", "source": _SOURCE}
        for key in ("memory_bytes", "memory_bandwidth_bytes_per_s")
        if getattr(device, key)
    }
    if not changed:
        return device.target
    base = plain_data(load(Hardware, catalog.resolve("hardware", device.target)).spec)
    assert isinstance(base, dict)
    kept = {key: v for key, v in base.items() if not (key == "usable_bytes" and changed)}
    block = {**kept, **changed, "name": f"{device.target}-variant", "aliases": []}
    load_spec(Hardware, block)
    return block


def model_of(case: Case) -> str:
    """The model whose shapes the case's checkpoint has, as the catalogue is asked for it.

    Raises DseError where the catalogue has none.
    """
    name = case.model.rpartition("/")[2] if "V3/R1" not in case.model else case.model
    shorter = True
    while shorter:
        shorter = False
        for suffix in names().model_suffixes:
            if name.casefold().endswith(suffix):
                name, shorter = name[: -len(suffix)], True
    name = names().models.get(name, name)
    try:
        load_model(name)
    except DseError:
        raise DseError(f"no model of the catalogue has the shapes of {name:.60}") from None
    return name


def formats_of(case: Case, as_published: bool) -> tuple[dict[str, str], list[str]]:
    """(dtype axes, what is assumed of them). Raises DseError for an unknown precision."""
    if not case.precision:
        return {}, ["numbers as the checkpoint has them: the source states no precision"]
    if as_published:
        return {}, ["weights as published (mxfp4)"]
    written = case.precision.removesuffix(" + fp8 KV")
    found = names().precisions.get(written)
    if found is None:
        raise DseError(f"precision not modelled: {case.precision:.60}")
    formats = dict(found)
    if written != case.precision:
        formats["kv_dtype"] = "fp8"
    if "kv_dtype" in formats:
        return formats, []
    # The rule of `dse validate`: TensorRT-LLM keeps the cache of quantized weights in 8 bit.
    cache = "fp8" if engine_of(case)[0] == "tensorrt-llm" else "bf16"
    return {**formats, "kv_dtype": cache}, [f"{cache} cache"]


def engine_of(case: Case) -> tuple[str, list[str]]:
    """(an engine of the catalogue, what is assumed of it)."""
    for one in names().engines:
        if case.source.startswith(one.source):
            return one.engine, [one.assumed] if one.assumed else []
    return "generic", ["a generic engine: the source names none"]

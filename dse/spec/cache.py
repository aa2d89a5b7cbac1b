"""Where the caches of earlier prompts are kept: accelerator memory and the tiers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import field_validator

from dse.spec.base import Spec, fault
from dse.spec.quantity import BytesPerS, LatencyS, Quantity
from dse.units import describe

Capacity = Annotated[float, Quantity("bytes", 1e6, 1e19, 1e11)]


class LocalTier(Spec):
    """Host memory: every accelerator's share of it; without a capacity it holds everything.

    The bandwidth is that of one accelerator, its host link where none is given.
    """

    capacity_bytes_per_accelerator: Capacity | None = None
    bandwidth_bytes_per_s: BytesPerS | None = None
    latency_s: LatencyS = 0.0


class DiskTier(Spec):
    """Disks: every accelerator's share of them; without a capacity they hold everything."""

    capacity_bytes_per_accelerator: Capacity | None = None
    bandwidth_bytes_per_s: BytesPerS
    latency_s: LatencyS = 0.0


class RemoteTier(Spec):
    """A store that all replicas share; without a capacity it holds everything.

    The bandwidth is that of one accelerator, its scale-out link where none is given.
    """

    capacity_bytes: Capacity | None = None
    bandwidth_bytes_per_s: BytesPerS | None = None
    latency_s: LatencyS = 0.0


class Cache(Spec):
    """Caches of earlier prompts, searched in the order hbm, dram, ssd, remote.

    `hbm` is what a design leaves of accelerator memory; false turns it off. Each tier keeps the
    blocks that the ones before it dropped (least recently used first). A tier that loads a token
    more slowly than it is computed is not used. `streaming: layer` loads a layer while earlier ones
    compute; `none` loads before the prompt starts.
    """

    policy: Literal["lru"] = "lru"
    streaming: Literal["layer", "none"] = "layer"
    hbm: bool = True
    dram: LocalTier | None = None
    ssd: DiskTier | None = None
    remote: RemoteTier | None = None

    @field_validator("dram", "remote", mode="before")
    @classmethod
    def _mapping(cls, raw: Any) -> Any:
        if raw is None or isinstance(raw, Mapping | Spec):
            return raw
        raise fault(f"found {describe(raw)}; expected a mapping, {{}} for one without limit")

    @field_validator("hbm", mode="before")
    @classmethod
    def _switch(cls, raw: Any) -> Any:
        if isinstance(raw, bool):
            return raw
        raise fault(
            f"found {describe(raw)}; expected true or false (its size follows from designs)"
        )

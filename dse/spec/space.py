"""The space of designs: every axis is fixed (a scalar) or searched (a list, log2 or range)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from dse.spec.axis import Axis
from dse.spec.base import Location, Spec
from dse.spec.quantity import Whole

Mode = Literal["colocated", "disaggregated"]
DtypeName = Literal["checkpoint", "bf16", "fp8", "int8", "fp4", "nvfp4", "mxfp4", "int4"]
PlacementName = Literal["contiguous", "random", "eplb"]
PoolName = Literal["prefill", "decode"]
AxisValue = int | str

Modes = Annotated[tuple[Mode, ...], Axis()]
Dtypes = Annotated[tuple[DtypeName, ...], Axis()]
Placements = Annotated[tuple[PlacementName, ...], Axis()]
Replicas = Annotated[tuple[Annotated[int, Whole(1, 65_536)], ...], Axis(numeric=True)]
Degrees = Annotated[tuple[Annotated[int, Whole(1, 4096)], ...], Axis(numeric=True)]
Stages = Annotated[tuple[Annotated[int, Whole(1, 256)], ...], Axis(numeric=True)]
Batches = Annotated[tuple[Annotated[int, Whole(1, 2**20)], ...], Axis(numeric=True)]
Chunks = Annotated[tuple[Annotated[int, Whole(1, 2**24)], ...], Axis(numeric=True)]
Drafts = Annotated[tuple[Annotated[int, Whole(0, 64)], ...], Axis(numeric=True)]
Redundant = Annotated[tuple[Annotated[int, Whole(0, 65_536)], ...], Axis(numeric=True)]

AXES: Final = (
    "mode",
    "replicas",
    "attention_tp",
    "attention_dp",
    "moe_ep",
    "redundant_experts",
    "expert_placement",
    "pp",
    "max_batch",
    "chunk_tokens",
    "weight_dtype",
    "activation_dtype",
    "kv_dtype",
    "draft_tokens",
)
POOL_AXES: Final = (
    "attention_tp",
    "attention_dp",
    "moe_ep",
    "redundant_experts",
    "expert_placement",
    "pp",
    "max_batch",
    "chunk_tokens",
    "weight_dtype",
    "activation_dtype",
    "kv_dtype",
)
POOLS: Final[tuple[PoolName, ...]] = get_args(PoolName)


class PoolSpace(Spec):
    """One pool's workers, and the axes that differ from the common ones."""

    workers: Replicas = (1,)
    attention_tp: Degrees | None = None
    attention_dp: Degrees | None = None
    moe_ep: Degrees | None = None
    redundant_experts: Redundant | None = None
    expert_placement: Placements | None = None
    pp: Stages | None = None
    max_batch: Batches | None = None
    chunk_tokens: Chunks | None = None
    weight_dtype: Dtypes | None = None
    activation_dtype: Dtypes | None = None
    kv_dtype: Dtypes | None = None


class Space(Spec):
    """The axes of a design; the names are the keys of a design."""

    mode: Modes = ("colocated",)
    replicas: Replicas = (1,)
    attention_tp: Degrees = (1,)
    attention_dp: Degrees = (1,)
    moe_ep: Degrees = (1,)
    redundant_experts: Redundant = (0,)  # further expert slots of an expert-parallel domain
    expert_placement: Placements = ("contiguous",)
    pp: Stages = (1,)
    max_batch: Batches = (256,)
    chunk_tokens: Chunks = (8192,)
    weight_dtype: Dtypes = ("checkpoint",)
    activation_dtype: Dtypes = ("checkpoint",)
    kv_dtype: Dtypes = ("checkpoint",)
    draft_tokens: Drafts = (0,)
    prefill: PoolSpace = Field(default_factory=PoolSpace)
    decode: PoolSpace = Field(default_factory=PoolSpace)

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        for pool in POOLS:
            # With the mode written out, a pool's axes may wait for another mode.
            if data.get(pool) is not None and data.get("mode") is None:
                yield (
                    (pool,),
                    "applies to disaggregated serving only; set mode: disaggregated (or a list)",
                )

    def axes(self) -> dict[str, tuple[AxisValue, ...]]:
        """Every axis in a fixed order; with disaggregated mode also `prefill.workers` and so on.

        Of a pool's axes only `workers` and those that it overrides are listed.
        """
        found: dict[str, tuple[AxisValue, ...]] = {name: getattr(self, name) for name in AXES}
        if "disaggregated" in self.mode:
            for pool in POOLS:
                own = self._pool(pool)
                found[f"{pool}.workers"] = own.workers
                for name in POOL_AXES:
                    if getattr(own, name) is not None:
                        found[f"{pool}.{name}"] = getattr(own, name)
        return found

    def pool_axes(self, pool: PoolName) -> dict[str, tuple[AxisValue, ...]]:
        """All axes of one pool in a fixed order: its own where given, else the common ones."""
        own = self._pool(pool)
        merged: dict[str, tuple[AxisValue, ...]] = {"workers": own.workers}
        for name in POOL_AXES:
            values = getattr(own, name)
            merged[name] = getattr(self, name) if values is None else values
        return merged

    def _pool(self, pool: PoolName) -> PoolSpace:
        return self.prefill if pool == "prefill" else self.decode

"""Numbers that say where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dse.spec.base import Spec
from dse.spec.quantity import (
    TEXT_PATTERN,
    Bytes,
    BytesPerS,
    CountF,
    FlopsPerS,
    LatencyS,
    MemoryBytes,
    UsdPerHour,
    Watts,
)

NUMBER_OR_TEXT = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": TEXT_PATTERN}]}
Status = Literal["datasheet", "secondary", "measured", "derived", "estimate", "given by the user"]


class Sourced(Spec):
    """A value in SI, how it is known and where it stands; a bare value is given by the user."""

    value: Annotated[float, WithJsonSchema(NUMBER_OR_TEXT)]
    status: Status = "given by the user"
    source: str = ""
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_bare(cls, raw: Any) -> Any:
        return raw if isinstance(raw, Mapping | Sourced) else {"value": raw}

    def __float__(self) -> float:
        return self.value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(handler(schema))
        bare = dict(whole["properties"]["value"])
        bare.pop("title", None)
        return {"anyOf": [*bare.get("anyOf", [bare]), whole], "description": cls.__doc__ or ""}


class SourcedBytes(Sourced):
    """A size in bytes, with its source."""

    value: Bytes


class SourcedMemory(Sourced):
    """A memory capacity in bytes, with its source."""

    value: MemoryBytes


class SourcedBandwidth(Sourced):
    """A bandwidth in bytes per second, with its source."""

    value: BytesPerS


class SourcedFlops(Sourced):
    """A compute rate in FLOP per second (one multiply-add = 2), with its source."""

    value: FlopsPerS


class SourcedLatency(Sourced):
    """A latency in seconds, with its source."""

    value: LatencyS


class SourcedPower(Sourced):
    """A power in watts, with its source."""

    value: Watts


class SourcedPrice(Sourced):
    """A price in USD per hour and accelerator, with its source."""

    value: UsdPerHour


class SourcedCount(Sourced):
    """A count, with its source."""

    value: CountF

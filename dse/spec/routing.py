"""How unevenly a router loads experts: a popularity law or a measured histogram, per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BeforeValidator,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from dse.spec.base import FAULT, Location, Spec, fault, folder_of, unknown_name
from dse.spec.histogram import Counts, checked_counts, read_counts
from dse.spec.quantity import Quantity, text_of
from dse.units import describe

LawName = Literal["uniform", "lognormal", "gamma", "zipf", "power", "measured"]
LAWS: Final[tuple[str, ...]] = get_args(LawName)
# Parameter of each law with its default; `measured` has counts instead.
LAW_PARAMETERS: Final[Mapping[str, Mapping[str, float]]] = {
    "uniform": {},
    "lognormal": {"sigma": 1.0},
    "gamma": {"cv": 1.0},
    "zipf": {"exponent": 0.6},
    "power": {"alpha": 1.2, "largest": 1000.0},
    "measured": {},
}
_MAX_CLASSES: Final = 5
_PARAMETERS = ("sigma", "cv", "exponent", "alpha", "largest")
# DeepSeek-R1 at EP32 (NVIDIA TensorRT-LLM, examples/ep_load_balancer): the hottest rank has 2.56
# times the mean rank's rows averaged over layers, printed layers 1.46 to 3.46: lognormal, sigma
# 0.5 in calm layers, 1.0 in typical and 1.3 in hot ones.
_SOURCE: Final = ((1.0, 0.5), (2.0, 1.0), (1.0, 1.3))

Share = Annotated[float, Quantity("count", 1e-6, 1e9)]


def _number(low: float, high: float, *, zero: bool = False) -> Any:
    return Quantity("count", low, high, zero=zero)


_ROW_SCHEMA: Final = {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2}
_COUNTS_SCHEMA: Final = {
    "anyOf": [_ROW_SCHEMA, {"type": "array", "items": _ROW_SCHEMA, "minItems": 1}]
}


class Popularity(Spec):
    """How often experts are chosen, in one class of layers.

    `lognormal` (sigma of ln p), `gamma` (cv), `zipf` (p ~ rank^-exponent), `power` (density
    x^-alpha from 1 to `largest`), `uniform`, or `measured`: tokens per expert as `counts` or in a
    `file` (CSV or JSON), one row for all layers or one per layer.
    """

    law: LawName
    sigma: Annotated[float, _number(1e-3, 4.0, zero=True)] | None = None
    cv: Annotated[float, _number(1e-2, 10.0)] | None = None
    exponent: Annotated[float, _number(1e-3, 4.0, zero=True)] | None = None
    alpha: Annotated[float, _number(1e-3, 10.0, zero=True)] | None = None
    largest: Annotated[float, _number(1.0, 1e9)] | None = None
    counts: Counts | None = None
    share: Share = 1.0  # of the layers, relative to the other classes

    @model_validator(mode="before")
    @classmethod
    def _from_written(cls, raw: Any, info: ValidationInfo) -> Any:
        if isinstance(raw, str):
            raw = {"law": raw}
        elif isinstance(raw, list | tuple):
            raw = {"counts": raw}
        if not isinstance(raw, Mapping):
            return raw
        data = dict(raw)
        if data.get("file") is not None and data.get("counts") is None:
            data["counts"] = _from_file(data.pop("file"), info)
        if "law" not in data:
            data["law"] = _implied(data)
        law = data["law"]
        if isinstance(law, str) and law not in LAWS:
            raise fault(unknown_name("law", law, LAWS), ("law",))
        if isinstance(law, str):
            for name, value in LAW_PARAMETERS[law].items():
                data.setdefault(name, value)
        return data

    @field_validator("counts", mode="before")
    @classmethod
    def _rows(cls, raw: Any) -> Any:
        return None if raw is None else checked_counts(raw)

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        if data.get("file") is not None and data.get("counts") is not None:
            yield ("file",), "found both counts and file; expected one of them"

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        own = LAW_PARAMETERS[self.law]
        for name in _PARAMETERS:
            if getattr(self, name) is not None and name not in own:
                has = f"; {self.law} has {' and '.join(own)}" if own else ""
                yield (name,), f"is not a parameter of {self.law}{has}"
        if self.law == "measured" and self.counts is None:
            yield ("counts",), "measured popularity needs counts: [...] or file: PATH"
        if self.law != "measured" and self.counts is not None:
            yield ("counts",), f"found counts and law {self.law}; expected one of them"

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        block = dict(handler.resolve_ref_schema(handler(schema)))
        keys = {**block["properties"], "file": {"type": "string"}, "counts": _COUNTS_SCHEMA}
        keys["law"] = {"enum": list(LAWS)}
        named = [{"required": [key]} for key in keys if key != "share"]
        block.update(properties=keys, anyOf=named)
        block.pop("required", None)
        return {"anyOf": [{"enum": list(LAWS)}, _COUNTS_SCHEMA, block]}

    @property
    def label(self) -> str:
        """The law and its parameters in a few words."""
        if self.counts is not None:
            n = len(self.counts)
            return "measured" if n == 1 else f"measured in {n} layers"
        values = [f"{name} {getattr(self, name):g}" for name in LAW_PARAMETERS[self.law]]
        return " ".join([self.law, *values])


def _implied(data: Mapping[str, Any]) -> Any:
    """The law that the written parameters belong to."""
    if data.get("counts") is not None:
        return "measured"
    found = [law for law, own in LAW_PARAMETERS.items() if any(name in data for name in own)]
    if len(found) == 1:
        return found[0]
    raise fault(f"names no law; expected law: {' | '.join(LAWS)}")


def _from_file(raw: Any, info: ValidationInfo) -> Any:
    try:
        return read_counts(folder_of(info.context) / str(text_of(raw)))
    except PydanticCustomError as error:
        if error.type != FAULT:
            raise
        raise fault(error.message(), ("file",)) from None


def _as_classes(raw: Any) -> Any:
    """One popularity for all layers, or a list of classes of layers."""
    if isinstance(raw, list | tuple):
        if not raw:
            raise fault("found an empty list; expected counts per expert, or classes of layers")
        if not isinstance(raw[0], Mapping | str | Popularity):
            return [raw]
        if len(raw) > _MAX_CLASSES:
            raise fault(f"found {len(raw)} classes of layers; at most {_MAX_CLASSES} are priced")
        return raw
    if isinstance(raw, str | Mapping | Popularity):
        return [raw]
    raise fault(f"found {describe(raw)}; expected a law, a block, or counts per expert")


class _OneOrClasses:
    """JSON Schema of one popularity, or of a list of them with their shares of the layers."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        item = handler(schema)["items"]
        several = {"type": "array", "items": item, "minItems": 1, "maxItems": _MAX_CLASSES}
        return {"anyOf": [item, several]}


def default_popularity() -> tuple[Popularity, ...]:
    """Classes of layers as recorded for DeepSeek-R1: calm, typical and hot."""
    return tuple(Popularity(law="lognormal", sigma=s, share=share) for share, s in _SOURCE)


class RoutingSpec(Spec):
    """Expert popularity of a study's traffic, and what a plan of placements leaves.

    `overdispersion` is the variance of a rank's rows over that of independent tokens; `drift` is
    added to the hottest rank's load (over the mean) when experts are placed by a plan, because the
    traffic has moved since it was made.
    """

    popularity: Annotated[
        tuple[Popularity, ...], BeforeValidator(_as_classes), _OneOrClasses()
    ] = ()
    overdispersion: Annotated[float, _number(1.0, 100.0)] = 2.0
    drift: Annotated[float, _number(1e-6, 10.0, zero=True)] = 0.1

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if len(self.popularity) > 1:
            for index, one in enumerate(self.popularity):
                if one.counts is not None and len(one.counts) > 1:
                    yield (
                        ("popularity", index, "counts"),
                        "counts of several layers are classes of their own; give them alone",
                    )

    @property
    def classes(self) -> tuple[Popularity, ...]:
        """Classes of layers; those of DeepSeek-R1 where none are given."""
        return self.popularity or default_popularity()

    @property
    def label(self) -> str:
        """What the router is taken to do, in a few words."""
        labels = list(dict.fromkeys(one.label for one in self.classes))
        given = "" if self.popularity else "default: "
        return given + " | ".join(labels)

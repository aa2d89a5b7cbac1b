"""Lengths in tokens: fixed, lognormal, by quantiles, or as joint nodes of prompt and output."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from dse.spec.base import Location, Spec, fault
from dse.spec.number_list import listed, some
from dse.spec.quantity import LengthTokens, Quantity
from dse.units import describe

MAX_QUANTILES: Final = 200
AGREE_FRAC: Final = 0.01
"""How far a written mean may be from that of the quantiles or nodes beside it."""
LARGEST_CV: Final = 10.0
"""Largest coefficient of variation of a lognormal length. There one request of a thousand has a
sixth of all tokens, and the point masses that stand for the law keep four fifths of the spread."""

Variation = Annotated[float, Quantity("count", 1e-9, 100.0, zero=True)]
Weight = Annotated[float, Quantity("count", 1e-15, 1e15)]

_TOKENS: Final = Quantity("tokens", 1.0, 1e8)
_KEY: Final = r"^p(100|\d{1,2})(\.\d{1,6})?$"
_KEY_PATTERN = re.compile(_KEY, re.ASCII)


def _quantile_key(raw: Any) -> Any:
    text = str(raw)
    if not _KEY_PATTERN.match(text) or float(text[1:]) > 100:
        raise fault(
            f"found the quantile {describe(raw)}; expected p0 to p100, such as p50 or p99.9"
        )
    return text


QuantileKey = Annotated[str, BeforeValidator(_quantile_key)]
TokenList = Annotated[tuple[LengthTokens, ...], BeforeValidator(listed), AfterValidator(some)]
WeightList = Annotated[tuple[Weight, ...], BeforeValidator(listed), AfterValidator(some)]


class Lengths(Spec):
    """Lengths in tokens: a number is fixed, `{mean, cv}` lognormal (cv up to 10), `{quantiles}`
    empirical.

    Between quantiles the length is linear in the probability; below the lowest and above the
    highest it stays at that value, so p0 and p100 are worth giving. `mean` and `cv` of quantiles
    follow from them (a written mean must agree within 1 %).
    """

    mean: LengthTokens
    cv: Variation = 0.0
    quantiles: dict[QuantileKey, LengthTokens] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_bare(cls, raw: Any) -> Any:
        if isinstance(raw, Lengths):
            return raw
        if not isinstance(raw, Mapping):
            return {"mean": raw}
        moments = _quantile_moments(raw.get("quantiles"))
        if moments is None or _disagrees(raw.get("mean"), moments[0]):
            # The quantiles' own faults are told; a missing mean would only be noise beside them.
            return {"mean": 1.0, **raw} if raw.get("quantiles") else raw
        return {**raw, "mean": moments[0], "cv": moments[1]}

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        moments = _quantile_moments(data.get("quantiles"))
        if moments is not None and _disagrees(data.get("mean"), moments[0]):
            yield ("mean",), _disagreement(data["mean"], moments[0], "quantiles")

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        points = sorted((float(key[1:]), key, value) for key, value in self.quantiles.items())
        if points and not 2 <= len(points) <= MAX_QUANTILES:
            yield (
                ("quantiles",),
                f"found {len(points)} quantiles; expected 2 to {MAX_QUANTILES}",
            )
        for (low, low_key, lower), (high, key, value) in pairwise(points):
            if low == high:
                yield ("quantiles", key), f"found {low_key} and {key}, which are the same quantile"
            elif value < lower:
                message = f"found {value:g} below {low_key}: {lower:g}; quantiles never fall"
                yield ("quantiles", key), message

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(handler(schema))
        bare = whole["properties"]["mean"]["anyOf"]
        whole["properties"]["quantiles"] = {
            "type": "object",
            "propertyNames": {"pattern": _KEY},
            "additionalProperties": {"anyOf": bare},
        }
        mapping = {key: value for key, value in whole.items() if key != "required"}
        mapping["anyOf"] = [{"required": ["mean"]}, {"required": ["quantiles"]}]
        return {"anyOf": [*bare, mapping], "description": cls.__doc__ or ""}


class Joint(Spec):
    """Prompt and output lengths that belong together: node k has weight[k] of the requests.

    Weights are relative, so plain counts of requests do.
    """

    isl: TokenList
    osl: TokenList
    weight: WeightList

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        for name, values in (("osl", self.osl), ("weight", self.weight)):
            if len(values) != len(self.isl):
                yield (name,), f"found {len(values)} values; isl has {len(self.isl)}"


def quantile_knots(quantiles: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """Probabilities (0 and 1 included) and lengths of the piecewise linear quantile function."""
    points = sorted((float(key[1:]) / 100.0, value) for key, value in quantiles.items())
    shares = [0.0, *(share for share, _ in points), 1.0]
    return shares, [points[0][1], *(value for _, value in points), points[-1][1]]


def weighted_moments(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Mean and coefficient of variation of point masses."""
    total = math.fsum(weights)
    mean = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total
    spread = math.fsum(w * (v - mean) ** 2 for v, w in zip(values, weights, strict=True)) / total
    return mean, math.sqrt(spread) / mean


def joint_moments(raw: Any) -> dict[str, tuple[float, float]] | None:
    """`{"isl": (mean, cv), "osl": ...}` of joint nodes as written; None where they are faulty."""
    if isinstance(raw, Joint):
        raw = {"isl": raw.isl, "osl": raw.osl, "weight": raw.weight}
    if not isinstance(raw, Mapping):
        return None
    try:
        weights = [float(value) for value in raw["weight"]]
        columns = {name: [_TOKENS.parse(v) for v in raw[name]] for name in ("isl", "osl")}
        return {name: weighted_moments(column, weights) for name, column in columns.items()}
    except (PydanticCustomError, KeyError, TypeError, ValueError, ArithmeticError):
        return None


def disagreement(raw: Any, mean: float, what: str) -> str | None:
    """What is wrong with written lengths beside nodes of another mean; None when they agree."""
    found = raw.get("mean") if isinstance(raw, Mapping) else raw
    if isinstance(raw, Lengths):
        found = raw.mean
    return _disagreement(found, mean, what) if _disagrees(found, mean) else None


def too_varied(cv: float) -> str:
    """What is wrong with a lognormal length beyond `LARGEST_CV`."""
    return (
        f"found {cv:g}; expected at most {LARGEST_CV:g}: the mean of a lognormal length that "
        "varies more rests on requests too rare to come. Give quantiles, joint nodes or a trace"
    )


def _quantile_moments(raw: Any) -> tuple[float, float] | None:
    if not isinstance(raw, Mapping) or len(raw) < 2:
        return None
    try:
        knots = quantile_knots({_quantile_key(k): _TOKENS.parse(v) for k, v in raw.items()})
    except PydanticCustomError:
        return None
    shares, values = knots
    pieces = list(zip(shares, shares[1:], values, values[1:], strict=False))
    mean = math.fsum((b - a) * (x + y) / 2 for a, b, x, y in pieces)
    square = math.fsum((b - a) * (x * x + x * y + y * y) / 3 for a, b, x, y in pieces)
    return mean, math.sqrt(max(square - mean * mean, 0.0)) / mean


def _disagrees(raw: Any, mean: float) -> bool:
    if raw is None:
        return False
    try:
        return abs(_TOKENS.parse(raw) - mean) > AGREE_FRAC * mean
    except PydanticCustomError:
        return False  # a fault of its own, told where it stands


def _disagreement(found: Any, mean: float, what: str) -> str:
    return f"found a mean of {describe(found)}, but the {what} have {mean:.6g}; leave it out"

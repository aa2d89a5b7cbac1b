"""What arrives: prompt and output lengths, and how requests come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dse.spec.base import Location, Spec, exclusive
from dse.spec.quantity import Count, LengthTokens, Name, Quantity, RequestsPerS

Frac = Annotated[float, Quantity("frac", 1e-9, 1.0, zero=True)]
HitFrac = Annotated[float, Quantity("frac", 1e-9, 1.0 - 1e-6, zero=True)]
Variation = Annotated[float, Quantity("count", 1e-9, 100.0, zero=True)]


class Lengths(Spec):
    """A distribution of lengths in tokens: mean and coefficient of variation; a number is fixed."""

    mean: LengthTokens
    cv: Variation = 0.0

    @model_validator(mode="before")
    @classmethod
    def _from_bare(cls, raw: Any) -> Any:
        return raw if isinstance(raw, Mapping | Lengths) else {"mean": raw}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(handler(schema))
        bare = whole["properties"]["mean"]["anyOf"]
        return {"anyOf": [*bare, whole], "description": cls.__doc__ or ""}


class Arrivals(Spec):
    """Requests of an open loop; without a rate, the largest feasible one is searched."""

    kind: Literal["poisson"] = "poisson"
    rate: RequestsPerS | None = None


class Workload(Spec):
    """Lengths, and either `arrivals` (open loop), `concurrency` (closed loop) or neither."""

    name: Name = "inline"
    description: str = ""
    source: str = ""
    isl: Lengths
    osl: Lengths
    arrivals: Arrivals | None = None
    concurrency: Count | None = None
    prefix_hit_frac: HitFrac = 0.0
    draft_acceptance_frac: Frac | None = None

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        if len(exclusive(data, "arrivals", "concurrency")) == 2:
            yield (
                ("concurrency",),
                "found both arrivals (an open loop) and concurrency (a closed loop); expected one, "
                "the other absent or null",
            )

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.osl.mean < 2.0:
            yield (
                ("osl",),
                f"found a mean of {self.osl.mean:g}; expected at least 2: a single token has no "
                "time per output token",
            )

    @property
    def rate_requests_per_s(self) -> float | None:
        """The given arrival rate; None for a closed loop and for a goodput search."""
        return self.arrivals.rate if self.arrivals is not None else None

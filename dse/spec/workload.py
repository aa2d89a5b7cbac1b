"""What arrives: prompt and output lengths, how requests come, and what they repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from dse.spec.arrivals import Arrivals
from dse.spec.base import FAULT, Location, Spec, exclusive, fault
from dse.spec.lengths import (
    LARGEST_CV,
    Joint,
    Lengths,
    disagreement,
    joint_moments,
    too_varied,
)
from dse.spec.plain import plain_data
from dse.spec.quantity import Count, Name, Quantity
from dse.spec.reference import Named
from dse.spec.reuse import HitFrac, Reuse

Frac = Annotated[float, Quantity("frac", 1e-9, 1.0, zero=True)]


class Workload(Spec):
    """Lengths, and either `arrivals` (open loop), `concurrency` (closed loop) or neither.

    With `joint` nodes, isl and osl follow from them and may be left out. With `trace`, a catalogue
    name or a path of another workload, everything not written here is taken from there; lengths
    written here replace its joint nodes.
    """

    name: Name = "inline"
    description: str = ""
    source: str = ""
    trace: Name | None = None
    isl: Lengths
    osl: Lengths
    joint: Joint | None = None
    arrivals: Arrivals | None = None
    concurrency: Count | None = None
    prefix_hit_frac: HitFrac = 0.0
    reuse: Reuse | None = None
    draft_acceptance_frac: Frac | None = None

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, raw: Any, info: ValidationInfo) -> Any:
        if not isinstance(raw, Mapping):
            return raw
        data = dict(raw)
        if isinstance(data.get("trace"), str):
            data = _merged(cls._read(data.pop("trace"), info.context), data)
        moments = joint_moments(data.get("joint"))
        for name in ("isl", "osl"):
            if moments is None:
                if data.get("joint") is not None:
                    data.setdefault(name, 2.0)  # the nodes' own faults are told
            elif disagreement(data.get(name), moments[name][0], "joint nodes") is None:
                data[name] = dict(zip(("mean", "cv"), moments[name], strict=True))
        return data

    @classmethod
    def _read(cls, name: str, context: Any) -> Mapping[str, Any]:
        try:
            base: Mapping[str, Any] = plain_data(Named("workloads").read(cls, name, context))
        except PydanticCustomError as error:
            if error.type != FAULT:
                raise
            raise fault(error.message(), ("trace",)) from None
        return base

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        if len(exclusive(data, "arrivals", "concurrency")) == 2:
            yield (
                ("concurrency",),
                "found both arrivals (an open loop) and concurrency (a closed loop); expected one, "
                "the other absent or null",
            )
        moments = joint_moments(data.get("joint")) or {}
        for name, (mean, _) in moments.items():
            message = disagreement(data.get(name), mean, "joint nodes")
            if message is not None:
                yield (name,), message

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        for name, lengths in (("isl", self.isl), ("osl", self.osl)):
            # Nodes and quantiles end at the longest length seen; only a law has no end.
            if self.joint is None and not lengths.quantiles and lengths.cv > LARGEST_CV:
                yield (name, "cv"), too_varied(lengths.cv)
        if self.osl.mean < 2.0:
            yield (
                ("osl",),
                f"found a mean of {self.osl.mean:g}; expected at least 2: a single token has no "
                "time per output token",
            )
        if self.reuse is not None and self.prefix_hit_frac > 0.0:
            yield (
                ("prefix_hit_frac",),
                "found both prefix_hit_frac (a given share) and reuse (a share by cache size); "
                "expected one of them",
            )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler.resolve_ref_schema(handler(schema))
        whole.pop("required", None)
        ways = (["isl", "osl"], ["joint"], ["trace"])
        whole["anyOf"] = [{"required": keys} for keys in ways]
        return whole

    @property
    def rate_requests_per_s(self) -> float | None:
        """The given arrival rate; None for a closed loop and for a goodput search."""
        return self.arrivals.rate if self.arrivals is not None else None


def _merged(base: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """What is written, and the rest from `base`, less what the written keys replace."""
    own = {key: value for key, value in written.items() if value is not None}
    rest = dict(base)
    if "isl" in own or "osl" in own:
        rest.pop("joint", None)
    if "joint" in own:
        rest.pop("isl", None)
        rest.pop("osl", None)
    if "concurrency" in own:
        rest.pop("arrivals", None)
    if "arrivals" in own:
        rest.pop("concurrency", None)
    if own.get("prefix_hit_frac"):
        rest.pop("reuse", None)
    if "reuse" in own:
        rest.pop("prefix_hit_frac", None)
    theirs, ours = rest.get("arrivals"), own.get("arrivals")
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        same = ours.get("kind", theirs.get("kind")) == theirs.get("kind")
        own["arrivals"] = {**theirs, **ours} if same else dict(ours)
    return {**rest, **own}

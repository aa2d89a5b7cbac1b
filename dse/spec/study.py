"""A study: a model, targets, a workload, a goal and the space to search."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dse import catalog
from dse.spec.base import Location, Spec, exclusive, fault, folder_of
from dse.spec.cache import Cache
from dse.spec.choice import EngineChoice
from dse.spec.grid import GridSpec
from dse.spec.hardware import Hardware
from dse.spec.link import Link
from dse.spec.load import Loaded, Override, Source, is_text, load
from dse.spec.objective import Objective
from dse.spec.plain import plain_data
from dse.spec.quantity import Name, Whole
from dse.spec.reference import Named
from dse.spec.routing import RoutingSpec
from dse.spec.space import Space
from dse.spec.workload import Workload
from dse.units import describe


def _as_list(raw: Any) -> Any:
    if isinstance(raw, list | tuple):
        if not raw:
            raise fault("found an empty list; expected at least one name")
        return raw
    return [raw]


def _distinct(models: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(models):
        if name in models[:index]:
            raise fault(f"found model {name!r} twice", (index,))
    return models


class _OneOrMore:
    """JSON Schema of a field that takes one item or a list of them."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], {**several, "minItems": 1}]}


def _one_each(targets: tuple[Hardware, ...]) -> tuple[Hardware, ...]:
    names = [target.name for target in targets]
    for index, name in enumerate(names):
        if name in names[:index]:
            hint = "; is one of them a copy of the other? Give it a name of its own"
            raise fault(f"found target {name!r} twice{hint}", (index,))
    return targets


Models = Annotated[
    tuple[Name, ...], BeforeValidator(_as_list), AfterValidator(_distinct), _OneOrMore()
]
Targets = Annotated[
    tuple[Annotated[Hardware, Named("hardware")], ...],
    BeforeValidator(_as_list),
    AfterValidator(_one_each),
    _OneOrMore(),
]


class Pools(Spec):
    """Targets of the two pools of a disaggregated deployment."""

    prefill: Targets
    decode: Targets


class Budget(Spec):
    """What a deployment may use."""

    accelerators: Annotated[int, Whole(1, 10_000_000)]


@dataclass(frozen=True, slots=True)
class Target:
    """What one recommendation is for: the accelerators of both pools."""

    name: str
    prefill: Hardware
    decode: Hardware


class Study(Spec):
    """Everything one run needs; named blocks have been read and stand here whole."""

    study: Name
    description: str = ""
    model: Models
    hardware: Targets | None = None
    pools: Pools | None = None
    engine: EngineChoice
    workload: Annotated[Workload, Named("workloads")]
    objective: Annotated[Objective, Named("objectives")]
    budget: Budget | None = None
    space: Space = Field(default_factory=Space)
    routing: RoutingSpec = Field(default_factory=RoutingSpec)
    link: Link | None = None
    cache: Cache | None = None
    grid: GridSpec | None = None
    seed: Annotated[int, Whole(0, 2**32 - 1)] = 0

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        written = exclusive(data, "hardware", "pools")
        if len(written) == 2:
            yield ("pools",), "found both hardware and pools; expected one of them"
        elif not written:
            yield (), "names no target; expected hardware: or pools: {prefill: ..., decode: ...}"

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        if self.pools is not None and self.space.mode != ("disaggregated",):
            yield (
                ("pools",),
                f"pools serve disaggregated; space.mode is {' and '.join(self.space.mode)}; "
                "expected mode: disaggregated",
            )
        if self.link is not None and "disaggregated" not in self.space.mode:
            yield (
                ("link",),
                "applies to disaggregated serving only; set space.mode: disaggregated",
            )
        workload = self.workload
        if self.cache is not None and workload.reuse is None and not workload.prefix_hit_frac:
            yield (
                ("cache",),
                "holds what prompts repeat, and the workload repeats nothing; give workload.reuse "
                "(a share by cache size) or workload.prefix_hit_frac",
            )

    @field_validator("model")
    @classmethod
    def _absolute(cls, models: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """A file or folder by its absolute path, so that a resolved study runs from anywhere."""
        return tuple(_located(model, info) for model in models)

    def of_model(self, model: str) -> Study:
        """The same study of one of its models."""
        return self.model_copy(update={"model": (model,)})

    def targets(self) -> tuple[Target, ...]:
        """One entry per target, or per pair of the pools' targets."""
        if self.pools is None:
            return tuple(Target(one.name, one, one) for one in self.hardware or ())
        return tuple(
            Target(f"{first.name}+{second.name}", first, second)
            for first in self.pools.prefill
            for second in self.pools.decode
        )

    def resolved(self) -> dict[str, Any]:
        """Plain data with every default and named block written out; loads to an equal study."""
        data = plain_data(self)
        assert isinstance(data, dict)
        return data


def _located(model: str, info: ValidationInfo) -> str:
    try:
        path = folder_of(info.context) / Path(model).expanduser()
        exists = path.exists()
    except (OSError, RuntimeError):  # too long a name; no home folder
        raise fault(f"found {describe(model)}; expected a name or a path") from None
    if exists:
        return str(path.resolve())
    if model.startswith((".", "/", "~")) or model.endswith(".json"):
        raise fault(f"found {describe(model)}; no such file: {path}")
    return model


def read_study(source: Source, overrides: Iterable[Override] = ()) -> Loaded[Study]:
    """A study by path, catalogue name, YAML text or mapping, and the files that were read.

    Raises SpecError with every fault at once.
    """
    if isinstance(source, str) and _is_name(source):
        return load(Study, catalog.resolve("studies", source), overrides)
    return load(Study, source, overrides)


def load_study(source: Source, overrides: Iterable[Override] = ()) -> Study:
    """Like `read_study`, the study alone."""
    return read_study(source, overrides).spec


def _is_name(source: str) -> bool:
    if is_text(source) or catalog.is_path(source):
        return False
    # A folder of a study's name, such as the one that its run left, hides no study.
    named = os.path.isdir(source) and source in catalog.names("studies")
    return named or not os.path.exists(source)

"""Numbers of the serving engine: its overheads, and those of its kernels' laws.

One parameter of the engine stands in the laws of many operators and number formats, in both pools
and in draft layers; a factor scales it in all of them, fitted or prior.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from dse.cost.laws import ProductLaw
from dse.cost.types import Engine
from dse.lower.laws import ELEMENTWISE, PRIORS
from dse.lower.study import Problem
from dse.sensitivity.handles import Parameter, number, paths, unit_of
from dse.sensitivity.places import Place, Root, Step, at
from dse.spec.engine import PARAMETERS

# What is 0 or 1 by choice, or fixes what others are shares of, is no number to move a little.
_SWITCHES: Final = ("all_to_all_share", "holds_first_token")
_NOT_HERE: Final = ("elementwise", "element_passes", "draft_acceptance_frac", *_SWITCHES)
_GROWTHS: Final = ("repack_frac",)
_SIDES: Final = ("source_engine", "sink_engine")
_LAWS: Final = {**PRIORS, "elementwise": ELEMENTWISE}
# Of the laws alone: no engine states them, and where nothing is fitted they are 0.
_FITTED_ONLY: Final = ("unit_s", "ramp_bytes", "slot_s")


def engine_numbers(problem: Problem, root: Root) -> Iterator[Parameter]:
    """Fitted times and shares; the engines of both pools move together."""
    for field in dataclasses.fields(Engine):
        name = field.name
        if field.metadata.get("static") or name in _NOT_HERE or name.startswith("basis_"):
            continue
        yield _of_engine(name, root)
    in_laws = {parameter for priors in _LAWS.values() for parameter in priors.values()}
    for name in PARAMETERS:
        if name in in_laws:
            yield _of_laws(name, problem, root)
    for name in _FITTED_ONLY:
        yield _of_laws(name, problem, root)
    yield _of_engine("element_passes", root)


def _of_engine(name: str, root: Root) -> Parameter:
    value = float(at(root, ("system", "sink_engine", name)))
    return _parameter(name, value, paths(*(("system", side, name) for side in _SIDES)))


def _parameter(name: str, value: float, places: tuple[Place, ...]) -> Parameter:
    share = name.endswith("_frac") and name not in _GROWTHS
    most = 1.0 if share else float("inf")
    return Parameter(f"engine.{name}", unit_of(name), value, "engine", places, most)


def _of_laws(name: str, problem: Problem, root: Root) -> Parameter:
    """Its value is the engine's prior, or the largest in use where sets are fitted."""
    places = tuple(Place(path) for path in _law_paths(name, root))
    laws = problem.laws["decode"]
    prior = laws.parameters.get(name, 0.0)
    if laws.kernels is None and problem.laws["prefill"].kernels is None:
        return _parameter(name, prior, places)
    largest = max((number(root, place.path) for place in places), default=prior)
    return _parameter(name, largest, places)


def _law_paths(name: str, root: Root) -> Iterator[tuple[Step, ...]]:
    """Where a parameter of the engine, or a number of the laws alone, stands."""
    for field in _fields_of(name, "elementwise"):
        yield from (("system", side, "elementwise", field) for side in _SIDES)
    for pool in ("prefill", "decode"):
        formats = at(root, (pool, "formats"))
        bags: list[tuple[Step, ...]] = [(pool, "formats")]
        if formats.draft is not None:
            bags.append((pool, "formats", "draft"))
        for bag in bags:
            for kind in PRIORS:
                for field in _fields_of(name, kind):
                    yield from _in_law((*bag, kind), field, root)


def _fields_of(name: str, kind: str) -> Iterator[str]:
    for field, parameter in _LAWS[kind].items():
        if name in ((field,) if parameter is None else (parameter,)):
            yield field


def _in_law(path: tuple[Step, ...], field: str, root: Root) -> Iterator[tuple[Step, ...]]:
    """A field of a law, of each of several laws, or of each part of the model."""
    law = at(root, path)
    if law is None:
        return
    if isinstance(law, tuple):
        for i in range(len(law)):
            yield (*path, i, field)
        return
    if path[-1] == "grouped" and field in ProductLaw.__dataclass_fields__:
        path = (*path, "product")
    value = at(root, (*path, field))
    if isinstance(value, dict):
        yield from ((*path, field, part) for part in value)
    else:
        yield (*path, field)

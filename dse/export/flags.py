"""What the axes of a design are called by an engine's version: tables out of the catalogue.

`dse/catalog/flags/ENGINE.yaml` maps knobs to flags; `accepted/ENGINE-VERSION.txt` beside it lists
every flag that the version takes, so that none is written that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

import dse.catalog
from dse.errors import DseError, did_you_mean, one_of
from dse.spec.base import Spec
from dse.spec.load import load

Takes = Literal["value", "switch", "json"]
Kind = Literal["value", "values", "switch"]
_HERE: Final = Path(dse.catalog.__file__).resolve().parent / "flags"


class Flag(Spec):
    """One knob's name on a command line, from version `since` to version `until`."""

    knob: str
    flag: str
    takes: Takes = "value"
    per: Literal["rank", "replica"] | None = None
    values: dict[str, str] = Field(default_factory=dict)
    since: str = ""
    until: str = ""
    meaning: str
    source: str


class Release(Spec):
    """A version that flags were read in, and for Dynamo the releases of engines in it."""

    source: str
    carries: dict[str, str] = Field(default_factory=dict)


class Table(Spec):
    """An engine's flags over its versions, which stand in their order."""

    engine: str
    program: tuple[str, ...]
    default: str
    vendors: tuple[str, ...]
    image: str
    versions: dict[str, Release]
    flags: tuple[Flag, ...] = ()

    def release(self, version: str | None) -> str:
        """A known version; without one, the default. Raises DseError with those that are known."""
        if version is None:
            return self.default
        plain = version.strip().removeprefix("v")
        if plain not in self.versions:
            raise DseError(
                f"--engine-version: the flags of {self.engine} {version!r:.40} were never read"
                f"{did_you_mean(plain, self.versions)} Known: {', '.join(self.versions)}"
            )
        return plain

    def flag(self, knob: str, version: str) -> Flag | None:
        """What a knob is called in a version; None where it has no name there."""
        order = list(self.versions)
        here = order.index(version)
        for one in self.flags:
            first = order.index(one.since) if one.since else 0
            last = order.index(one.until) if one.until else len(order) - 1
            if one.knob == knob and first <= here <= last:
                return one
        return None

    def knobs(self, version: str) -> dict[str, Flag]:
        """Every knob that a version has."""
        names = dict.fromkeys(one.knob for one in self.flags)
        found = {name: self.flag(name, version) for name in names}
        return {name: one for name, one in found.items() if one is not None}


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every flag of a version, under each of its spellings: (first spelling, what it takes)."""

    flags: Mapping[str, tuple[str, Kind]]

    def __contains__(self, flag: object) -> bool:
        return flag in self.flags


def engines() -> list[str]:
    """Engines with a table of flags."""
    return sorted(path.stem for path in _HERE.glob("*.yaml"))


@lru_cache(maxsize=16)
def table(engine: str) -> Table:
    """An engine's table. Raises DseError for an engine without one."""
    path = _HERE / f"{engine}.yaml"
    if engine not in engines():
        raise DseError(
            f"no flags of {engine!r:.40} are known{did_you_mean(engine, engines())} "
            f"Known: {one_of(engines(), 'and')}"
        )
    return load(Table, path).spec


@lru_cache(maxsize=16)
def accepted(engine: str, version: str) -> Accepted:
    """What the parser of a version takes."""
    text = (_HERE / "accepted" / f"{engine}-{version}.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[str, Any]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        kind, *names = line.split()
        found.update(dict.fromkeys(names, (names[0], kind)))
    return Accepted(found)

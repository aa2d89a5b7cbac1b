"""Errors that a user can cause, each with a place, what was found and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


class DseError(Exception):
    """Base of every error that a user can cause; `exit_code` is what a command exits with."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one file: `file:line:column: path: message`, leaving out what is unknown."""

    file: str | None
    line: int | None
    column: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        return ": ".join(part for part in (":".join(where), self.path, self.message) if part)


class SpecError(DseError):
    """A faulty file or value; `faults` holds every fault found, in the order of the file."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: list[Fault] = list(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def of(cls, message: str, *, file: str | None = None, path: str = "") -> SpecError:
        """An error with a single fault that has no line to point at."""
        return cls([Fault(file, None, None, path, message)])


class InfeasibleError(DseError):
    """No design satisfies every limit."""

    exit_code: ClassVar[int] = 3


def nearest(name: str, allowed: Iterable[str], n: int = 3) -> list[str]:
    """Up to `n` of the allowed names that look most like `name`, best first, in any case."""
    names = list(dict.fromkeys(allowed))
    folded = _fold(name)
    # Matching is quadratic in the length, and a name of a megabyte has no near match.
    matcher = difflib.SequenceMatcher(b=folded[:200])
    scored = []
    for candidate in names:
        matcher.set_seq1(_fold(candidate))
        contained = 0.8 if len(folded) >= 2 and folded in _fold(candidate) else 0.0
        scored.append((max(contained, matcher.ratio()), candidate))
    close = [item for item in scored if item[0] >= 0.6]
    # The sort is stable: among equals the order of the allowed names decides.
    return [item[1] for item in sorted(close, key=lambda item: -item[0])][:n]


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'a' or 'b'?` for the nearest allowed names, or an empty string."""
    found = nearest(name, allowed)
    return f"; did you mean {one_of([repr(item) for item in found], 'or')}?" if found else ""


def one_of(items: Sequence[str], conjunction: str = "or") -> str:
    """`a, b or c` as people write a list."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


def _fold(name: str) -> str:
    return name.casefold().replace("_", "-")

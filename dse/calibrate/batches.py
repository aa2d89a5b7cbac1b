"""Pricing measured rows together: all of one structure in one interpreted call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from dse.errors import DseError
from dse.search.programs import of_any_number, program_of
from dse.serving.types import Deployment, Outcome, System

Row = TypeVar("Row")
Lowered = tuple[System, Deployment]


class Figures(NamedTuple):
    """A row's metrics and its verdict."""

    metrics: dict[str, float]
    reason: int
    miss: float


def priced_rows(
    rows: Sequence[Row],
    lower: Callable[[Row], Lowered],
    price: Callable[[System, Deployment], Outcome],
    progress: Callable[[int], None] | None = None,
) -> list[Figures | str]:
    """The figures of every row, or why it cannot be expressed (the text of `lower`'s DseError).

    Rows that lower to equal numbers are priced once. A file has a few groups of a few hundred rows:
    compiling each would take longer than interpreting it.
    """
    done: dict[int, Figures | str] = {}
    groups: dict[Any, list[tuple[int, list[Any]]]] = {}
    for i, row in enumerate(rows):
        try:
            leaves, structure = jax.tree.flatten(lower(row))
        except DseError as error:
            done[i] = str(error)
            continue
        groups.setdefault((structure, _shapes(leaves)), []).append((i, leaves))
    for (structure, _), members in groups.items():
        columns, places = _distinct([leaves for _, leaves in members])
        found = _priced(jax.tree.unflatten(structure, columns), len(columns[0]), price)
        done |= {i: found[place] for (i, _), place in zip(members, places, strict=True)}
        if progress is not None:
            progress(len(members))
    return [done[i] for i in range(len(rows))]


def _shapes(leaves: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(() if isinstance(leaf, float) else np.shape(leaf) for leaf in leaves)


def _distinct(rows: Sequence[Sequence[Any]]) -> tuple[list[NDArray[np.float64]], list[int]]:
    """The leaves of different rows, each stacked [n, ...], and which of them each row is."""
    columns = [np.array(leaves, np.float64) for leaves in zip(*rows, strict=True)]
    whole = np.concatenate([column.reshape(len(rows), -1) for column in columns], axis=1)
    seen: dict[bytes, int] = {}
    places = [seen.setdefault(row.tobytes(), len(seen)) for row in whole]
    first = np.unique(places, return_index=True)[1]
    return [column[first] for column in columns], places


def _figures(
    systems: System, designs: Deployment, price: Callable[[System, Deployment], Outcome]
) -> tuple[Any, Any, Any]:
    def one(system: System, design: Deployment) -> tuple[Any, Any, Any]:
        outcome = price(system, design)
        return outcome.metrics, outcome.reason, outcome.miss

    found: tuple[Any, Any, Any] = jax.vmap(one)(systems, designs)
    return found


def _priced(
    stacked: Lowered, n: int, price: Callable[[System, Deployment], Outcome]
) -> list[Figures]:
    program = program_of(_figures, of_any_number(stacked), (price,))
    found = jax.tree.unflatten(program.structure, program.run(*stacked, size=n))
    metrics, reasons, misses = found
    return [
        Figures(
            {name: float(v[j]) for name, v in metrics.items()}, int(reasons[j]), float(misses[j])
        )
        for j in range(n)
    ]

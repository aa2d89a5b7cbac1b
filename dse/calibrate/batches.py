"""Pricing measured rows together: all of one structure in one interpreted call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

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
    groups: dict[Any, list[tuple[int, Lowered]]] = {}
    for i, row in enumerate(rows):
        try:
            pair = lower(row)
        except DseError as error:
            done[i] = str(error)
            continue
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(pair))
        groups.setdefault((jax.tree.structure(pair), shapes), []).append((i, pair))
    for members in groups.values():
        distinct, places = _distinct([pair for _, pair in members])
        found = _priced(distinct, price)
        done |= {i: found[place] for (i, _), place in zip(members, places, strict=True)}
        if progress is not None:
            progress(len(members))
    return [done[i] for i in range(len(rows))]


def _distinct(pairs: Sequence[Lowered]) -> tuple[list[Lowered], list[int]]:
    """Different pairs, and which of them each one is."""
    seen: dict[Any, int] = {}
    kept: list[Lowered] = []
    places: list[int] = []
    for pair in pairs:
        key = tuple(np.asarray(leaf, np.float64).tobytes() for leaf in jax.tree.leaves(pair))
        if key not in seen:
            seen[key] = len(kept)
            kept.append(pair)
        places.append(seen[key])
    return kept, places


def _figures(
    systems: System, designs: Deployment, price: Callable[[System, Deployment], Outcome]
) -> tuple[Any, Any, Any]:
    def one(system: System, design: Deployment) -> tuple[Any, Any, Any]:
        outcome = price(system, design)
        return outcome.metrics, outcome.reason, outcome.miss

    found: tuple[Any, Any, Any] = jax.vmap(one)(systems, designs)
    return found


def _priced(
    pairs: Sequence[Lowered], price: Callable[[System, Deployment], Outcome]
) -> list[Figures]:
    stacked = jax.tree.map(lambda *leaves: np.asarray(leaves, np.float64), *pairs)
    program = program_of(_figures, of_any_number(stacked), (price,))
    found = jax.tree.unflatten(program.structure, program.run(*stacked, size=len(pairs)))
    metrics, reasons, misses = found
    return [
        Figures(
            {name: float(v[j]) for name, v in metrics.items()}, int(reasons[j]), float(misses[j])
        )
        for j in range(len(pairs))
    ]

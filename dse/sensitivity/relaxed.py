"""One design with its numbers scaled: figures in float64, and their exact derivatives.

The whole is one program for any number of columns. A column is the design with every number times
a factor of its own, so that one call prices a number up and down, many numbers at once, or a whole
curve. Derivatives go forward through the operating point by the implicit function theorem; whether
a limit is broken is a hard mask and has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.lower.study import Problem
from dse.search.exact import REFINEMENTS
from dse.search.programs import run_on_designs
from dse.sensitivity.handles import Parameter
from dse.sensitivity.places import Place, deployed, root_of, scaled
from dse.serving.evaluate import evaluate
from dse.serving.promises import attained, is_percentile
from dse.serving.reasons import Reason
from dse.serving.types import GOODPUT, Deployment, Outcome, System
from dse.space.designs import digit_arrays, gathered
from dse.struct import Scalar

Floats = NDArray[np.float64]
Named = dict[str, Any]
ACCELERATORS: Final = "accelerators"
MISSED: Final = "missed_frac"


class Figures(NamedTuple):
    """Columns of a priced design: named figures [n], and the first limit that each breaks."""

    named: dict[str, Any]
    reason: Any

    @property
    def feasible(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.asarray(self.reason) == int(Reason.OK)
        return found


class _Names(NamedTuple):
    """What is traced: the parameters with their places, and the figures."""

    places: tuple[tuple[str, tuple[Place, ...]], ...]
    wanted: tuple[str, ...]


def _named_figures(system: System, design: Deployment, outcome: Outcome, names: _Names) -> Named:
    metrics = {**outcome.metrics, ACCELERATORS: jnp.asarray(design.accelerators)}
    if MISSED in names.wanted:
        metrics[MISSED] = 1.0 - attained(outcome.point.tails, system.limits)
    return {name: jnp.asarray(metrics[name]) for name in names.wanted}


def _priced(
    system: System, design: Deployment, logs: Named, n_refinements: Scalar, names: _Names
) -> tuple[Named, Any]:
    root: Any = root_of(system, design)
    for name, places in names.places:
        root = scaled(root, places, jnp.exp(logs[name]))
    changed, moved = deployed(root, design)
    percentiles = tuple(name for name in names.wanted if is_percentile(name))
    outcome = evaluate(changed, moved, n_refinements, percentiles)
    return _named_figures(changed, moved, outcome, names), outcome.reason


def _plain(system: System, columns: Any, n_refinements: Scalar, names: _Names) -> Any:
    design, logs = columns
    return Figures(*_priced(system, design, logs, n_refinements, names))


def _sloped(system: System, columns: Any, n_refinements: Scalar, names: _Names) -> Any:
    design, logs, towards = columns

    def at(moved: Named) -> tuple[Named, Any]:
        return _priced(system, design, moved, n_refinements, names)

    values, slopes, reason = jax.jvp(at, (logs,), (towards,), has_aux=True)
    return Figures(values, reason), slopes


class Relaxed:
    """A design of one problem as a function of the numbers that `parameters` name."""

    def __init__(
        self, problem: Problem, parameters: Sequence[Parameter], *, index: int = 0
    ) -> None:
        self.problem = problem
        self.parameters = {one.name: one for one in parameters}
        self.design = gathered(problem.tables, digit_arrays(problem.grid, [index]))
        self.names = _Names(tuple((one.name, one.places) for one in parameters), wanted_of(problem))

    def of(self, problem: Problem) -> Relaxed:
        """The same design of another problem of the same space, lowered with a number changed."""
        return Relaxed(problem, list(self.parameters.values()))

    def values(self, logs: Mapping[str, Any]) -> Figures:
        """Figures [n] at ln factors [n] by name; names left out stay as they are."""
        found: Figures = self._run(logs, {}, _first)
        return found

    def slopes(
        self, logs: Mapping[str, Any], towards: Mapping[str, Any]
    ) -> tuple[Figures, dict[str, Any]]:
        """(figures [n], their derivatives [n] along the directions of ln factors)."""
        found: tuple[Figures, dict[str, Any]] = self._run(logs, towards, _both)
        return found

    def _run(
        self, logs: Mapping[str, Any], towards: Mapping[str, Any], part: Callable[[Any], Any]
    ) -> Any:
        n = max((np.size(one) for one in (*logs.values(), *towards.values())), default=1)
        columns: Any = (self.design, self._columns(logs, n), self._columns(towards, n))
        system = self.problem.system
        return run_on_designs(
            _sloped,
            system,
            columns,
            REFINEMENTS,
            names=(self.names,),
            part=part,
        )

    def _columns(self, given: Mapping[str, Any], n: int) -> dict[str, Any]:
        zero = np.zeros(n)
        return {name: given.get(name, zero) + zero for name in self.parameters}


class Undifferentiated(Relaxed):
    """A design that is only priced: traced in a third of the time."""

    def _run(
        self, logs: Mapping[str, Any], towards: Mapping[str, Any], part: Callable[[Any], Any]
    ) -> Any:
        n = max((np.size(one) for one in logs.values()), default=1)
        columns: Any = (self.design, self._columns(logs, n))
        system = self.problem.system
        return run_on_designs(_plain, system, columns, REFINEMENTS, names=(self.names,))


def _first(found: Any) -> Any:
    return found[0]


def _both(found: Any) -> Any:
    return found


def wanted_of(problem: Problem) -> tuple[str, ...]:
    """The goal's metric, the rate, and where the load is given the latencies that are promised."""
    limits = problem.system.limits
    names = [problem.goal.metric, "requests_per_s", ACCELERATORS]
    if problem.system.traffic.load_kind != GOODPUT:
        names += [f"{latency}_mean_s" for latency in limits.means]
        names += [f"{key}_s" for key in limits.percentiles]
        names += [MISSED] if limits.each else []
    return tuple(dict.fromkeys(names))


def one_hot(names: Sequence[str]) -> dict[str, Floats]:
    """A column for each name, in which it alone is 1."""
    return dict(zip(names, np.eye(len(names)), strict=True))

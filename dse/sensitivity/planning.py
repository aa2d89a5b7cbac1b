"""Shadow prices: the planned metric's derivatives, by the multipliers of what binds at the optimum.

Solved by sequential quadratic programming from the best point of a coarse lattice, the recommended
design among them; integers (degrees, formats, drafts) stay as they are. Multipliers come from the
stationarity conditions of the limits that bind, by nonnegative least squares; what of them is not
met is the residual. Where the optimum lies on a kink of a limit itself, such as a chunk that just
holds the mean prompt, the slopes of both sides take part, each with a multiplier of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize, nnls

from dse.sensitivity.envelope import Floats, Planning, Rows
from dse.sensitivity.local import STEP
from dse.sensitivity.relaxed import Relaxed

# A limit within this of binding binds (in ln).
_BINDS: Final = 1e-5
# Stationarity is met to this where the optimum was found.
CONVERGED: Final = 1e-3
_ROUNDS: Final = 60
# How far beside a kink its sides are looked at (in ln).
_BESIDE: Final = 1e-5
_LATTICE: Final = 5  # points of each knob
_PRECISION: Final = 1e-11


@dataclass(frozen=True)
class Planned:
    """The continuous optimum of a design, and what binds there."""

    planning: Planning
    y: Floats  # ln factors of the knobs
    log_metric: float  # s ln metric
    points: Floats  # [p, k], where slopes are taken: y, or both sides of it along each knob
    multipliers: Floats  # [p, m], one for each of these and each limit
    residual: float

    @property
    def converged(self) -> bool:
        return self.residual < CONVERGED

    @property
    def values(self) -> dict[str, float]:
        """The planned value of each knob."""
        parameters = self.planning.relaxed.parameters
        return {
            knob.name: parameters[knob.name].value * float(np.exp(one))
            for knob, one in zip(self.planning.knobs, self.y, strict=True)
        }

    @property
    def binding(self) -> dict[str, float]:
        """Multiplier of each limit that binds."""
        pairs = zip(self.planning.limits, self.multipliers.sum(axis=0).tolist(), strict=True)
        return {limit.name: mu for limit, mu in pairs if mu > 1e-9}

    def elasticities(self, names: Sequence[str]) -> dict[str, float]:
        """d ln metric / d ln number of the planned metric, by name."""
        found = np.zeros(len(names))
        for y, mu in zip(self.points, self.multipliers, strict=True):
            if np.any(mu > 0.0):
                found = found + mu @ self.planning.at(y, names).slopes
        sign = self.planning.relaxed.problem.goal.sign
        return dict(zip(names, (sign * found).tolist(), strict=True))

    def varied(self, above: Relaxed, below: Relaxed) -> float:
        """The same of a number that is e^(+-STEP) of its value in the two designs' problems."""
        up, down = (self.planning.values(self.points, one) for one in (above, below))
        sign = self.planning.relaxed.problem.goal.sign
        return float(sign * np.sum(self.multipliers * (up - down)) / (2.0 * STEP))


class _Solver:
    """The problem as scipy sees it: variables (y, t), limits and slopes priced once for a point."""

    def __init__(self, planning: Planning) -> None:
        self.planning = planning
        self.names = [knob.name for knob in planning.knobs]
        self.of_metric = np.asarray([float(one.bounds_metric) for one in planning.limits])
        self.known: dict[bytes, Rows] = {}

    def rows(self, y: Floats) -> Rows:
        key = np.asarray(y, np.float64).tobytes()
        if key not in self.known:
            if self.names:
                self.known[key] = self.planning.at(y, self.names)
            else:
                values = self.planning.values(y)
                self.known[key] = Rows(values, np.zeros((len(values), 0)))
        return self.known[key]

    def gaps(self, x: Floats) -> Floats:
        """[m], at least 0 where the limits hold."""
        return np.asarray(self.rows(x[:-1]).values - self.of_metric * x[-1])

    def gap_slopes(self, x: Floats) -> Floats:
        return np.concatenate([self.rows(x[:-1]).slopes, -self.of_metric[:, None]], axis=1)

    def start(self) -> Floats:
        """Where to begin: a limit that does not bind has no slope to follow."""
        knobs = self.planning.knobs
        y = np.zeros(len(knobs))
        if not knobs:
            return y
        lattice = [np.linspace(one.low, one.high, _LATTICE) for one in knobs]
        points = np.stack([axis.ravel() for axis in np.meshgrid(*lattice)], axis=-1)
        points = np.concatenate([y[None], points])
        rows = self.planning.values(points)
        bounding = self.of_metric > 0.0
        kept = np.all(rows[:, ~bounding] >= -_BINDS, axis=1)
        score = np.where(kept, rows[:, bounding].min(axis=1), -np.inf)
        found = int(np.argmax(score))
        # What is as good without moving stays.
        return y if score[0] >= score[found] - _BINDS else points[found]

    def most(self, y: Floats) -> float:
        """The metric at `y`: the smallest of the rows that bound it."""
        return float(self.rows(y).values[self.of_metric > 0.0].min())


def planned(planning: Planning) -> Planned:
    """The continuous optimum of a design."""
    solver, knobs = _Solver(planning), planning.knobs
    start = solver.start()
    y = start
    if knobs:
        low, high = np.asarray([[one.low, one.high] for one in knobs]).T
        found = minimize(
            lambda x: -x[-1],
            np.append(start, solver.most(start)),
            jac=lambda x: np.append(np.zeros(len(knobs)), -1.0),
            bounds=[*zip(low, high, strict=True), (None, None)],
            constraints=[{"type": "ineq", "fun": solver.gaps, "jac": solver.gap_slopes}],
            method="SLSQP",
            options={"maxiter": _ROUNDS, "ftol": _PRECISION},
        )
        moved = np.clip(found.x[:-1], low, high)
        # A solver that was led astray must not make the design worse.
        y = moved if solver.most(moved) >= solver.most(start) - _BINDS else start
    points = y[None]
    multipliers, residual = _multipliers(solver, y, points)
    if residual >= CONVERGED:
        units = _BESIDE * np.eye(len(knobs))
        points = np.concatenate([y[None], y + units, y - units])
        multipliers, residual = _multipliers(solver, y, points)
    return Planned(planning, y, solver.most(y), points, multipliers, residual)


def _multipliers(solver: _Solver, y: Floats, points: Floats) -> tuple[Floats, float]:
    """Multipliers [p, m] of the limits' slopes at points, and what they leave of stationarity."""
    rows, knobs = solver.rows(y), solver.planning.knobs
    t = solver.most(y)
    binding = np.flatnonzero(rows.values - solver.of_metric * t < _BINDS)
    slopes = [solver.rows(point).slopes for point in points]
    columns = [np.append(at[i], solver.of_metric[i]) for at in slopes for i in binding]
    for i, (knob, at) in enumerate(zip(knobs, y, strict=True)):
        unit = np.append(np.eye(len(knobs))[i], 0.0)
        columns += [unit] * int(at - knob.low < _BINDS) + [-unit] * int(knob.high - at < _BINDS)
    target = np.append(np.zeros(len(knobs)), 1.0)
    solution, residual = nnls(np.stack(columns, axis=1), target)
    found = np.zeros((len(points), len(rows.values)))
    found[:, binding] = solution[: found[:, binding].size].reshape(len(points), len(binding))
    return found, float(residual)

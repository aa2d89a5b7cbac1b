"""A grid's result as plain data, tables and figures: the same grid gives the same bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from dse.grid.chosen import best_rows, front_rows, nearest_row
from dse.grid.held import Held
from dse.grid.labels import axis_label, best_title, metric_label, tick
from dse.grid.plan import Dimension
from dse.grid.prepared import Grid
from dse.grid.reduce import edges, quantile
from dse.grid.run import Outcome
from dse.grid.tables import Table, table_of
from dse.report.figures import pareto
from dse.report.heatmaps import Side, heat_map, regime_map, slices
from dse.report.histogram import histogram
from dse.report.style import Theme
from dse.serving.reasons import Reason
from dse.spec.grid import factor_of

_QUANTILES: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MARKED: Final = {"0.05": "5 %", "0.5": "median", "0.95": "95 %"}  # quantiles in figures
_COARSE: Final = 8  # fine bins in one that is shown


@dataclass(frozen=True)
class GridResult:
    """Everything that a grid shows."""

    grid: Grid
    outcome: Outcome

    @property
    def held(self) -> tuple[Held, ...]:
        return self.outcome.held

    @property
    def points(self) -> int:
        """Designs priced, those of earlier runs of the same grid included."""
        return sum(held.found.evaluated for held in self.held)

    @cached_property
    def best(self) -> list[dict[str, Any]]:
        return best_rows(self.grid.whole, self.held, self.grid.spec.top)

    @cached_property
    def nearest(self) -> dict[str, Any] | None:
        return nearest_row(self.grid.whole, self.held)

    @cached_property
    def pareto(self) -> list[dict[str, Any]]:
        wanted = self.grid.spec.pareto
        return front_rows(self.grid.whole, self.held) if wanted else []

    @cached_property
    def histograms(self) -> dict[str, dict[str, Any]]:
        """Metric -> edges of its bins and how many feasible designs are in each."""
        return {name: self._histogram(name) for name in self.grid.spec.histogram}

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        whole = self.grid.whole
        return tuple(table_of(whole, self.held, i) for i in range(len(whole.tables)))

    def to_json(self) -> dict[str, Any]:
        """The document without anything that differs between machines and runs."""
        whole, spec = self.grid.whole, self.grid.spec
        goal = whole.parts[0].base.goal
        return {
            "schema": "dse.grid/1",
            "study": self.grid.study.study,
            "points": self.points,
            "designs": whole.size,
            "metric": goal.metric,
            "better": "maximize" if goal.sign > 0 else "minimize",
            "axes": list(self._axes()),
            "counts": self._counts(),
            "best": self.best,
            "nearest": self.nearest,
            "pareto": self.pareto,
            "quantiles": {name: self._quantiles(name) for name in spec.quantiles},
            "histograms": self.histograms,
            "tables": [self._table(table) for table in self.tables],
            "files": [{"name": n, "sha256": s, "designs": k} for n, s, k in self.outcome.files],
        }

    def figures(self, theme: Theme) -> Iterator[tuple[str, Any]]:
        """(name, figure) of all that is kept: tables over axes, histograms, the Pareto set."""
        yield from self._table_figures(theme)
        for name, found in self.histograms.items():
            quantiles = self._quantiles(name) if name in self.grid.spec.quantiles else {}
            marked = {said: quantiles.get(share) for share, said in _MARKED.items()}
            marks = {said: value for said, value in marked.items() if value is not None}
            title = "Feasible designs of the grid"
            look: dict[str, Any] = {"label": metric_label(name), "title": title, "theme": theme}
            yield f"histogram-{name}", histogram(**found, marks=marks, **look)
        if self.pareto:
            # One line: what a target has of this set is not all that no other design of it beats.
            points = [row["metrics"] for row in self.pareto]
            title = "Designs of the grid that none beats in both"
            yield "pareto", pareto(points, title=title, theme=theme)

    def _table_figures(self, theme: Theme) -> Iterator[tuple[str, Any]]:
        spec, names = self.grid.spec, list(self.grid.whole.tables)
        goal = self.grid.whole.parts[0].base.goal
        look: dict[str, Any] = {"label": metric_label(goal.metric), "theme": theme}
        for kind, wanted in (("heat", spec.heat), ("slice", spec.slices), ("regime", spec.regime)):
            for asked in wanted:
                axes = tuple(name.removeprefix("space.") for name in asked)
                table = self.tables[names.index(axes)]
                x, y, *who = (self._side(dimension) for dimension in table.dimensions)
                name = f"{kind}-{'-'.join(axes)}"
                if kind == "heat":
                    title = best_title(goal.metric, goal.sign, "in each cell")
                    yield name, heat_map(x, y, table.score, title=title, **look)
                elif kind == "slice":
                    numbers = self._numbers(table.dimensions[0])
                    yield name, slices(x, y, table.score, numbers=numbers, **look)
                else:
                    yield name, regime_map(x, y, who[0].ticks, table.score, sign=goal.sign, **look)

    def _axes(self) -> Iterator[dict[str, Any]]:
        for axis, numbers in zip(self.grid.whole.axes, self.grid.numbers, strict=True):
            yield {"name": axis.path, "values": list(axis.labels), "numbers": numbers}

    def _counts(self) -> dict[str, dict[str, int]]:
        """Mode -> reason -> designs."""
        found: dict[str, Counter[str]] = {}
        for part, held in zip(self.grid.whole.parts, self.held, strict=True):
            own = found.setdefault(part.base.mode, Counter())
            own.update({Reason(code).name.lower(): n for code, n in held.found.counts.items()})
        return {mode: dict(sorted(counts.items())) for mode, counts in found.items()}

    def _merged_histogram(self, name: str) -> np.ndarray:
        number = self.grid.whole.plans[0].histograms.index(name)
        total: np.ndarray = sum(held.histograms[number] for held in self.held)  # type: ignore[assignment]
        return total

    def _quantiles(self, name: str) -> dict[str, float | None]:
        counts = self._merged_histogram(name)
        found = {f"{share:g}": quantile(counts, share) for share in _QUANTILES}
        return {share: None if math.isnan(value) else value for share, value in found.items()}

    def _histogram(self, name: str) -> dict[str, Any]:
        """Bins of a quarter octave, from the first to the last that holds a design."""
        counts = self._merged_histogram(name).reshape(-1, _COARSE).sum(axis=1)
        ends = edges()[::_COARSE]
        filled = np.flatnonzero(counts)
        if not filled.size:
            return {"edges": [], "counts": []}
        first, last = int(filled[0]), int(filled[-1]) + 1
        ends[0] = 0.0  # the first bin holds all below it, zeros too
        return {"edges": ends[first : last + 1].tolist(), "counts": counts[first:last].tolist()}

    def _table(self, table: Table) -> dict[str, Any]:
        known = np.isfinite(table.score)
        rows = np.where(known, table.score.astype(object), np.array(None)).tolist()
        axes = [{"name": one.name, "values": list(one.values)} for one in table.dimensions]
        return {"axes": axes, "score": rows}

    def _numbers(self, dimension: Dimension) -> Sequence[float] | None:
        paths = [axis.path for axis in self.grid.whole.axes]
        if dimension.name in paths:
            return self.grid.numbers[paths.index(dimension.name)]
        whole = all(isinstance(value, int) for value in dimension.values)
        return [float(value) for value in dimension.values] if whole else None

    def _side(self, dimension: Dimension) -> Side:
        label = axis_label(dimension.name)
        numbers = self._numbers(dimension)
        values = [str(value) for value in dimension.values]
        factors = [factor_of(value) for value in values]
        if numbers is None or any(factor is not None for factor in factors):
            pairs = zip(factors, values, strict=True)
            shown = (value if factor is None else f"{factor:.3g}x" for factor, value in pairs)
            return Side(label, tuple(shown), factors.index(1.0) if 1.0 in factors else None)
        return Side(label, tuple(tick(dimension.name, number) for number in numbers))

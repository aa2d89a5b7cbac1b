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
from dse.grid.plan import Dimension
from dse.grid.reduce import edges, quantile
from dse.grid.run import Grid, Outcome
from dse.grid.tables import Table, table_of
from dse.report.format import label as plain_label
from dse.report.format import quantity
from dse.report.heatmaps import Side, heat_map, regime_map, slices
from dse.report.style import Theme
from dse.serving.reasons import Reason
from dse.spec.metrics import METRICS

_QUANTILES: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_COARSE: Final = 8  # fine bins in one that is shown

# Labels of axes that are met often; others are labelled by their path.
_LABELS: Final = {
    "workload.isl.mean": "Prompt (tokens, mean)",
    "workload.isl": "Prompt (tokens)",
    "workload.osl.mean": "Output (tokens, mean)",
    "workload.osl": "Output (tokens)",
    "workload.arrivals.rate": "Arrivals (requests/s)",
    "workload.concurrency": "Clients",
    "budget.accelerators": "Accelerators (budget)",
    "hardware": "Target",
}


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
            "pareto": front_rows(whole, self.held) if spec.pareto else [],
            "quantiles": {name: self._quantiles(name) for name in spec.quantiles},
            "histograms": {name: self._histogram(name) for name in spec.histogram},
            "tables": [self._table(table) for table in self.tables],
            "files": [{"name": n, "sha256": s, "designs": k} for n, s, k in self.outcome.files],
        }

    def figures(self, theme: Theme) -> Iterator[tuple[str, Any]]:
        """(name, figure) of every heat map, slice and regime map."""
        spec, names = self.grid.spec, list(self.grid.whole.tables)
        goal = self.grid.whole.parts[0].base.goal
        label = metric_label(goal.metric)
        look: dict[str, Any] = {"label": label, "theme": theme}
        for kind, wanted in (("heat", spec.heat), ("slice", spec.slices), ("regime", spec.regime)):
            for asked in wanted:
                axes = tuple(name.removeprefix("space.") for name in asked)
                table = self.tables[names.index(axes)]
                x, y, *who = (self._side(dimension) for dimension in table.dimensions)
                name = f"{kind}-{'-'.join(axes)}"
                if kind == "heat":
                    yield name, heat_map(x, y, table.score, **look)
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
        if numbers is None or any(value.startswith("x") for value in values):
            shown = (f"{float(v[1:]):.3g}x" if _is_factor(v) else v for v in values)
            return Side(label, tuple(shown))
        return Side(label, tuple(_tick(dimension.name, number) for number in numbers))


def _is_factor(value: str) -> bool:
    return value.startswith("x") and value[1:2].isdigit()


def _tick(name: str, number: float) -> str:
    if "(" in axis_label(name):  # the label says the unit
        return f"{number:.4g}" if abs(number) < 1e4 else f"{number:,.0f}"
    return quantity(name, number, 3)


def axis_label(name: str) -> str:
    """An axis for people: what it changes, or its path."""
    if name in _LABELS:
        return _LABELS[name]
    if name.startswith("objective.promises."):
        latency, _, statistic = name.rpartition(".")[2].partition("_")
        return f"Promise on {latency.upper()} {statistic}".rstrip()
    if name.startswith(("hardware.", "pools.")):
        *owner, last = name.split(".")
        of = f" of {owner[-1]}" if len(owner) > 1 else ""
        for unit in ("_usd_per_hour", "_bytes_per_s", "_flops_per_s", "_bytes", "_s"):
            last = last.removesuffix(unit)
        return f"{_capital(plain_label(last))}{of}"
    return _capital(plain_label(name))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def metric_label(name: str) -> str:
    """A metric with its unit."""
    metric = METRICS[name]
    plain = name.removesuffix("_s") if metric.unit == "s" else name
    for unit in ("_per_s_per_accelerator", "_per_s_per_user", "_per_s", "_per_usd", "_per_joule"):
        plain = plain.removesuffix(unit)
    per = " per accelerator" if name.endswith("_per_accelerator") else ""
    return f"{_metric_words(plain)} ({metric.unit}{per})" if metric.unit else _metric_words(plain)


def _metric_words(plain: str) -> str:
    latency, _, statistic = plain.partition("_")
    if latency in ("ttft", "tpot", "itl", "e2e"):
        return f"{latency.upper()} {statistic}"
    return _capital(plain.replace("_", " "))

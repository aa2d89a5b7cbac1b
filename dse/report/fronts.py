"""The Pareto set as a table: what users feel against what accelerators yield, a line a design."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from dse.report.format import quantity
from dse.report.tables import rows_table
from dse.spec.metrics import SPEED, THROUGHPUT

MOST_POINTS: Final = 10

_LATENCIES: Final = ("ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s")
_YIELDS: Final = (
    SPEED,
    THROUGHPUT,
    "prefix_hit_frac",
    "accelerators",
)
_DEGREES: Final = {"attention_tp": "tp", "attention_dp": "dp", "moe_ep": "ep", "pp": "pp"}

Point = Mapping[str, Any]


def front_table(points: Sequence[Point], most: int = MOST_POINTS) -> Table:
    """The table of a Pareto set that is not empty, with how many designs it leaves out below."""
    rows = pareto_rows(points, most)
    title = "Designs that no other beats in both speed per user and yield per accelerator"
    table = rows_table(rows, tuple(rows[0]), title=title)
    held = [
        f"{path}={axis_value(value)}"
        for path, value in points[0].get("what_if", {}).items()
        if not _differs(points, path)
    ]
    notes = [f"all at {', '.join(held)}"] if held else []
    if len(rows) < len(points):
        notes.append(f"{len(points) - len(rows)} more with --json")
    table.caption, table.caption_justify = "; ".join(notes) or None, "left"
    return table


def pareto_rows(points: Sequence[Point], most: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Rows of the front's table, at most `most` for each target, evenly taken and with both ends.

    `points` are those of `pareto` in `dse run --json` or `dse grid --json`; the columns are the
    keys of the first row. Models, targets and what-if axes are columns only where there are
    several. Of designs that read the same the first is shown.
    """
    several = [name for name in ("model", "hardware") if len({one[name] for one in points}) > 1]
    names = [*_LATENCIES, *_YIELDS]
    if not any(one["metrics"].get("prefix_hit_frac") for one in points):
        names.remove("prefix_hit_frac")
    headings = axis_headings(list(points[0].get("what_if", {}))) if points else {}
    crossed = {path: said for path, said in headings.items() if _differs(points, path)}
    groups: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, Any]]] = {}
    for one in points:
        row = (
            {name: one[name] for name in several}
            | {heading: axis_value(one["what_if"][path]) for path, heading in crossed.items()}
            | {name: one["metrics"].get(name) for name in names}
            | {"design": design_line(one["design"])}
        )
        read = tuple(quantity(name, value) for name, value in row.items())
        groups.setdefault((one["model"], one["hardware"]), {}).setdefault(read, row)
    return [row for group in groups.values() for row in _spread(list(group.values()), most)]


def _differs(points: Sequence[Point], path: str) -> bool:
    return len({one["what_if"][path] for one in points}) > 1


def axis_headings(paths: Sequence[str]) -> dict[str, str]:
    """Short headings of what-if axes: the last two parts of a path, where they tell it apart.

    Parts stand apart, so that a narrow column breaks between words.
    """
    short = {path: " ".join(path.split(".")[-2:]) for path in paths}
    taken = list(short.values())
    return {p: s if taken.count(s) == 1 else p.replace(".", " ") for p, s in short.items()}


def axis_value(text: str) -> str:
    """A value of a what-if axis with at most four digits: `x0.5946035575` -> "x0.5946"."""
    sign = "x" if text.startswith("x") else ""
    try:
        value = float(text.removeprefix("x"))
    except ValueError:
        return text
    return f"{sign}{value:.4g}" if math.isfinite(value) and "." in text else text


def speed_rows(levels: Sequence[Point]) -> list[dict[str, Any]]:
    """Rows of the table of the best designs by promised speed: `by_speed` in `dse run --json`."""
    several = [name for name in ("model", "hardware") if len({one[name] for one in levels}) > 1]
    return [
        {name: one[name] for name in several}
        | {"promised (tokens/s)": f"{one['speed_at_least']:.4g}" if one["speed_at_least"] else "-"}
        | {name: one["metrics"].get(name) for name in (*_YIELDS[:2], "requests_per_s")}
        | {"proof": one["proof"], "design": design_line(one["design"])}
        for one in levels
    ]


def design_line(design: Mapping[str, Any]) -> str:
    """A design in a few words: `2 x (tp 4, batch 64, chunk 2,048) fp8, cache bf16, draft 1`.

    Two pools stand as `prefill + decode`, each with its own degrees; degrees of one are left out.
    """
    drafts = f", draft {design['draft_tokens']}" if design.get("draft_tokens") else ""
    if design.get("mode") != "disaggregated":
        return _pool(design, "replicas", chunk=True) + _formats(design) + drafts
    prefill, decode = design["prefill"], design["decode"]
    first = _pool(prefill, "workers", chunk=True) + _formats(prefill)
    return f"{first} + {_pool(decode, 'workers', chunk=False)}{_formats(decode)}{drafts}"


def _pool(pool: Mapping[str, Any], count: str, *, chunk: bool) -> str:
    """Copies, degrees and limits; only pools that prefill have a chunk to show."""
    parts = [f"{short} {pool[name]}" for name, short in _DEGREES.items() if pool.get(name, 1) > 1]
    if pool.get("redundant_experts"):
        parts.append(f"{pool['redundant_experts']} redundant")
    parts.append(f"batch {pool['max_batch']:,}")
    if chunk:
        parts.append(f"chunk {pool['chunk_tokens']:,}")
    return f"{pool[count]} x ({', '.join(parts)})"


def _formats(pool: Mapping[str, Any]) -> str:
    """Formats of weights and activations, one where they agree, and that of the cache."""
    weight, activation, cache = (pool[f"{one}_dtype"] for one in ("weight", "activation", "kv"))
    both = weight if weight == activation else f"{weight}/{activation}"
    return f" {both}, cache {cache}"


def _spread(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(rows) <= most:
        return rows
    step = (len(rows) - 1) / (most - 1)
    return [rows[round(i * step)] for i in range(most)]

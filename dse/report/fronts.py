"""The Pareto set as a table: what users feel against what accelerators yield, a line a design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def pareto_rows(points: Sequence[Point], most: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Rows of the front's table, at most `most` for each target, evenly taken and with both ends.

    `points` are those of `pareto` in `dse run --json`; the columns are the keys of the first row.
    Models and targets are columns only where there are several.
    """
    several = [name for name in ("model", "hardware") if len({one[name] for one in points}) > 1]
    groups: dict[tuple[str, ...], list[Point]] = {}
    for one in points:
        groups.setdefault((one["model"], one["hardware"]), []).append(one)
    kept = [one for group in groups.values() for one in _spread(group, most)]
    names = [*_LATENCIES, *_YIELDS]
    if not any(one["metrics"].get("prefix_hit_frac") for one in kept):
        names.remove("prefix_hit_frac")
    return [
        {name: one[name] for name in several}
        | {name: one["metrics"].get(name) for name in names}
        | {"design": design_line(one["design"])}
        for one in kept
    ]


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


def _spread(points: Sequence[Point], most: int) -> list[Point]:
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(i * step)] for i in range(most)]

"""What-if rows behind two figures: chunk sizes by promise, and splits of two pools.

Every number comes from `dse.run` or `dse.evaluate`; a design that breaks a promise has a goodput of
zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dse.study import evaluate, run

GOODPUT: Final = "goodput_requests_per_s_per_accelerator"
MOST_CHUNKS: Final = 16  # as many designs as a result lists

Row = dict[str, Any]


def chunk_rows(
    study: Mapping[str, Any], chunks: Sequence[int], promise: str, limits_s: Sequence[float]
) -> list[Row]:
    """Goodput per accelerator over chunk sizes, for several limits (s) of one promise.

    `promise` is a key of `promises`, such as `tpot_p99`; the study's other promises and the rest of
    its one colocated design hold throughout. Raises DseError for a faulty study, ValueError for
    more than 16 chunk sizes.
    """
    if len(chunks) > MOST_CHUNKS:
        raise ValueError(f"found {len(chunks)} chunk sizes; at most {MOST_CHUNKS}")
    space = {**study["space"], "chunk_tokens": list(chunks)}
    rows = []
    for limit_s in limits_s:
        objective = _promising(study["objective"], promise, limit_s)
        result = run({**study, "objective": objective, "space": space})
        found = {row["design"]["chunk_tokens"]: row["metrics"][GOODPUT] for row in result.designs}
        rows += [
            {"series": limit_s, "chunk_tokens": chunk, GOODPUT: found.get(chunk, 0.0)}
            for chunk in chunks
        ]
    return rows


def split_rows(
    studies: Mapping[str, Mapping[str, Any]], design: Mapping[str, Any], n_workers: int
) -> list[Row]:
    """Goodput per accelerator of every split of n workers, for each study by its label.

    `design` has the blocks `prefill` and `decode`, whose workers are set here. Raises DseError for
    a faulty study or design.
    """
    return [
        {
            "series": label,
            "prefill_workers": n,
            "n_workers": n_workers,
            GOODPUT: _goodput(study, _split(design, n, n_workers - n)),
        }
        for label, study in studies.items()
        for n in range(1, n_workers)
    ]


def best_by_series(rows: Iterable[Row]) -> dict[Any, Row]:
    """The row of the highest goodput of each series, the first of equals; none where all are 0."""
    best: dict[Any, Row] = {}
    for row in rows:
        if row[GOODPUT] > best.get(row["series"], {GOODPUT: 0.0})[GOODPUT]:
            best[row["series"]] = row
    return best


def _promising(objective: Mapping[str, Any], promise: str, limit_s: float) -> dict[str, Any]:
    return {**objective, "promises": {**objective["promises"], promise: limit_s}}


def _split(design: Mapping[str, Any], prefill: int, decode: int) -> dict[str, Any]:
    workers = {"prefill": prefill, "decode": decode}
    return {**design, **{pool: {**design[pool], "workers": n} for pool, n in workers.items()}}


def _goodput(study: Mapping[str, Any], design: Mapping[str, Any]) -> float:
    found = evaluate(study, design)
    return found.metrics[GOODPUT] if found.feasible else 0.0

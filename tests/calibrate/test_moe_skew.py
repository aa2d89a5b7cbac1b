"""How much longer kernels take under skew, against measured kernels of three engines.

Nothing was fitted to skewed rows; what a kernel is handed was read off balanced ones.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.cost.moe import grouped_kernel
from dse.cost.routing import RankLoad
from dse.cost.types import ExpertKind
from tests.calibrate.router_loads import balanced, uneven
from tests.support import engine, float64, formats, laws, pool, replace, target

__all__ = ["float64"]

SAMPLE = Path(__file__).parent / "moe_skew_sample.csv"
DTYPES = {"fp8_block": ("checkpoint",) * 3, "bfloat16": ("bf16",) * 3}
DRAWS = 3
ENGINES = ["tensorrt-llm", "vllm", "sglang"]


@cache
def rows(by: str) -> list[dict[str, str]]:
    lines = [line for line in SAMPLE.read_text().splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if row["engine"] == by]


def column(by: str, name: str) -> np.ndarray:
    return np.asarray([float(row[name]) for row in rows(by)])


def of_first_rank(counts: np.ndarray, ep: int, tile: float) -> tuple[float, float, float]:
    """(rows, active experts, rows padded to tiles)."""
    held = counts[: counts.size // ep]
    spilled = np.maximum(held - 0.5 * (tile + 1.0), 0.0)
    padded = tile * (held > 0) + spilled
    return float(held.sum()), float((held > 0).sum()), float(padded.sum())


@cache
def loads(by: str) -> tuple[np.ndarray, np.ndarray]:
    """(balanced, skewed), each [rows, 3]."""
    tile = laws(by).parameters["tile_rows"]
    rng = np.random.default_rng(0)
    even, hot = [], []
    for row in rows(by):
        tokens, n, k, ep = (int(row[name]) for name in ("tokens", "n_experts", "top_k", "ep"))
        even.append(of_first_rank(balanced(tokens, n, k), ep, tile))
        drawn = [
            of_first_rank(uneven(tokens, n, k, ep, float(row["alpha"]), rng), ep, tile)
            for _ in range(DRAWS)
        ]
        hot.append(np.mean(drawn, axis=0))
    return np.asarray(even), np.asarray(hot)


def seconds(by: str, load: np.ndarray, **passes: float) -> Any:
    """Time of every row of the sample under a load [rows, 3]."""
    names = ("n_experts", "top_k", "hidden", "intermediate")
    n, k, hidden, width = (column(by, name) for name in names)
    kind = ExpertKind(1.0, n, k, hidden, width, 3.0, 0.0, 1e9, 0.0)
    dtypes = DTYPES[rows(by)[0]["dtype"]]
    choice = formats("DeepSeek-V3", "h200-sxm", *dtypes, by=laws(by, **passes))
    tp, ep = column(by, "tp"), column(by, "ep")
    # Every rank is handed all tokens: one attention group.
    served = replace(pool(choice), tp=tp * ep, ep=ep)
    on_rank = RankLoad(
        rows=load[:, 0],
        active=load[:, 1],
        padded_rows=load[:, 2],
        most_active=load[:, 1],
        mean_rows=load[:, 0],
        active_share=0.0,
        reached_share=1.0,
    )
    tokens = column(by, "tokens")
    args = (served, target("h200-sxm"), engine(by))
    return np.asarray(grouped_kernel(tokens, on_rank, kind, *args).time_s)


def errors(by: str, load: np.ndarray, **passes: float) -> np.ndarray:
    """Relative error of skewed over balanced time, per row."""
    even, _ = loads(by)
    measured = column(by, "uneven_ms") / column(by, "balanced_ms")
    found: np.ndarray = np.abs(
        seconds(by, load, **passes) / seconds(by, even, **passes) / measured - 1.0
    )
    return found


def regimes(by: str) -> dict[str, np.ndarray]:
    tokens, ep = column(by, "tokens"), column(by, "ep")
    return {
        "many tokens, many ranks": (tokens >= 1024) & (ep >= 8),
        "few tokens, few ranks": (tokens > 8) & (tokens <= 256) & (ep <= 2),
        "all": tokens > 0,
    }


@pytest.mark.parametrize("by", ENGINES)
def test_rows_and_active_experts_of_the_hottest_rank_explain_skew(by: str) -> None:
    even, hot = loads(by)
    rows_alone = np.stack([hot[:, 0], even[:, 1], np.maximum(hot[:, 0], even[:, 2])], axis=1)
    ignored, by_rows, whole = (errors(by, load) for load in (even, rows_alone, hot))
    for name, which in regimes(by).items():
        print(
            f"{by}, {name} ({which.sum()}): ignored {100 * ignored[which].mean():.1f} %, rows "
            f"{100 * by_rows[which].mean():.1f} %, and active {100 * whole[which].mean():.1f} %"
        )
    assert whole.mean() < 0.70 * ignored.mean()
    assert whole.mean() < 0.14
    few = regimes(by)["few tokens, few ranks"]
    assert whole[few].mean() < 0.65 * by_rows[few].mean()
    many = regimes(by)["many tokens, many ranks"]
    assert whole[many].mean() < 0.25


@pytest.mark.parametrize("by", ["vllm", "sglang"])
def test_rows_that_a_kernel_is_handed_dilute_skew(by: str) -> None:
    """Priced by its own rows alone, a kernel that passes every pick looks far too sensitive."""
    _, hot = loads(by)
    many = regimes(by)["many tokens, many ranks"]
    with_them, without = (
        errors(by, hot)[many].mean(),
        errors(by, hot, handed_passes=0, picked_passes=0)[many].mean(),
    )
    assert with_them < 0.5 * without

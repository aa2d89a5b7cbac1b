"""Fitting the law of cache transfers to measured ones: lists of pages, and a share of the link.

    x = layers * layer_s + V / (frac * link),  V the bytes of the fullest rank

by least squares of log(predicted / measured). Both measured systems have links of one speed, so a
ramp in bytes and a latency cannot be told apart: the fixed part counts as latency.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.arch import load_model
from dse.cost.transfer import rank_bytes
from dse.cost.types import Pool
from dse.lower.formats import lower_formats
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.spec.engine import load_engine
from dse.spec.hardware import Hardware
from dse.struct import replace


@dataclass(frozen=True, slots=True)
class Measured:
    """One transfer of a request's cache."""

    engine: str
    layers: float
    rank_bytes: float
    link_bytes_per_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters of an engine, and relative errors on the rows that they were fitted to."""

    layer_s: float
    frac: float
    errors: NDArray[np.float64]

    @property
    def mape_percent(self) -> float:
        return float(100.0 * np.mean(np.abs(self.errors)))

    @property
    def largest_percent(self) -> float:
        return float(100.0 * np.max(np.abs(self.errors)))


def measured_transfers(hardware: Hardware) -> list[Measured]:
    """The published transfers; `hardware` is any target that runs bf16."""
    text = resources.files("dse.calibrate").joinpath("measured/mooncake_transfers.csv").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [_measured(row, hardware) for row in csv.DictReader(lines)]


def _measured(row: dict[str, str], hardware: Hardware) -> Measured:
    arch = load_model(row["model"])
    model = replace(lower_model(arch), draft=None)
    laws = Laws.of(load_engine("generic"), hardware.vendor)
    formats = lower_formats(arch, hardware, "bf16", "bf16", "bf16", laws).formats
    ones: dict[str, Any] = dict.fromkeys(("dp", "ep", "pp", "max_batch", "replicas"), 1.0)
    pool = Pool(tp=float(row["tp"]), chunk_tokens=1.0, draft_tokens=0.0, formats=formats, **ones)
    tokens = float(row["prompt_tokens"]) + float(row["extra_tokens"])
    return Measured(
        engine=row["engine"],
        layers=float(arch.n_layers),
        rank_bytes=float(rank_bytes(model, pool, tokens)),
        link_bytes_per_s=float(row["link_bytes_per_s"]),
        seconds=float(row["transfer_s"]),
    )


def fit_transfers(rows: Sequence[Measured]) -> Fit:
    """The two parameters that fit the rows best. Needs scipy (`pip install dse[calibrate]`)."""
    from scipy.optimize import least_squares

    layers, volume, link, seconds = np.asarray(
        [(r.layers, r.rank_bytes, r.link_bytes_per_s, r.seconds) for r in rows]
    ).T

    def log_ratio(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        layer_s, frac = np.exp(theta)
        ratio: NDArray[np.float64] = (layers * layer_s + volume / (frac * link)) / seconds
        return np.log(ratio)

    found = least_squares(log_ratio, np.log([1e-5, 0.8]))
    layer_s, frac = np.exp(found.x)
    return Fit(float(layer_s), float(frac), np.expm1(found.fun))

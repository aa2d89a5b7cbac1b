"""The law of cache transfers against the published ones, and the parameters that engines carry."""

from __future__ import annotations

import numpy as np
import pytest

from dse.calibrate.transfers import Measured, fit_transfers, measured_transfers
from dse.cost.transfer import Link, Route, transfer
from dse.spec.engine import load_engine
from tests.support import engine, formats, hardware, model, pool, replace, target

pytest.importorskip("scipy")


def rows(name: str | None = None) -> list[Measured]:
    return [r for r in measured_transfers(hardware("h100-sxm")) if name in (None, r.engine)]


@pytest.mark.parametrize(
    ("name", "of", "mape", "largest"),
    [("vllm", "vllm", 3.0, 6.0), ("sglang", "sglang", 3.0, 6.5), ("generic", None, 8.5, 31.0)],
)
def test_engines_carry_what_the_fit_finds(
    name: str, of: str | None, mape: float, largest: float
) -> None:
    found = fit_transfers(rows(of))
    given = load_engine(name).parameters
    assert given["transfer_layer_s"].value == pytest.approx(found.layer_s, rel=0.01)
    assert given["transfer_frac"].value == pytest.approx(found.frac, rel=0.005)
    assert found.mape_percent < mape
    assert found.largest_percent < largest
    assert given["transfer_layer_s"].status == "measured"


def test_parameters_that_made_the_rows_are_found_again() -> None:
    made = [
        replace(r, seconds=r.layers * 2e-5 + r.rank_bytes / (0.6 * r.link_bytes_per_s))
        for r in rows()
    ]
    found = fit_transfers(made)
    assert found.layer_s == pytest.approx(2e-5, rel=1e-4)
    assert found.frac == pytest.approx(0.6, rel=1e-4)
    assert found.largest_percent < 1e-3


def test_sizes_are_those_that_were_published() -> None:
    """Gigabytes of all eight ranks; SGLang moves heads that two ranks share from both."""
    published = {"vllm": 4.50 * 2**30, "sglang": 12.62e9}
    for name, size in published.items():
        assert 8 * rows(name)[-1].rank_bytes == pytest.approx(size, rel=2e-3)


@pytest.mark.parametrize(("name", "arch"), [("vllm", "Qwen3-8B"), ("sglang", "Qwen3-235B-A22B")])
def test_predicted_transfers_against_the_measured_ones(name: str, arch: str) -> None:
    served = pool(formats(arch, "h100-sxm", "bf16", "bf16", "bf16"), tp=8)
    chip = replace(target("h100-sxm"), scale_out_bytes_per_s=25e9)
    route = Route(served, served, chip, chip, (0.0, 1.0, 0.0), Link())
    lowered, by = model(arch), engine(name)
    measured = rows(name)
    tokens = {"vllm": [144, 32784], "sglang": [128, 32768]}[name]
    for count, row in zip(tokens, (measured[0], measured[-1]), strict=True):
        found = float(transfer(lowered, route, by, float(count)).total_s)
        assert found == pytest.approx(row.seconds, rel=0.07)
    assert np.all(np.diff([r.seconds for r in measured]) > 0.0)

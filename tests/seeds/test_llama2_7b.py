"""Llama-2-7B on H100: what fits, what a transfer takes, when the first token comes.

Source: a study of splitting prefill and decode for Llama-2-7B on H100.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.cost.memory import memory, weight_bytes
from dse.cost.transfer import Link, Route, link_rate, streamed_time, transfer
from dse.serving import first_token, stations
from dse.serving.evaluate import evaluate
from dse.serving.slots import Slots
from dse.serving.types import CLOSED
from tests.support import (
    Family,
    case,
    engine,
    formats,
    interpreted,
    limits,
    model,
    pool,
    replace,
    target,
    traffic,
)

NAME = "Llama-2-7B"
GIB = 2**30
H100 = Family(NAME, "h100-sxm", "vllm", 1.0)


def test_32_requests_of_4096_tokens_do_not_fit_80_gb() -> None:
    served = pool(formats(NAME, "h100-sxm"), max_batch=32)
    chip = replace(target("h100-sxm"), memory_bytes=80e9)  # GB, not GiB
    by = engine("vllm", utilization_frac=0.9)
    account = memory(model(NAME), served, chip, by, 4096.0)
    assert float(account.request_bytes) * 32 == 64 * GIB
    assert float(weight_bytes(model(NAME), served, by)) / GIB == pytest.approx(12.55, rel=1e-3)
    assert 64 * GIB + float(account.weights_bytes) > 72e9
    assert float(account.resident_requests(1.0)) < 32
    # read as GiB the weights and caches would be nearer, still too many
    wide = memory(model(NAME), served, replace(chip, memory_bytes=80 * GIB), by, 4096.0)
    assert float(wide.resident_requests(1.0)) < 32
    # half of the context fits
    assert float(memory(model(NAME), served, chip, by, 2048.0).resident_requests(1.0)) > 32 * 0.7


def test_slots_are_what_memory_holds_when_that_is_fewer() -> None:
    at = case(H100, asked=traffic(isl_tokens=4000, osl_tokens=192, load=64, load_kind=CLOSED))
    at = at._replace(design=replace(at.design, decode=replace(at.design.decode, max_batch=32.0)))
    found = interpreted(evaluate)(at.system, at.design)
    held = float(found.decode_memory.resident_requests(1.0))
    assert held < 32
    assert float(found.point.slots) == pytest.approx(held)
    assert float(found.point.resident_requests) <= held * (1 + 1e-6)


@pytest.mark.parametrize(
    ("fabric", "bytes_per_s", "milliseconds"),
    [
        ((1.0, 0.0, 0.0), 450e9, 4.772),
        ((0.0, 1.0, 0.0), 50e9, 42.95),
        ((0.0, 0.0, 1.0), 64e9, 33.55),
    ],
)
def test_transfer_of_a_prompt_of_4096_tokens(
    fabric: tuple[float, float, float], bytes_per_s: float, milliseconds: float
) -> None:
    served, chip = pool(formats(NAME, "h100-sxm", kv="bf16")), target("h100-sxm")
    assert float(link_rate(chip, fabric)) == bytes_per_s
    route = Route(served, served, chip, chip, fabric, Link(latency_s=0.0))
    # bytes over bandwidth; latency and ramp come on top, and a step through host memory
    ideal = engine("vllm", transfer_layer_s=0.0, transfer_frac=1.0)
    found = transfer(model(NAME), route, ideal, 4096.0)
    assert float(found.size_bytes) == 2_147_483_648
    staged = 1.0 + fabric[2] / 32
    assert float(found.total_s) == pytest.approx(staged * milliseconds / 1e3, rel=1e-3)
    real = engine("vllm", transfer_latency_s="1 ms", transfer_ramp_bytes="10 MB")
    slower = transfer(model(NAME), route, replace(real, transfer_frac=1.0), 4096.0)
    lists = 32 * float(real.transfer_layer_s)
    assert float(slower.total_s - found.total_s) == pytest.approx(
        1e-3 + lists + 10e6 / bytes_per_s, rel=1e-3
    )


def test_first_token_is_prefill_exposed_transfer_and_first_decode_step() -> None:
    at = case(H100, mode="disaggregated", asked=traffic(isl_tokens=4096, load_kind=CLOSED, load=1))
    quiet = replace(
        at.system.source_engine, ttft_base_s=0.0, ttft_steps=0.0, ttft_s_per_prompt_token=0.0
    )
    setting = stations.Setting(
        model=at.system.model,
        prefill=at.design.prefill,
        decode=at.design.decode,
        source=at.system.source,
        sink=at.system.sink,
        source_engine=quiet,
        sink_engine=quiet,
        fabric=(0.0, 1.0, 0.0),
        traffic=at.system.traffic,
        limits=limits(),
        slots=Slots(np.asarray(1.0), np.asarray(1.0), np.asarray(1.0)),
    )
    found = _first_token(setting)
    assert float(found["exposed"]) > 0
    assert float(found["ttft"]) == pytest.approx(
        float(found["alone"] + found["exposed"] + found["first_step"]), rel=1e-6
    )
    # an engine that hands the first token out at once saves both
    early = setting._replace(source_engine=replace(quiet, holds_first_token=0.0))
    assert float(_first_token(early)["ttft"]) == pytest.approx(float(found["alone"]), rel=1e-6)


@interpreted
def _first_token(setting: stations.Setting) -> dict[str, Any]:
    """Seconds: mean time to first token with nobody else about, and what it is made of."""
    front = stations.front(setting)
    first = stations.decode_step(setting, 1.0).total_s
    moved = stations.moved_of(setting)
    pieces = 32.0 * 4096.0 / 2048.0  # layers of two chunks
    layer_s = setting.source_engine.transfer_layer_s
    piece_s = layer_s + moved.payload_s / pieces
    once = moved.fixed_s - 32.0 * layer_s
    exposed = once + streamed_time(piece_s, front.alone_s / pieces, pieces)
    of_pool = stations.front_of(setting)
    lengths = stations.lengths_of(setting, of_pool)
    nobody = np.asarray(1e-9)
    waits = first_token.waits(setting, nobody, nobody, first, of_pool, lengths)
    ttft = first_token.mean_ttft(lengths, waits)
    return {"alone": front.alone_s, "exposed": exposed, "first_step": first, "ttft": ttft}

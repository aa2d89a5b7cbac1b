"""Joules and dollars, states of recurrent layers: by hand."""

from __future__ import annotations

import pytest

from dse.cost import recurrent
from dse.cost.energy import power, requests_per_usd
from dse.cost.types import DecodeLoad, PrefillLoad
from tests.support import engine, formats, model, pool, replace, target


def test_power_lies_between_idle_and_the_limit() -> None:
    chip = replace(target("h100-sxm"), power_w=700.0, idle_power_w=100.0)
    by = engine("generic", active_power_frac=0.2, compute_power_frac=0.6, memory_power_frac=0.5)
    assert float(power(0.0, 0.0, 0.0, chip, by)) == 100.0
    assert float(power(1.0, 0.0, 0.0, chip, by)) == pytest.approx(100 + 600 * 0.2)
    assert float(power(0.5, 0.5, 0.2, chip, by)) == pytest.approx(100 + 600 * (0.1 + 0.3 + 0.1))
    assert float(power(1.0, 1.0, 1.0, chip, by)) == 700.0


def test_requests_of_a_dollar() -> None:
    assert float(requests_per_usd(10.0, 36.0)) == pytest.approx(1000.0)


def test_a_state_is_read_and_written_once_for_each_request() -> None:
    name = "Qwen3.5-397B-A17B"
    kind = model(name).main.recurrent[0]
    chip = target("h200-sxm")
    load = DecodeLoad(requests=8.0, rows_per_request=1.0, context=1e5)
    served = pool(formats(name, "h200-sxm"), tp=4)
    found = recurrent.decode_kernel(load, 0, kind, served, chip)
    state = 64 * 128 * 128 * 4
    tail = (2 * 16 * 128 + 64 * 128) * 3 * 2
    assert float(kind.state_bytes) == state + tail
    assert float(found.bytes) == 2 * 8 * (state + tail) / 4
    assert float(found.flops) == 6 * 8 * 64 * 128 * 128 / 4
    # the context is not read
    longer = recurrent.decode_kernel(replace(load, context=1e6), 0, kind, served, chip)
    assert float(longer.time_s) == float(found.time_s)


def test_a_prompt_is_scanned_in_blocks_of_64_rows() -> None:
    name = "Qwen3.5-397B-A17B"
    kind = model(name).main.recurrent[0]
    chip = target("h200-sxm")
    load = PrefillLoad(rows=1024.0, rows_per_prompt=512.0, start=0.0, end=512.0)
    found = recurrent.prefill_kernel(load, 0, kind, pool(formats(name, "h200-sxm")), chip)
    assert float(found.flops) == 1024 * 64 * (2 * 64 * 256 + 4 * 128 * 128)

"""The law of attention by hand, and what must never shorten or lengthen it whatever was fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.cost.law import Rates, decode_attention_time, prefill_attention_time
from dse.cost.laws import AttentionLaw
from tests.kernels import ATTENTION
from tests.support import replace

RATES = Rates(peak_flops_per_s=1e15, bandwidth_bytes_per_s=4e12, compute_units=100.0)
LAW = AttentionLaw(**ATTENTION)
N = 2000


def _decode(requests: Any, context: Any, rates: Rates = RATES, law: AttentionLaw = LAW) -> Any:
    """Eight key heads of 128 wide keys and values in 16 bit, four query heads to each."""
    pairs = requests * context
    cached, queries = pairs * 8.0 * 256.0 * 2.0, 2.0 * requests * 32.0 * 256.0
    of = (pairs, requests, 8.0, 4.0, 256.0, cached, queries)
    return decode_attention_time(*of, rates, law)


def _random_laws(rng: np.random.Generator) -> AttentionLaw:
    numbers = {name: value * np.exp(rng.normal(0.0, 2.0, N)) for name, value in ATTENTION.items()}
    shares = {name: np.minimum(one, 1.0) for name, one in numbers.items() if name.endswith("_frac")}
    return AttentionLaw(**{**numbers, **shares})


def test_decode_by_hand() -> None:
    found = _decode(2.0, 500.0)
    padded = (4.0**4 + 16.0**4) ** 0.25
    flops = 2.0 * 1000.0 * 8.0 * padded * (256.0 + 2.0 * 8.0)
    compute_s = flops / (1e15 * 0.65) + 2e-8 * 16.0 / 100.0
    # 8000 rows of key heads, of which 4000 keep half of the memory busy
    cached = 1000.0 * 8.0 * 512.0 * (1.0 + 0.3 / (1.0 + 8000.0 / 4000.0))
    queries = 2.0 * 2.0 * 32.0 * 256.0 * (1.0 + 1.5)
    memory_s = (cached + queries + 2e6) / (4e12 * 0.8)
    joined = np.sqrt(compute_s**2 + memory_s**2 + 2.0 * 0.5 * compute_s * memory_s)
    split_s = 4e-6 * 500.0 / 800.0
    assert float(found.compute_s) == pytest.approx(compute_s, rel=1e-6)
    assert float(found.memory_s) == pytest.approx(memory_s, rel=1e-6)
    assert float(found.time_s) == pytest.approx(5e-6 + joined + split_s, rel=1e-6)


def test_prefill_by_hand() -> None:
    pairs, rows = 512 * 513 / 2.0, 512.0
    found = prefill_attention_time(
        pairs, rows, 32.0, 256.0, 1e7, RATES, LAW, rows_per_prompt=512.0, group=4.0, depth=512.0
    )
    packed = 512.0 * 4.0**0.4
    pad = (packed**4 + 60.0**4) ** 0.25 / packed
    waves = 32.0 * 512.0 * pad / 128.0 / 100.0
    bulk = 2.0 * 32.0 * pairs * pad * (256.0 + 16.0) / (1e15 * 0.65) * (1.0 + 0.3 / (1.0 + waves))
    compute_s = np.hypot(bulk, 6e-6 * 0.5) + 2e-8 * waves
    assert float(found.compute_s) == pytest.approx(compute_s, rel=1e-6)
    assert float(found.memory_s) == pytest.approx((1e7 + 2e6) / (4e12 * 0.8), rel=1e-6)


def test_decode_is_never_slower_with_more_of_a_resource_nor_faster_with_more_to_read() -> None:
    rng = np.random.default_rng(0)
    law = _random_laws(rng)
    requests, context = 2.0 ** rng.uniform(0, 10, N), 2.0 ** rng.uniform(0, 17, N)
    before = _decode(requests, context, law=law).time_s
    for field in ("peak_flops_per_s", "bandwidth_bytes_per_s", "compute_units"):
        more = replace(RATES, **{field: 1.7 * getattr(RATES, field)})
        assert np.all(_decode(requests, context, more, law).time_s <= before * (1 + 1e-6)), field
    assert np.all(_decode(1.1 * requests, context, law=law).time_s >= before * (1 - 1e-6))
    assert np.all(_decode(requests, 1.1 * context, law=law).time_s >= before * (1 - 1e-6))

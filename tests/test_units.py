"""Units: exact conversions, round trips, and refusals that name what is allowed."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.errors import DseError
from dse.units import (
    DIMENSIONS,
    Dimension,
    UnitError,
    dimension_of,
    format_si,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GB", "bytes", 80e9),
        ("64 GiB", "bytes", 64 * 2**30),
        ("50MiB", "bytes", 50 * 2**20),
        ("12 kB", "bytes", 12e3),
        ("3.35 TB/s", "bytes_per_s", 3.35e12),
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("200 Gbit/s", "bytes_per_s", 25e9),
        ("100Gbps", "bytes_per_s", 12.5e9),
        ("1 GiB/s", "bytes_per_s", 2**30),
        ("50 ms", "s", 0.05),
        ("10 \u00b5s", "s", 1e-5),
        ("10 \u03bcs", "s", 1e-5),
        ("2 min", "s", 120.0),
        ("989 TFLOP/s", "flops_per_s", 989e12),
        ("989 TFLOPS", "flops_per_s", 989e12),
        ("1.979 PFLOP/s", "flops_per_s", 1979e12),
        ("728 TOP/s", "flops_per_s", 728e12),
        ("700 W", "w", 700.0),
        ("1.2 kW", "w", 1200.0),
        ("2.95 USD/h", "usd_per_hour", 2.95),
        ("2.95 $/h", "usd_per_hour", 2.95),
        ("4096 tokens", "tokens", 4096.0),
        ("4 requests/s", "requests_per_s", 4.0),
        ("90 requests/min", "requests_per_s", 1.5),
        ("85 %", "frac", 0.85),
        ("80e9", "bytes", 80e9),
        ("1_000", "count", 1000.0),
        (" .5 ", "frac", 0.5),
        (80e9, "bytes", 80e9),
        (0, "s", 0.0),
        (-3, "s", -3.0),
    ],
)
def test_value_in_si(text: object, dimension: Dimension, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("raw", "dimension", "said"),
    [
        ("50 GB", "s", ["which is a size", "expected a time", "ms"]),
        ("50 ms", "bytes", ["which is a time", "GiB"]),
        ("80 Gb", "bytes", ["means bits"]),
        ("80 gb", "bytes", ["did you mean 'GB'"]),
        ("50 msec", "s", ["unit 'msec'", "did you mean 'sec'"]),
        ("8k", "tokens", ["ambiguous"]),
        ("80 GB", "count", ["a plain number"]),
        ("fast", "s", ["found 'fast'", "expected a time"]),
        ("", "s", ["found ''"]),
        ("1e999", "s", ["expected"]),
        ("1 2", "s", ["unit '2'"]),
        ("nan", "s", ["found 'nan'"]),
        (math.nan, "s", ["found nan", "finite"]),
        (math.inf, "s", ["found inf", "finite"]),
        (10**400, "bytes", ["finite"]),
        (True, "s", ["found true"]),
        (None, "s", ["nothing (null)"]),
        ([1], "s", ["a list of 1"]),
        ({}, "s", ["an empty mapping"]),
        ("9" * 5000, "s", ["expected a time"]),
        ("\u0663 s", "s", ["expected a time"]),  # a digit, but not of this script
    ],
)
def test_refusal_says_what_was_found_and_what_is_allowed(
    raw: object, dimension: Dimension, said: list[str]
) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(raw, dimension)
    for part in said:
        assert part in str(caught.value)
    assert isinstance(caught.value, DseError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400


@given(st.decimals(min_value="0.001", max_value="1000000", places=3))
def test_time_units_rescale_exactly(seconds: Any) -> None:
    wanted = float(seconds)
    assert parse_quantity(f"{seconds} s", "s") == wanted
    assert parse_quantity(f"{seconds * 1000} ms", "s") == wanted
    assert parse_quantity(f"{seconds * 10**6} us", "s") == wanted
    assert parse_quantity(f"{seconds * 10**9} ns", "s") == wanted


@given(st.integers(1, 10**9))
def test_byte_units_rescale_exactly(n: int) -> None:
    assert parse_quantity(f"{n} GB", "bytes") == parse_quantity(f"{n}000 MB", "bytes") == n * 1e9
    assert parse_quantity(f"{n} GiB", "bytes") == parse_quantity(f"{n * 1024} MiB", "bytes")
    assert parse_quantity(f"{n} GiB", "bytes") == float(n * 2**30)
    # Eight bits to the byte, in rates as everywhere.
    assert parse_quantity(f"{8 * n} Gb/s", "bytes_per_s") == parse_quantity(
        f"{n} GB/s", "bytes_per_s"
    )


@given(st.floats(1e-9, 1e18), st.sampled_from(DIMENSIONS))
def test_formatted_value_parses_to_the_same_within_its_digits(
    value: float, dimension: Dimension
) -> None:
    text = format_si(value, dimension)
    assert parse_quantity(text, dimension) == pytest.approx(value, rel=6e-4)
    exact = format_si(value, dimension, digits=17)
    assert parse_quantity(exact, dimension) == pytest.approx(value, rel=1e-14)


@given(st.text(max_size=90), st.sampled_from(DIMENSIONS))
def test_text_gives_a_finite_number_or_a_unit_error(text: str, dimension: Dimension) -> None:
    with suppress(UnitError):
        assert math.isfinite(parse_quantity(text, dimension))


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.05, "s", "50 ms"),
        (0.99996, "s", "1 s"),
        (3600.0, "s", "3600 s"),
        (5e-6, "s", "5 us"),
        (80e9, "bytes", "80 GB"),
        (999.99e9, "bytes", "1 TB"),
        (3.35e12, "bytes_per_s", "3.35 TB/s"),
        (989e12, "flops_per_s", "989 TFLOP/s"),
        (0.0, "s", "0 s"),
        (151_000.0, "tokens", "151000 tokens"),
        (0.123456, "frac", "12.35 %"),
        (2.95, "usd_per_hour", "2.95 USD/h"),
        (-0.05, "s", "-50 ms"),
        (math.inf, "s", "inf s"),
    ],
)
def test_format_for_people(value: float, dimension: Dimension, text: str) -> None:
    assert format_si(value, dimension) == text


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("memory_bytes", "bytes"),
        ("bandwidth_bytes_per_s", "bytes_per_s"),
        ("bf16_gemm_flops_per_s", "flops_per_s"),
        ("rate_requests_per_s", "requests_per_s"),
        ("ttft_mean_s", "s"),
        ("power_w", "w"),
        ("price_usd_per_hour", "usd_per_hour"),
        ("hit_frac", "frac"),
        ("chunk_tokens", "tokens"),
        ("replicas", None),
        ("draw", None),
    ],
)
def test_dimension_from_the_suffix_of_a_name(name: str, dimension: Dimension | None) -> None:
    assert dimension_of(name) == dimension

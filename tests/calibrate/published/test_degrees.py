"""How the words of a source are read as degrees of parallelism."""

from __future__ import annotations

import pytest

from dse.calibrate.published.degrees import Degrees, Split, deployment_split, split_of
from dse.errors import DseError


@pytest.mark.parametrize(
    ("text", "decode"),
    [
        ("TP8", Degrees(tp=8)),
        ("TP1 DP1", Degrees()),
        ("TP4 x2", Degrees(tp=4, replicas=2)),
        ("DEP4", Degrees(dp=4, ep=4)),
        ("DP16 + EP16 (2 nodes)", Degrees(dp=16, ep=16)),
        ("EP32 TP1, two-microbatch overlap", Degrees(dp=32, ep=32)),
        ("EP32 (4 nodes), DP attention, TBO, DeepEP normal", Degrees(dp=32, ep=32)),
        ("EP32 attn-DP32 (4 nodes)", Degrees(dp=32, ep=32)),
        ("CPP2 TP8, dynamic chunk 32k", Degrees(tp=8, pp=2)),
        ("TP16 DP16 attn-DP + EP16, PD-mixed", Degrees(tp=1, dp=16, ep=16)),
    ],
)
def test_one_pool(text: str, decode: Degrees) -> None:
    assert split_of(text) == Split(decode)


def test_expert_ranks_alone_leave_attention_open() -> None:
    (assumed,) = split_of("EP72").decode.assumed
    assert assumed == "attention data parallel over the expert-parallel ranks"


def test_two_pools() -> None:
    found = split_of("2P(TP16 DP4)+1D(TP32 DP32), MTP 1")
    assert found.prefill == Degrees(tp=4, dp=4, ep=16, replicas=2)
    assert found.decode == Degrees(tp=1, dp=32, ep=32, replicas=1)
    pair = split_of("1P1D, TP8+TP8")
    assert pair.prefill == pair.decode == Degrees(tp=8, replicas=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not state the degrees"),
        ("PD disagg, chunked-PP prefill, wide-EP decode", "does not state the degrees"),
        ("TP8+TP4", "no rule reads"),
        ("EP32 attn-DP16", "no rule reads"),
        ("TP6 DP4 EP6", "is no multiple of"),
    ],
)
def test_what_no_rule_reads_is_refused(text: str, why: str) -> None:
    with pytest.raises(DseError, match=why):
        split_of(text)


def test_a_deployment_in_full() -> None:
    found = deployment_split(
        "prefill: 2 x [16 dies tp8 dp2 ep16]; decode: 1 x [32 dies tp1 dp32 ep32 slots 1280]"
    )
    assert found.prefill == Degrees(tp=8, dp=2, ep=16, replicas=2)
    assert found.decode == Degrees(dp=32, ep=32, replicas=1, slots=1280)
    assert deployment_split("agg: 1 x [4 dies tp4 dp1 ep1]").prefill is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agg: 1 x [4 dies slots 8]",
        "agg: 1 x [8 dies tp4 dp1 ep1]",
        "prefill: 1 x [1 dies tp1 dp1]",
    ],
)
def test_a_deployment_that_does_not_add_up(text: str) -> None:
    with pytest.raises(DseError):
        deployment_split(text)

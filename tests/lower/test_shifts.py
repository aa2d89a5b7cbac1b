"""Parameters moved by measured deployments stay parameters: within their range, shares below 1."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse import catalog
from dse.arch import load_model
from dse.lower.deployed import generation_of, merged_levels, shifts_of, subject_of
from dse.lower.shifts import Shifts, is_share, together
from dse.spec.deployments import DeploymentFile, Level, Subject
from dse.spec.engine import PARAMETERS, load_engine
from dse.spec.hardware import Hardware
from dse.spec.load import load


def _chip(name: str) -> Hardware:
    return load(Hardware, catalog.resolve("hardware", name)).spec


@given(
    name=st.sampled_from(sorted(PARAMETERS)),
    log=st.floats(-8.0, 8.0),
    added=st.floats(0.0, 1.0),
)
def test_whatever_moves_a_parameter_it_keeps_its_range(name: str, log: float, added: float) -> None:
    prior = load_engine("vllm").parameters[name].value
    moved = Shifts({name: log}, {name: added}).moved(name, prior)
    rule = PARAMETERS[name]
    assert (0.0 if rule.zero else rule.low) <= moved <= rule.high


@given(log=st.floats(-2.0, 5.0), share=st.floats(0.05, 0.95))
def test_a_share_moves_by_its_odds(log: float, share: float) -> None:
    moved = Shifts({"kv_bandwidth_frac": log}).moved("kv_bandwidth_frac", share)
    assert moved / (1.0 - moved) == pytest.approx(share / (1.0 - share) * math.exp(log), rel=1e-9)


def test_a_time_moves_by_a_factor_after_what_is_added() -> None:
    shifts = Shifts({"layer_s": math.log(2.0)}, {"layer_s": 5e-6})
    assert shifts.moved("layer_s", 20e-6) == pytest.approx(50e-6)
    assert not is_share("layer_s")
    assert shifts.moved("host_s_per_step", 1e-3) == 1e-3


def test_shifts_add_up() -> None:
    both = together([Shifts({"layer_s": 0.1}), Shifts({"layer_s": 0.2}, {"ttft_base_s": 0.01})])
    assert both.logs["layer_s"] == pytest.approx(0.3)
    assert both.added == {"ttft_base_s": 0.01}


def test_levels_of_a_deployment_add_up_and_others_do_not_count() -> None:
    arch, chip = load_model("llama-3.1-8b"), _chip("h100-sxm")
    file = DeploymentFile(
        engine="vllm",
        date="2025-01-31",
        source="a test",
        levels=(
            Level(of=Subject(vendor="nvidia"), factors={"layer_s": 2.0}),
            Level(of=Subject(vendor="nvidia", generation="hopper"), factors={"layer_s": 3.0}),
            Level(of=Subject(vendor="nvidia", generation="blackwell"), factors={"layer_s": 7.0}),
            Level(
                of=Subject(vendor="nvidia", generation="hopper", model=arch.name, precision="fp8"),
                odds={"kv_bandwidth_frac": 2.0},
            ),
            Level(of=Subject(model="another"), factors={"layer_s": 100.0}),
        ),
    )
    every, precisions = shifts_of(file, subject_of(chip, arch))
    assert every.logs["layer_s"] == pytest.approx(math.log(6.0))
    assert precisions["fp8"].logs == {"kv_bandwidth_frac": pytest.approx(math.log(2.0))}
    assert list(precisions) == ["fp8"]


def test_chips_of_one_generation_under_two_names_count_as_one() -> None:
    assert generation_of(_chip("b300-sxm")) == generation_of(_chip("b200-sxm")) == "blackwell"


def test_merged_levels_multiply() -> None:
    subject = Subject(model="m")
    known = [Level(of=subject, factors={"layer_s": 2.0}), Level(factors={"layer_s": 5.0})]
    more = [Level(of=subject, n_rows=4, factors={"layer_s": 1.5}, odds={"link_frac": 0.5})]
    found = {level.of: level for level in merged_levels(known, more)}
    assert found[subject].factors["layer_s"] == pytest.approx(3.0)
    assert found[subject].odds["link_frac"] == pytest.approx(0.5)
    assert found[subject].n_rows == 4
    assert found[Subject()].factors == {"layer_s": 5.0}

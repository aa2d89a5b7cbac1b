"""Files of fitted deployments: what they may say, and what is said of faulty ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.errors import SpecError
from dse.spec.deployments import DeploymentFile, Level, Subject, read_deployments

_GOOD = """\
engine: vllm
date: 2025-01-31
source: 12 rows of a test
levels:
- of: {vendor: nvidia}
  n_rows: 12
  factors: {layer_s: 1.2}
  odds: {link_frac: 0.8}
  added: {expert_layer_s: 5 us}
- of: {vendor: nvidia, generation: hopper, model: m, precision: fp8}
  n_rows: 4
  odds: {gemm_compute_frac: 1.5}
  scatter: {colocated: {tpot_log_sd: 0.05, ttft_log_sd: 0.2}}
"""


def _read(tmp_path: Path, text: str) -> DeploymentFile:
    path = tmp_path / "fit.yaml"
    path.write_text(text)
    return read_deployments(path).spec


def test_a_file_is_read_in_si_units(tmp_path: Path) -> None:
    file = _read(tmp_path, _GOOD)
    assert file.date == "2025-01-31"
    assert file.base == "priors"
    assert file.levels[0].added == {"expert_layer_s": pytest.approx(5e-6)}
    assert file.levels[1].scatter["colocated"].tpot_log_sd == 0.05


def test_one_model_may_add_less_than_the_others(tmp_path: Path) -> None:
    file = _read(tmp_path, _GOOD.replace("expert_layer_s: 5 us", "expert_layer_s: -5 us"))
    assert file.levels[0].added == {"expert_layer_s": pytest.approx(-5e-6)}
    file = _read(tmp_path, _GOOD.replace("expert_layer_s: 5 us", "expert_layer_s: -5.0e-6"))
    assert file.levels[0].added == {"expert_layer_s": pytest.approx(-5e-6)}


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("factors: {layer_s: 1.2}", "factors: {layers_s: 1.2}", "layer_s"),
        ("factors: {layer_s: 1.2}", "factors: {layer_s: -1}", "from 0.001 to 1000"),
        ("odds: {link_frac: 0.8}", "odds: {link_frac: much}", "from 0.001 to 1000"),
        ("added: {expert_layer_s: 5 us}", "added: {expert_layer_s: 5 GB}", "expert_layer_s"),
        ("odds: {gemm_compute_frac: 1.5}", "factors: {layer_s: 1.5}", "not of kernels"),
        ("date: 2025-01-31", "date: yesterday", "2025-01-31"),
        ("model: m, precision: fp8", "precision: fp8", "without a model"),
        ("n_rows: 4", "n_rows: four", "n_rows"),
        ("tpot_log_sd: 0.05", "tpot_log_sd: 0", "tpot_log_sd"),
        ("levels:", "levles:", "levels"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, line: str, wrong: str, said: str
) -> None:
    assert line in _GOOD
    with pytest.raises(SpecError) as caught:
        _read(tmp_path, _GOOD.replace(line, wrong))
    assert said in str(caught.value)
    assert "fit.yaml:" in str(caught.value)


def test_two_levels_of_one_subject_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="same subject as levels"):
        _read(tmp_path, _GOOD + "- of: {vendor: nvidia}\n")


def test_a_level_includes_what_it_does_not_narrow() -> None:
    every = Subject(vendor="nvidia", generation="hopper", model="m", precision="fp8")
    assert Subject().includes(every)
    assert Subject(vendor="nvidia", model="m").includes(every)
    assert not Subject(vendor="amd").includes(every)
    assert not Subject(model="other").includes(every)


def test_levels_of_a_deployment_come_in_the_order_of_the_file() -> None:
    levels = (Level(n_rows=1), Level(of=Subject(model="m")), Level(of=Subject(model="other")))
    file = DeploymentFile(engine="vllm", date="2025-01-31", source="a test", levels=levels)
    assert file.levels_of(Subject(model="m")) == levels[:2]

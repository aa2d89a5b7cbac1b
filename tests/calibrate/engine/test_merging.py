"""Levels of several vendors in one file of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.calibrate.engine.merging import merged
from dse.errors import DseError
from dse.report.merging import main
from dse.spec.deployments import DeploymentFile, Level, Subject, read_deployments


def _file(vendor: str, engine: str = "vllm", base: str = "kernels") -> DeploymentFile:
    level = Level(of=Subject(vendor=vendor), n_rows=3, factors={"layer_s": 1.5}, odds={}, added={})  # type: ignore[arg-type]
    return DeploymentFile(
        engine=engine,
        date="2026-12-01",
        source=f"rows of {vendor}",
        base=base,  # type: ignore[arg-type]
        n_rows=3,
        levels=(level,),
    )


def test_levels_stand_side_by_side_with_their_sources() -> None:
    whole = merged([_file("nvidia"), _file("huawei"), _file("amd")])
    assert [level.of.vendor for level in whole.levels] == ["nvidia", "huawei", "amd"]
    assert [level.note for level in whole.levels] == [
        "rows of nvidia",
        "rows of huawei",
        "rows of amd",
    ]
    assert whole.n_rows == 9
    assert len(whole.levels_of(Subject(vendor="huawei", generation="davinci"))) == 1


def test_one_subject_has_one_fit_and_a_file_one_engine() -> None:
    with pytest.raises(DseError, match="huawei"):
        merged([_file("huawei"), _file("huawei")])
    with pytest.raises(DseError, match="sglang"):
        merged([_file("nvidia"), _file("huawei", engine="sglang")])


def test_what_it_was_fitted_on_matters_where_kernels_are_known() -> None:
    # No kernels of Ascend chips are in the catalogue: both bases are the same there.
    assert merged([_file("nvidia", base="priors"), _file("huawei")]).base == "priors"


def test_the_command_writes_a_file_that_can_be_read(tmp_path: Path) -> None:
    from dse.calibrate.engine.document import as_yaml

    names = []
    for vendor in ("nvidia", "huawei"):
        names.append(tmp_path / f"{vendor}.yaml")
        names[-1].write_text(as_yaml(_file(vendor)))
    main([*map(str, names), "--out", str(tmp_path / "vllm.yaml")])
    assert len(read_deployments(tmp_path / "vllm.yaml").spec.levels) == 2

"""A grid against the same designs priced one scenario at a time in float64."""

from __future__ import annotations

import copy
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dse.errors import DseError
from dse.grid import checkpoint, run
from dse.grid.checkpoint import CheckpointError
from dse.grid.document import GridResult
from dse.grid.prepared import Grid, prepare
from dse.lower.study import lower_study
from dse.report.atomic import WriteError
from dse.search.exact import score_designs
from dse.search.sharded import whole_machine
from dse.serving.reasons import Reason
from dse.spec.grid import GridSpec
from dse.spec.load import load_spec
from dse.spec.study import load_study
from tests.grid.samples import AXES, KEPT, STUDY

# One file for every four blocks, so that there are several, the last one shorter.
FILE_DESIGNS = 64


def prepared(study: dict[str, Any] = STUDY, **changes: Any) -> Grid:
    spec = load_spec(GridSpec, {"axes": AXES, **KEPT, "full": True, **changes})
    return prepare(load_study(copy.deepcopy(study)), spec)


@dataclass(frozen=True)
class Ran:
    grid: Grid
    result: GridResult
    document: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def small_blocks() -> Iterator[None]:
    """Blocks of one scenario and files of a few blocks, as a large grid has them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dse.grid.plan.longest_row", lambda problem: 18)
        patched.setattr("dse.grid.store.DESIGNS_PER_FILE", FILE_DESIGNS)
        patched.setattr(run, "CHECKPOINT_S", 0.0)
        yield


@pytest.fixture(scope="module")
def ran(small_blocks: None, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("grid") / "out"
    grid = prepared()
    result = GridResult(grid, run.price(grid, whole_machine(), folder))
    return Ran(grid, result, result.to_json(), folder)


@pytest.fixture(scope="module")
def direct() -> dict[tuple[int, int], Any]:
    """Scores, reasons and designs by position on the two axes, each study lowered by itself."""
    found = {}
    bandwidth = load_study(copy.deepcopy(STUDY)).hardware[0].memory_bandwidth_bytes_per_s.value  # type: ignore[index]
    for i, isl in enumerate(AXES["workload.isl.mean"]):
        for j, factor in enumerate((0.5, 1.0)):
            overrides = [
                ("workload.isl.mean", str(isl)),
                ("hardware[0].memory_bandwidth_bytes_per_s", str(factor * bandwidth)),
            ]
            study = load_study(load_study(copy.deepcopy(STUDY)).resolved(), overrides)
            [(_, [problem])] = lower_study(study).problems
            found[i, j] = (problem.grid, score_designs(problem, range(problem.grid.size)))
    return found


def test_every_design_is_counted_once(ran: Ran, direct: dict[Any, Any]) -> None:
    codes: Counter[str] = Counter()
    for _, scored in direct.values():
        codes.update(Reason(int(code)).name.lower() for code in scored.reason)
    assert ran.document["counts"] == {"colocated": dict(sorted(codes.items()))}
    assert ran.document["points"] == ran.document["designs"] == 6 * 18
    assert len(codes) > 1


def test_the_best_design_is_the_best(ran: Ran, direct: dict[Any, Any]) -> None:
    best = max(np.max(scored.score) for _, scored in direct.values())
    row = ran.document["best"][0]
    assert row["score"] == pytest.approx(best, rel=5e-3)
    where = [key for key, (_, s) in direct.items() if np.max(s.score) == best]
    values = [(str(AXES["workload.isl.mean"][i]), ("x0.5", "x1")[j]) for i, j in where]
    assert tuple(row["what_if"].values()) in values
    assert len(ran.document["best"]) == 16
    scores = [one["score"] for one in ran.document["best"]]
    assert all(a >= b * (1.0 - 1e-9) for a, b in itertools.pairwise(scores))


def test_a_heat_map_holds_the_best_of_each_cell(ran: Ran, direct: dict[Any, Any]) -> None:
    table = ran.document["tables"][0]
    assert [axis["name"] for axis in table["axes"]] == ["workload.isl.mean", "attention_tp"]
    for i, row in enumerate(table["score"]):
        for k, found in enumerate(row):
            wanted = -np.inf
            for j in (0, 1):
                grid, scored = direct[i, j]
                place = grid.names.index("attention_tp")
                own = [n for n in range(grid.size) if grid.digits(n)[place] == k]
                wanted = max(wanted, np.max(scored.score[own]))
            if found is None:
                assert wanted == -np.inf
            else:
                assert found == pytest.approx(wanted, rel=5e-3)
    assert any(found is None for row in table["score"] for found in row)


def test_a_regime_map_has_a_third_axis(ran: Ran, direct: dict[Any, Any]) -> None:
    score = np.array(ran.document["tables"][1]["score"], dtype=float)
    assert score.shape == (3, 2, 3)
    for (i, j), (_, scored) in direct.items():
        best = np.max(scored.score)
        if best > -np.inf:
            assert np.nanmax(score[i, j]) == pytest.approx(best, rel=5e-3)


def test_histograms_count_feasible_designs(ran: Ran) -> None:
    n_feasible = ran.document["counts"]["colocated"]["ok"]
    histogram = ran.document["histograms"]["tpot_mean_s"]
    assert sum(histogram["counts"]) == n_feasible
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    quantiles = ran.document["quantiles"]["tpot_mean_s"]
    assert quantiles["0.01"] <= quantiles["0.5"] <= quantiles["0.99"]


def test_the_data_set_holds_every_design(ran: Ran, direct: dict[Any, Any]) -> None:
    files = sorted((ran.folder / "designs").iterdir())
    assert len(files) == 2
    table = pq.read_table(ran.folder / "designs").to_pydict()
    assert len(table["reason"]) == 6 * 18
    seen = set()
    names = next(iter(direct.values()))[0].names
    metric = STUDY["objective"]["maximize"]
    for n in range(len(table["reason"])):
        i = AXES["workload.isl.mean"].index(table["workload.isl.mean"][n])
        j = [0.5, 1.0].index(table["hardware.memory_bandwidth_bytes_per_s"][n])
        grid, scored = direct[i, j]
        axes = {axis.name: axis.values for axis in grid.axes}
        digits = [axes[name].index(table[f"design.{name}"][n]) for name in names]
        index = grid.index(digits)
        seen.add((i, j, index))
        assert table["reason"][n] == Reason(int(scored.reason[index])).name.lower()
        if scored.reason[index] == Reason.OK:
            assert table[metric][n] == pytest.approx(scored.score[index], rel=5e-3)
    assert len(seen) == 6 * 18


def test_resuming_in_the_middle_gives_the_same_bytes(ran: Ran, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(done: int, total: int) -> None:
        raise Killed

    grid = prepared()
    with pytest.raises(Killed):
        run.price(grid, whole_machine(), tmp_path, kill)
    written = checkpoint.read(tmp_path, grid.fingerprint)
    assert 0 < written["parts"][0]["next_block"] < grid.whole.plans[0].n_blocks
    again = run.price(grid, whole_machine(), tmp_path)
    assert again.priced < grid.whole.size
    assert bytes_of(tmp_path) == bytes_of(ran.folder)
    assert GridResult(grid, again).to_json() == ran.document


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axes": {**AXES, "workload.isl.mean": [512, 2048, 8191]}}, "the axes"),
        ({"top": 3}, "what is kept"),
    ],
)
def test_another_grid_does_not_go_on_from_it(ran: Ran, changes: Any, said: str) -> None:
    before = bytes_of(ran.folder)
    with pytest.raises(CheckpointError, match=said):
        run.price(prepared(**changes), whole_machine(), ran.folder)
    assert bytes_of(ran.folder) == before


def test_a_changed_file_of_the_data_set_is_refused(ran: Ran) -> None:
    path = ran.folder / "designs" / "part-00000.parquet"
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-1] + b"?")
        with pytest.raises(CheckpointError, match="not the file that was written"):
            run.price(ran.grid, whole_machine(), ran.folder)
        path.unlink()
        with pytest.raises(CheckpointError, match="cannot be read"):
            run.price(ran.grid, whole_machine(), ran.folder)
    finally:
        path.write_bytes(content)


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    ran: Ran, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot write"):
        run.price(ran.grid, whole_machine(), tmp_path / "file" / "inside")


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_where_nothing_is_feasible_a_second_pass_names_the_nearest(tmp_path: Path) -> None:
    hopeless = copy.deepcopy(STUDY)
    hopeless["objective"]["promises"] = {"ttft_mean": "1 ms"}
    # The grid of the other tests, so that its first pass runs the program that they compile.
    grid = prepared(hopeless)
    outcome = run.price(grid, whole_machine(), tmp_path)
    [held] = outcome.held
    assert held.found.feasible == 0
    assert held.next_missed == grid.whole.plans[0].n_blocks
    wanted: dict[int, float] = {}
    for scenario in range(6):
        scored = score_designs(grid.whole.parts[0].problem(scenario), range(18))
        for reason, miss in zip(scored.reason.tolist(), scored.miss.tolist(), strict=True):
            wanted[reason] = min(miss, wanted.get(reason, np.inf))
    assert held.found.misses.keys() == wanted.keys()
    for reason, (score, _) in held.found.misses.items():
        assert -score == pytest.approx(wanted[reason], rel=1e-3)
    nearest = GridResult(grid, outcome).nearest
    assert nearest is not None
    assert list(nearest["what_if"].values()) == ["512", "x1"]
    # Resumed, it has nothing left to price and says the same.
    again = run.price(grid, whole_machine(), tmp_path)
    assert again.priced == 0
    assert again.held[0].found == held.found


def test_all_designs_need_a_folder(ran: Ran) -> None:
    with pytest.raises(DseError, match="--out"):
        run.price(ran.grid, whole_machine(), None)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"heat": [["workload.isl.mean", "attention_pt"]]}, "attention_tp"),
        ({"heat": [["workload.isl", "mode"]]}, "workload.isl.mean"),
    ],
)
def test_a_table_over_an_unknown_axis_is_refused(kept: Any, said: str) -> None:
    with pytest.raises(DseError, match=said):
        prepared(**kept)


def test_a_study_that_grew_is_another_one(ran: Ran) -> None:
    other = replace(ran.grid, study=ran.grid.study.model_copy(update={"seed": 5}))
    assert other.fingerprint["the study"] != ran.grid.fingerprint["the study"]


def _parts(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda state: change(state["parts"][0])


@pytest.mark.parametrize(
    "change",
    [
        _parts(lambda part: part.pop("top")),
        _parts(lambda part: part.update(top=[[1e9, [1, 2]]])),
        _parts(lambda part: part.update(counts={"0": "x"})),
        _parts(lambda part: part["counts"].update({"0": -5})),
        _parts(lambda part: part["counts"].update({"0": part["counts"]["0"] + 1})),
        _parts(lambda part: part.update(next_block=10**12)),
        lambda state: state.update(parts=[]),
        lambda state: state.pop("files"),
    ],
)
def test_a_checkpoint_whose_content_cannot_be_is_refused(
    ran: Ran, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    """Its checksum fits: whoever wrote it, it was no grid."""
    folder = tmp_path / "out"
    shutil.copytree(ran.folder, folder)
    state = checkpoint.read(folder, ran.grid.fingerprint)
    change(state)
    checkpoint.write(folder, ran.grid.fingerprint, state)
    with pytest.raises(CheckpointError, match="is damaged"):
        run.price(ran.grid, whole_machine(), folder)

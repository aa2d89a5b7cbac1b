"""The same grid on eight devices, in two processes, and killed in the middle: the same bytes.

Each run of several devices is a process of its own, since jax takes its devices once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import dse
from dse.cli.grid import read_grid
from dse.grid import checkpoint, plan, run
from dse.grid.document import GridResult
from dse.grid.prepared import prepare
from dse.search.sharded import DEVICES, Machine
from tests.grid.samples import AXES, KEPT, STUDY

pytestmark = pytest.mark.slow

# Small blocks, so that all devices have some; short launches, so that a run has many.
BLOCK = 18
SCRIPT = f"""
import sys
import dse.grid.plan, dse.grid.run
dse.grid.plan.longest_row = lambda problem: {BLOCK}
dse.grid.run.LAUNCH_S, dse.grid.run.CHECKPOINT_S = 1e-6, 0.0
if sys.argv[1] == "stop":
    step = dse.grid.run._Run._save
    def save(self):
        step(self)
        print("saved", file=sys.stderr, flush=True)
        import time
        time.sleep(60)
    dse.grid.run._Run._save = save
from dse.cli.app import main
main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    axes = {**AXES, "workload.concurrency": {"log": [2, 64], "points": 6}}
    path.write_text(json.dumps({**STUDY, "grid": {"axes": axes, **KEPT}}))
    return path


def start(mode: str, study: Path, out: Path, *more: str, **variables: str) -> subprocess.Popen[str]:
    """`dse grid` in a process of its own; programs are kept beside the study."""
    home = str(Path(dse.__file__).parents[1])
    cache = {"DSE_CACHE_DIR": str(study.parent / "cache"), "JAX_PLATFORMS": "cpu"}
    variables["XLA_FLAGS"] = f"{os.environ['XLA_FLAGS']} {variables.get('XLA_FLAGS', '')}"
    arguments = ["grid", str(study), "--out", str(out), "--json", *more]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode, *arguments],
        env={**os.environ, "PYTHONPATH": home, **cache, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def document(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file but the manifest, which tells when and on what."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


@pytest.fixture(scope="module")
def reference(study: Path) -> Path:
    """Two processes of one device each, over gloo, to the end; only the first one writes."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    both = []
    for number, name in enumerate(("both", "never")):
        where = ("--distributed", f"localhost:{port},{number},2")
        both.append(start("go", study, study.parent / name, *where, JAX_NUM_CPU_DEVICES="1"))
    found = document(both[0])
    _, err = both[1].communicate(timeout=60)
    assert both[1].returncode == 0, err
    assert (found["devices"], found["processes"]) == (2, 2)
    assert found["points"] == 6 * 6 * 18
    assert not (study.parent / "never").exists()
    return study.parent / "both"


def test_one_device_gives_the_same_designs(
    study: Path, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: the command on its one device is that of the command line's tests."""
    monkeypatch.setattr(plan, "longest_row", lambda problem: BLOCK)
    one = Machine(Mesh(np.asarray(jax.devices()[:1]), (DEVICES,)))
    read, spec = read_grid(str(study), [], {"axes": {}})
    grid = prepare(read, spec)
    found = GridResult(grid, run.price(grid, one, tmp_path / "out")).to_json()
    wanted = json.loads((reference / "result.json").read_text())
    assert one.n_devices == 1
    assert_close({key: found[key] for key in wanted}, wanted)


def assert_close(found: Any, wanted: Any) -> None:
    """Equal in everything but the last digits of numbers that are not whole."""
    if isinstance(wanted, Mapping):
        assert list(found) == list(wanted)
        for key in wanted:
            assert_close(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-6)
    else:
        assert found == wanted


def test_killed_and_resumed_on_eight_devices_it_ends_with_the_same_bytes(
    study: Path, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = start("stop", study, out, JAX_NUM_CPU_DEVICES="2")
    deadline = time.monotonic() + 500
    while not (out / checkpoint.NAME).exists():
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    state = json.loads((out / checkpoint.NAME).read_text())["state"]
    assert 0 < state["parts"][0]["next_block"] < 36
    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    found = document(start("go", study, out, **eight))
    assert (found["devices"], found["processes"]) == (8, 1)
    assert bytes_of(out) == bytes_of(reference)

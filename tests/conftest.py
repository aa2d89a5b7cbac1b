"""Settings of every test: properties are judged by their truth, not by their speed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Programs of tests run once: compiling them in a hurry takes a third of the time.
HURRIED = "--xla_backend_optimization_level=0"
PLAINER = "--xla_cpu_use_fusion_emitters=false"


def known(flags: str) -> bool:
    """Whether this version of XLA has all of the flags: one that it lacks ends the process."""
    ran = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        check=False,
    )
    return ran.returncode == 0


# Worker processes find what the first one has set.
if "XLA_FLAGS" not in os.environ:
    both = f"{HURRIED} {PLAINER}"
    os.environ["XLA_FLAGS"] = both if known(both) else HURRIED
    # Benchmarks take them back.
    os.environ["XLA_FLAGS_OF_TESTS"] = os.environ["XLA_FLAGS"]

# Traced programs stay: looking through all of them again and again takes a tenth of the time.
gc.set_threshold(200_000, 50, 1000)
settings.register_profile("dse", deadline=None)
settings.load_profile("dse")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def programs_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one process has traced, others read: in a new folder, so that each run traces it all."""
    from dse.search import program_store

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # a worker's own folder lies in that of the run
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSE_CACHE_DIR", str(folder / "cache"))
        program_store.keep_in(folder / "cache" / "programs")
        yield
        program_store.keep_in(None)


# Programs of one file seldom serve another: above this they are let go.
MOST_RESIDENT_BYTES = 2.2e9


@pytest.fixture(scope="module", autouse=True)
def programs_let_go() -> Iterator[None]:
    """Keeps a worker that has tested many files from holding all of their programs."""
    yield
    if resident_bytes() < MOST_RESIDENT_BYTES:
        return
    import jax

    from dse.search import interpret, programs

    programs._programs.clear()
    interpret._written.clear()
    jax.clear_caches()
    gc.collect()


def resident_bytes() -> float:
    """Memory of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))

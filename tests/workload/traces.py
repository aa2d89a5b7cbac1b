"""Traces for the tests: shipped recordings, and small files made on the spot."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from dse.spec.load import load_spec
from dse.spec.workload import Workload
from dse.workload import Trace, read_trace

DATA = Path(__file__).parent / "data"


@lru_cache(maxsize=4)
def recorded(name: str) -> Trace:
    """A shipped recording."""
    return read_trace(DATA / f"{name}.csv.gz")


def workload(**data: Any) -> Workload:
    return load_spec(Workload, {"isl": 1000, "osl": 100, **data})

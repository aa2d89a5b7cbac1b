"""What kind of miss a case is: why its prediction may be far off, by what it measures."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from dse.calibrate.published.case import Case
from dse.calibrate.published.names import read_own

_UNKNOWN: Final = "not explained"


@lru_cache(maxsize=1)
def _kinds() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(one["cases"]), one["kind"]) for one in read_own("misses.yaml")]


def kind_of_miss(case: Case) -> str:
    """The first kind whose pattern is found in the case's id."""
    for pattern, kind in _kinds():
        if pattern.search(case.id):
            return kind
    return _UNKNOWN

"""Strict JSON from whatever a result is made of."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from dse.cli.json_output import dumps, plain

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_DATA = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def _without_non_finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, list):
        return [_without_non_finite(item) for item in data]
    if isinstance(data, dict):
        return {key: _without_non_finite(item) for key, item in data.items()}
    return data


@given(st.dictionaries(st.text(), _DATA))
def test_plain_data_survives_and_non_finite_is_null(data: dict[str, Any]) -> None:
    assert json.loads(dumps(data)) == _without_non_finite(data)


@dataclass(frozen=True)
class _Design:
    tp: int
    share: float


class _Block(BaseModel):
    limit_s: float
    path: PurePosixPath


class _Mode(Enum):
    SPLIT = "disaggregated"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.inf]]), [[1.0, None]]),
        (_Design(4, math.inf), {"tp": 4, "share": None}),
        (_Block(limit_s=0.05, path=PurePosixPath("a/b")), {"limit_s": 0.05, "path": "a/b"}),
        (_Mode.SPLIT, "disaggregated"),
        ((1, 2), [1, 2]),
        ({"b", "a"}, ["a", "b"]),
        ({8: "x", True: "y", "k": "z"}, {"8": "x", "true": "y", "k": "z"}),
    ],
)
def test_rich_values_become_plain(value: object, expected: object) -> None:
    assert plain(value) == expected
    assert json.loads(dumps({"value": value})) == {"value": expected}


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        dumps({"value": object()})

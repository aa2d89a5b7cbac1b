"""An index and its digits mean the same design."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.space.grid import COLOCATED, COLOCATED_ORDER, DISAGGREGATED, Axis, Grid, make_grid

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def grid_of(sizes: list[int]) -> Grid:
    return Grid(COLOCATED, tuple(Axis(f"a{i}", tuple(range(n))) for i, n in enumerate(sizes)))


@given(SIZES, st.data())
def test_index_and_digits_are_inverse(sizes: list[int], data: st.DataObject) -> None:
    grid = grid_of(sizes)
    index = data.draw(st.integers(0, grid.size - 1))
    digits = grid.digits(index)
    assert grid.index(digits) == index
    assert all(0 <= digit < size for digit, size in zip(digits, sizes, strict=True))


@given(SIZES)
def test_every_design_has_its_own_digits(sizes: list[int]) -> None:
    grid = grid_of(sizes[:4])
    seen = {grid.digits(index) for index in range(grid.size)}
    assert len(seen) == grid.size == math.prod(sizes[:4])


def test_the_last_axis_runs_fastest() -> None:
    grid = grid_of([2, 3])
    assert [grid.digits(i) for i in range(4)] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_spaces_beyond_32_bits_are_indexed_exactly() -> None:
    grid = grid_of([1000] * 7)
    index = 10**21 - 12345
    assert grid.index(grid.digits(index)) == index


@pytest.mark.parametrize("index", [-1, 6, 10**9])
def test_an_index_outside_the_grid_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="of 6"):
        grid_of([2, 3]).digits(index)


@pytest.mark.parametrize("digits", [(0, 3), (-1, 0)])
def test_a_digit_outside_its_axis_is_refused(digits: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="axis of"):
        grid_of([2, 3]).index(digits)


def test_axes_are_ordered_whatever_the_order_given() -> None:
    axes = dict.fromkeys(reversed(COLOCATED_ORDER), (1,))
    assert make_grid(COLOCATED, axes).names == COLOCATED_ORDER


def test_an_axis_of_another_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="replicas"):
        make_grid(DISAGGREGATED, {"replicas": (1,)})

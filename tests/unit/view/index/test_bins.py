"""Bins of histograms: round, equally wide, and the same as those that the page makes itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_view.index.bins import EPSILON, Grid, grid_of


def filled(grid: Grid, values: list[float]) -> dict[int, tuple[int, float, float]]:
    """Values in the bins of a grid, as the index's query puts them there."""
    found: dict[int, list[float]] = {}
    for value in values:
        place = (value - grid.start) / grid.width + EPSILON
        found.setdefault(int(max(0, min(place, grid.count - 1))), []).append(value)
    return {number: (len(of), min(of), max(of)) for number, of in found.items()}


@pytest.mark.parametrize(
    ("low", "high", "whole", "start", "width", "count"),
    [
        (0.0, 1.0, False, 0.0, 0.05, 20),
        (0.03, 0.97, False, 0.0, 0.05, 20),
        (-1.0, 1.0, False, -1.0, 0.1, 20),
        (1, 4, True, 1.0, 1.0, 4),
        (1, 60, True, 0.0, 5.0, 13),
        (7, 7, True, 7.0, 1.0, 1),
        (2.5, 2.5, False, 2.5, 1.0, 1),
    ],
)
def test_edges_are_round(
    low: float, high: float, whole: bool, start: float, width: float, count: int
) -> None:
    grid = grid_of(low, high, whole=whole)
    assert grid.start == pytest.approx(start)
    assert grid.width == pytest.approx(width)
    assert grid.count == count


def test_values_of_which_no_bin_has_two_are_bins_alone() -> None:
    values = [0.0, 0.1, 0.1, 1.0]
    bins = grid_of(0.0, 1.0, whole=False).bins(filled(grid_of(0.0, 1.0, whole=False), values))
    assert [(one["from"], one["to"], one["count"]) for one in bins] == [
        (0.0, 0.0, 1), (0.1, 0.1, 2), (1.0, 1.0, 1),
    ]  # fmt: skip


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
def test_every_value_is_in_one_bin(values: list[float]) -> None:
    grid = grid_of(min(values), max(values), whole=False)
    assert grid.count <= 26
    bins = grid.bins(filled(grid, values))
    assert sum(one["count"] for one in bins) == len(values)
    held = [one for one in bins if one["count"]]
    assert min(one["least"] for one in held) == min(values)
    assert max(one["most"] for one in held) == max(values)
    assert all(math.isfinite(one["from"]) for one in held)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_whole_numbers_have_bins_of_as_many_each(values: list[int]) -> None:
    grid = grid_of(min(values), max(values), whole=True)
    assert grid.count <= 26
    assert grid.width == int(grid.width) >= 1
    bins = grid.bins(filled(grid, [float(one) for one in values]))
    assert sum(one["count"] for one in bins) == len(values)
    for one in bins:
        if one["count"]:
            assert one["from"] <= one["least"] <= one["most"] <= one["to"]

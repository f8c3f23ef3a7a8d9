"""Numbers by round, thinned out."""

from __future__ import annotations

import math

import pytest

from collegium.console.curves import MOST_POINTS, Grid, Series, Table, spreads, told


@pytest.mark.parametrize("length", [0, 1, 7, MOST_POINTS, MOST_POINTS + 1, 10_000, 123_457])
def test_a_grid_has_few_points_and_always_the_last(length):
    grid = Grid.over(0, length)
    rounds = grid.rounds()
    assert len(rounds) <= MOST_POINTS
    assert rounds == sorted(set(rounds))
    assert rounds[-1:] == ([length - 1] if length else [])
    assert grid.stride & (grid.stride - 1) == 0


def test_points_that_are_whole_do_not_change_when_rounds_are_added():
    before, after = Grid.over(0, 1000), Grid.over(0, 1005)
    assert before.stride == after.stride
    assert before.rounds()[: before.whole] == after.rounds()[: before.whole]


def test_a_part_of_the_points_is_the_end_of_all():
    grid = Grid.over(0, 999)
    assert grid.rounds(100) == grid.rounds()[100:]
    part = Grid.over(100, 300)
    assert (part.rounds()[0], part.rounds()[-1], part.stride) == (100, 299, 1)


def test_a_series_keeps_its_last_number():
    series = Series()
    series.put(2, 0.5)
    series.put(5, 0.7)
    assert told(series.at(range(7))) == [None, None, 0.5, 0.5, 0.5, 0.7, None]
    assert (series.first, series.last, series.get(9)) == (0.5, 0.7, 0.7)
    series.put(2, 0.6)  # told again
    assert series.get(2) == 0.6


def test_means_are_over_the_rounds_of_a_point():
    series = Series()
    for number in range(7):
        series.put(number, float(number))
    assert series.means(Grid(0, 7, 2)) == [0.5, 2.5, 4.5, 6.0]
    assert series.means(Grid(0, 7, 2), 2) == [4.5, 6.0]


def test_the_sum_follows_what_is_added_and_what_is_told_again():
    series = Series()
    assert series.total == 0.0
    series.put(1, 2.0)  # nothing is known of the first
    assert series.total == 2.0
    series.put(2, 3.0)
    assert series.total == 5.0
    series.put(1, 1.0)
    assert series.total == 4.0


def test_a_site_without_a_number_keeps_the_last():
    table = Table()
    table.put(0, [0.1, 0.2, None], 3)
    table.put(1, {"0": 0.3}, 3)
    points = [told(line, digits=3) for line in table.points([0, 1])]
    assert points == [[0.1, 0.3], [0.2, 0.2], [None, None]]
    assert told(list(table.spread())) == [0.25, 0.2, 0.3]
    assert told(table.means([0, 1])) == [0.15, 0.25]
    table.put(1, {"1": 0.5}, 3)  # the round is not over
    assert told(table.means([1])) == [0.4]
    table.put(0, {"1": 0.4}, 3)  # told again
    assert told(table.means([0, 1])) == [0.25, 0.4]
    assert table.means([]) == []


def test_the_spread_leaves_out_what_is_not_known():
    mean, low, high = spreads([[0.1, math.nan], [0.3, math.nan]])
    assert (told(mean), told(low), told(high)) == ([0.2, None], [0.1, None], [0.3, None])

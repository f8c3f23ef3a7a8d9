from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collegium.reports import style, svg
from collegium.reports.svg import Axis, Band, Bar, Line

ROUNDS = Axis("Round", whole=True)
SHARE = Axis("Share", "%", lowest=0, highest=100)


def path_of(chart: str, style_class: str) -> str:
    found = re.search(rf'<path class="{re.escape(style_class)}" d="([^"]*)"', chart)
    assert found is not None, style_class
    return found[1]


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def grid_lines(chart: str) -> list[float]:
    return [float(y) for y in re.findall(r'class="grid" d="M[\d.]+ ([\d.]+)H', chart)]


def boxes(chart: str) -> list[dict[str, float]]:
    found = re.findall(r'<rect class="bar[^"]*" x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"', chart)
    return [dict(zip(("x", "y", "width", "height"), map(float, each), strict=True)) for each in found]


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 25))
def test_ticks_are_round_and_not_too_many(low, span, most):
    high = low + span
    step = svg.tick_step(low, high, most)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(mantissa == pytest.approx(value) for value in (1, 2, 2.5, 5, 10))
    assert len(svg.ticks(low, high, step)) <= most + 1


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 25))
def test_ticks_of_whole_numbers_are_whole(low, span, most):
    step = svg.tick_step(low, low + span, most, whole=True)
    assert step >= 1
    assert step == round(step)


@pytest.mark.parametrize("span", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_range_still_has_a_step(span):
    assert svg.tick_step(0, span, 5) == 1


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0.25, 0.05, "0.25"), (92.5, 2.5, "92.5"), (-1e-17, 0.1, "0.0"), (12_000, 2000, "12,000"), (3, 1, "3")],
)
def test_ticks_have_as_many_decimals_as_they_need(value, step, text):
    assert svg.tick_text(value, step) == text


def test_lines_lie_where_their_axes_say():
    chart = svg.line_chart([Line("a", [0, 1, 2], [0, 50, 100], "s0")], label="a", x=ROUNDS, y=SHARE)
    (x0, y0), (x1, y1), (x2, y2) = points(path_of(chart, "line s0"))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    lines = grid_lines(chart)
    assert max(lines) == pytest.approx(y0)
    assert min(lines) == pytest.approx(y2)
    assert 'role="img"' in chart
    assert 'aria-label="a"' in chart
    assert ">Round<" in chart
    assert ">Share<" in chart


def test_values_that_are_missing_are_left_out():
    chart = svg.line_chart([Line("a", [0, 1, 2], [10, math.nan, 30], "s0")], label="a", x=ROUNDS, y=SHARE)
    assert len(points(path_of(chart, "line s0"))) == 2
    assert "nan" not in chart
    alone = svg.line_chart([Line("a", [0, 1], [math.nan, 30], "s0")], label="a", x=ROUNDS, y=SHARE)
    assert path_of(alone, "line s0").endswith("h0")
    nothing = svg.line_chart([Line("a", [0, 1], [math.nan, math.nan], "s0")], label="a", x=ROUNDS, y=SHARE)
    assert path_of(nothing, "line s0") == ""


@pytest.mark.parametrize("value", [0.0, 37.5, 100.0])
def test_a_line_of_equal_values_is_inside_the_picture(value):
    chart = svg.line_chart([Line("a", [0, 1], [value, value], "s0")], label="a", x=ROUNDS, y=SHARE)
    assert all(0 < y < svg.WIDE[1] for _, y in points(path_of(chart, "line s0")))


def test_long_lines_are_thinned_but_keep_their_ends():
    n = 100_000
    line = Line("a", np.arange(n), np.linspace(0, 100, n), "s0")
    chart = svg.line_chart([line], label="a", x=ROUNDS, y=SHARE)
    drawn = points(path_of(chart, "line s0"))
    assert len(drawn) <= svg.WIDE[0]
    assert drawn[0][1] == max(grid_lines(chart))
    assert drawn[-1][1] == min(grid_lines(chart))


def test_a_band_goes_there_and_back():
    band = Band([0, 1], [10, 20], [30, 40], "s1")
    chart = svg.line_chart([Line("a", [0, 1], [20, 30], "s1")], bands=[band], label="a", x=ROUNDS, y=SHARE)
    edge = points(path_of(chart, "band s1"))
    assert [x for x, _ in edge] == [edge[0][0], edge[1][0], edge[1][0], edge[0][0]]
    assert edge[0][1] < edge[3][1]


def test_columns_are_as_high_as_their_values():
    chart = svg.column_chart([(0, 1, 10.0), (1, 2, 5.0), (2, 3, 0.0)], label="a", x=ROUNDS, y=Axis("n", lowest=0))
    first, second, third = boxes(chart)
    assert first["height"] == pytest.approx(2 * second["height"], abs=0.2)
    assert third["height"] == 0
    assert first["y"] + first["height"] == pytest.approx(second["y"] + second["height"], abs=0.2)


@pytest.mark.parametrize("values", [[5.0, 5.0, 5.0], [0.0, 0.0], [1.0, 2.0, 2.5, 9.0], [0.3, 0.1 + 0.2, 0.7]])
def test_a_histogram_counts_every_value(values):
    chart = svg.histogram(np.array(values), label="a", x=Axis("value"))
    counted = [int(n) for n in re.findall(r"<title>(\d+)</title>", chart)]
    assert sum(counted) == len(values)


def test_bars_are_as_long_as_their_parts():
    chart = svg.bar_chart([Bar("a", [10, 20], "30 B"), Bar("b", [15, 0], "15 B")], label="a", x=Axis("Sent"))
    first, second, third = boxes(chart)
    assert second["width"] == pytest.approx(2 * first["width"], abs=0.2)
    assert second["x"] == pytest.approx(first["x"] + first["width"], abs=0.2)
    assert third["width"] == pytest.approx(1.5 * first["width"], abs=0.2)
    assert "30 B" in chart


def test_bars_without_any_length_can_be_drawn():
    assert boxes(svg.bar_chart([Bar("a", [0.0]), Bar("b", [0.0])], label="a", x=Axis("Sent"))) == []


def test_a_heat_map_has_a_cell_per_share_above_nothing():
    shares = np.array([[0.0, 0.05, 0.1], [1.0, 0.95, 0.9]])
    chart = svg.heat_map(["no", "yes"], shares, label="a", x_label="Sites")
    shades = {shade: path.count("M") for shade, path in re.findall(r'class="s0 h(\d)" d="([^"]*)"', chart)}
    assert shades == {"0": 2, "4": 3}
    assert svg.heat_legend().count("<li>") == 6


def test_names_are_escaped_and_shortened():
    name = "<b>" + "x" * 100
    chart = svg.bar_chart([Bar(name, [1.0], "<i>")], label='"<u>', x=Axis("<s>"))
    assert not re.search(r"<(b|i|u|s)>", chart)
    assert "&lt;b&gt;" in chart
    assert f"<title>&lt;b&gt;{'x' * 100}</title>" in chart
    assert re.search(r">&lt;b&gt;x{20}\u2026</text>", chart)


def test_many_series_have_different_looks():
    looks = [svg.series_style(i) for i in range(style.PALETTE)]
    assert len(set(looks)) == style.PALETTE
    assert svg.series_style(style.PALETTE) == looks[0]
    assert sum("dash" in look for look in looks) == style.PALETTE // 2


def test_only_mark_up_is_not_escaped():
    assert style.text("<b>") == "&lt;b&gt;"
    assert style.text(style.Markup("<b>")) == "<b>"
    assert style.element("a", "<", href='"x"', class_=None, aria_label="&") == (
        '<a href="&quot;x&quot;" aria-label="&amp;">&lt;</a>'
    )
    assert style.text("\ud800") == "?"

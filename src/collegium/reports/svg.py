"""Charts as inline SVG: no script, no request. Colours come from the page's style sheet (`style`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.reports.style import PALETTE, Markup, element, join

WIDE: Final = (860, 330)
HALF: Final = (420, 270)
FLAT: Final = (860, 220)
_LETTER: Final = 6.6
"""About the width of a letter: SVG cannot measure text."""
_MOST_POINTS: Final = 20_000
_HEAT_LEVELS: Final = (0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Axis:
    """An axis: what it says, what stands behind its numbers, and where it must end."""

    label: str
    suffix: str = ""
    whole: bool = False
    lowest: float = -math.inf
    highest: float = math.inf
    logarithmic: bool = False
    """Whether values are logarithms to base ten: the ticks then show what they are logarithms of."""

    def tick(self, value: float, step: float) -> str:
        """What stands at a tick."""
        return f"{10**value:g}{self.suffix}" if self.logarithmic else tick_text(value, step, self.suffix)


@dataclass(frozen=True)
class Line:
    """A named line; `style` is one of the style sheet's classes: s0 .. s11, mean, hair."""

    name: str
    x: ArrayLike
    y: ArrayLike
    style: str


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    style: str


@dataclass(frozen=True)
class Bar:
    """A row of parts laid end to end, with a remark behind them."""

    name: str
    parts: Sequence[float] | NDArray[Any]
    note: str = ""


def series_style(number: int) -> str:
    """The class of a series; the second half of the palette is dashed, for eyes that see few colours."""
    colour = number % PALETTE
    return f"s{colour} dash" if colour >= PALETTE // 2 else f"s{colour}"


def tick_step(low: float, high: float, most: int, *, whole: bool = False) -> float:
    """The smallest round step (1, 2, 2.5 or 5 times a power of ten) that makes at most about `most` steps."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return 1.0
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in ((1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)) if m * power >= raw * (1 - 1e-9))
    return max(1.0, step) if whole else step


def ticks(low: float, high: float, step: float) -> list[float]:
    """The multiples of a step between two values."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_text(value: float, step: float, suffix: str = "") -> str:
    """A tick with as many decimals as its step needs."""
    decimals = next((d for d in range(12) if abs(round(step, d) - step) < 1e-9 * step), 12)
    return f"{value if abs(value) > step * 1e-6 else 0.0:,.{decimals}f}{suffix}"


def shorten(name: str, most: int = 24) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def legend(entries: Sequence[tuple[str, str]], *, blocks: bool = False) -> Markup:
    """Names and the classes of their colours."""
    shape = "block " if blocks else ""
    items = (element("li", join([element("i", "", class_=shape + style), name])) for name, style in entries)
    return element("ul", join(items), class_="legend")


def line_chart(
    lines: Sequence[Line], *, label: str, x: Axis, y: Axis, bands: Sequence[Band] = (), size: tuple[int, int] = WIDE
) -> Markup:
    """Lines over bands; dots mark the values where there are few."""
    xs = np.concatenate([np.asarray(each.x, dtype=float) for each in lines])
    ys = [each.y for each in lines] + [values for each in bands for values in (each.low, each.high)]
    low, high = float(xs.min()), float(xs.max())
    ends = (low, high) if high > low else (low - 0.5, high + 0.5)
    frame = _Frame(size, ends, _y_scale(np.concatenate([np.asarray(each, dtype=float) for each in ys]), y), x, y)
    most = int(np.clip(_MOST_POINTS // len(lines), 60, size[0]))
    marks = []
    for band in bands:
        edge = _points(frame, band.x, band.high, most) + _points(frame, band.x, band.low, most)[::-1]
        area = f"M{'L'.join(edge)}Z" if edge else ""
        marks.append(element("path", class_=f"band {band.style.removesuffix(' dash')}", d=area))
    for line in lines:
        points, title = _points(frame, line.x, line.y, most), element("title", line.name)
        path = f"M{points[0]}h0" if len(points) == 1 else "M" + "L".join(points) if points else ""
        marks.append(element("path", title, class_=f"line {line.style}", d=path))
        if "hair" not in line.style and np.size(line.x) <= 40:
            dots = "".join(f"M{point}h0" for point in points)
            marks.append(element("path", title, class_=f"dots {line.style.removesuffix(' dash')}", d=dots))
    return _svg(size, label, frame.draw(), *marks)


def column_chart(
    columns: Sequence[tuple[float, float, float]], *, label: str, x: Axis, y: Axis, size: tuple[int, int] = FLAT
) -> Markup:
    """Columns, each from x0 to x1 and so high."""
    low, high = min(c[0] for c in columns), max(c[1] for c in columns)
    frame = _Frame(size, (low, high), _y_scale(np.array([0.0, *(c[2] for c in columns)]), y), x, y)
    base = frame.py(0)
    marks = []
    for start, stop, value in columns:
        left, right, up = frame.px(start), frame.px(stop), frame.py(value)
        marks.append(_box(left + 0.5, up, max(right - left - 1, 0.5), base - up, "bar s0", f"{value:,g}"))
    return _svg(size, label, frame.draw(), *marks)


def histogram(values: NDArray[np.floating[Any]], *, label: str, x: Axis) -> Markup:
    """How many values lie in each of about 25 steps."""
    low, high = float(values.min()), float(values.max())
    step = tick_step(low, high, 25)
    first = math.floor(low / step)
    edges = step * np.arange(first, max(math.ceil(high / step), first + 1) + 1)
    heights = np.histogram(values, bins=edges)[0].tolist()
    columns = list(zip(edges[:-1].tolist(), edges[1:].tolist(), heights, strict=True))
    return column_chart(columns, label=label, x=x, y=Axis("Number of sites", whole=True, lowest=0), size=WIDE)


def bar_chart(bars: Sequence[Bar], *, label: str, x: Axis, width: int = WIDE[0]) -> Markup:
    """Rows of bars, with names to the left and remarks to the right."""
    row = 26 if len(bars) <= 12 else 19
    left = 14 + _LETTER * max(len(shorten(bar.name)) for bar in bars)
    right = 14 + _LETTER * max(len(bar.note) for bar in bars)
    size = (width, len(bars) * row + 54)
    most = max(max(sum(bar.parts) for bar in bars), 1e-12)
    step = tick_step(0, most, max(2, int((width - left - right) / 90)), whole=x.whole)
    high = min(math.ceil(most / step - 1e-9) * step, x.highest)
    scale = (width - left - right) / high
    marks = []
    for tick in ticks(0, high, step):
        at = left + tick * scale
        marks.append(element("path", class_="grid", d=f"M{_number(at)} 4V{size[1] - 46}"))
        marks.append(_text(at, size[1] - 28, tick_text(tick, step, x.suffix), "mid"))
    marks.append(_text(left + high * scale / 2, size[1] - 8, x.label, "mid"))
    for i, bar in enumerate(bars):
        marks += _row(bar, left, 6 + i * row, row - 6, scale)
    return _svg(size, label, *marks)


def heat_map(rows: Sequence[str], shares: NDArray[np.floating[Any]], *, label: str, x_label: str) -> Markup:
    """Shares between 0 and 1 as shades: one row per name, one column per entry."""
    height = 22 if len(rows) <= 12 else 14
    left = 14 + _LETTER * max(len(shorten(name)) for name in rows)
    size = (WIDE[0], len(rows) * height + 54)
    width = (size[0] - left - 16) / shares.shape[1]
    level = np.searchsorted(_HEAT_LEVELS, shares, side="left").clip(0, len(_HEAT_LEVELS) - 1)
    marks = [_text(left - 8, 4 + (i + 0.68) * height, shorten(name), "name end") for i, name in enumerate(rows)]
    # One path per shade: thousands of boxes would be ten times as large.
    for shade in range(len(_HEAT_LEVELS)):
        cells = zip(*np.nonzero((level == shade) & (shares > 0)), strict=True)
        box = f"h{_number(width)}v{height - 1}h-{_number(width)}z"
        path = "".join(f"M{_number(left + column * width)} {4 + row * height}{box}" for row, column in cells)
        if path:
            marks.append(element("path", class_=f"s0 h{shade}", d=path))
    step = tick_step(0, shares.shape[1], 10, whole=True)
    for tick in ticks(1, shares.shape[1], step):
        marks.append(_text(left + (tick - 0.5) * width, size[1] - 30, tick_text(tick, step), "mid"))
    marks.append(_text(left + shares.shape[1] * width / 2, size[1] - 9, x_label, "mid"))
    return _svg(size, label, *marks)


def heat_legend() -> Markup:
    """What the shades of a heat map mean."""
    edges = (0.0, *_HEAT_LEVELS)
    names = (f"{low:.0%} to {high:.0%}" for low, high in pairwise(edges))
    return legend([("none", "none"), *((name, f"s0 h{i}") for i, name in enumerate(names))], blocks=True)


@dataclass(frozen=True)
class _Frame:
    """The area that is drawn in, its scales, grid and axes."""

    size: tuple[int, int]
    x_range: tuple[float, float]
    y_scale: tuple[float, float, float]
    """Lowest and highest value, and the step between ticks."""
    x: Axis
    y: Axis

    @cached_property
    def _left(self) -> float:
        low, high, step = self.y_scale
        return 40 + _LETTER * max(len(self.y.tick(value, step)) for value in (low, high))

    def px(self, value: float) -> float:
        """From a value to a place from the left."""
        low, high = self.x_range
        return self._left + (value - low) / (high - low) * (self.size[0] - 14 - self._left)

    def py(self, value: float) -> float:
        """From a value to a place from the top."""
        low, high, _ = self.y_scale
        return self.size[1] - 46 - (value - low) / (high - low) * (self.size[1] - 56)

    def draw(self) -> Markup:
        """Grid, axes and what stands at them."""
        width, height = self.size
        base, left = height - 46, self._left
        marks = []
        for tick in ticks(*self.y_scale):
            at = self.py(tick)
            marks.append(element("path", class_="grid", d=f"M{_number(left)} {_number(at)}H{width - 14}"))
            marks.append(_text(left - 8, at + 4, self.y.tick(tick, self.y_scale[2]), "end"))
        step = tick_step(*self.x_range, max(2, int((width - left) / 70)), whole=self.x.whole)
        for tick in ticks(*self.x_range, step):
            at = self.px(tick)
            marks.append(element("path", class_="axis", d=f"M{_number(at)} {base}v4"))
            marks.append(_text(at, base + 19, self.x.tick(tick, step), "mid"))
        marks.append(element("path", class_="axis", d=f"M{_number(left)} {base}H{width - 14}"))
        marks.append(_text((left + width - 14) / 2, height - 8, self.x.label, "mid"))
        middle = (10 + base) / 2
        turned = f"rotate(-90 14 {_number(middle)})"
        marks.append(element("text", self.y.label, x=14, y=_number(middle), class_="mid", transform=turned))
        return join(marks)


def _y_scale(values: NDArray[np.floating[Any]], axis: Axis) -> tuple[float, float, float]:
    """From tick to tick around the values, and the step between ticks."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if high <= low:
        low, high = max(low - 1, axis.lowest), min(high + 1, axis.highest)
    step = tick_step(low, high, 6, whole=axis.whole)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return max(low, axis.lowest), min(high, axis.highest), step


def _points(frame: _Frame, x: ArrayLike, y: ArrayLike, most: int) -> list[str]:
    """Places of the finite values, thinned evenly where there are more than the eye can tell apart."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    kept = np.flatnonzero(np.isfinite(ys))
    if len(kept) > most:
        kept = kept[np.linspace(0, len(kept) - 1, most).round().astype(int)]
    return [f"{_number(frame.px(xs[i]))} {_number(frame.py(ys[i]))}" for i in kept.tolist()]


def _row(bar: Bar, left: float, top: float, height: float, scale: float) -> list[Markup]:
    marks = [_text(left - 8, top + height / 2 + 4, shorten(bar.name), "name end", title=bar.name)]
    at = left
    for i, part in enumerate(bar.parts):
        if part > 0:
            marks.append(_box(at, top, max(part * scale, 0.5), height, f"bar s{i % PALETTE}"))
        at += part * scale
    if bar.note:
        marks.append(_text(at + 7, top + height / 2 + 4, bar.note, None))
    return marks


def _box(x: float, y: float, width: float, height: float, style: str, title: str | None = None) -> Markup:
    inner = None if title is None else element("title", title)
    sides = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", inner, class_=style, **{name: _number(value) for name, value in sides.items()})


def _text(x: float, y: float, content: str, style: str | None, title: str | None = None) -> Markup:
    inner = content if title is None or title == content else join([element("title", title), content])
    return element("text", inner, x=_number(x), y=_number(y), class_=style)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(size: tuple[int, int], label: str, *content: object) -> Markup:
    view = f"0 0 {size[0]} {size[1]}"
    drawn = element("svg", join(content), viewBox=view, role="img", aria_label=label)
    return element("div", drawn, class_="chart", tabindex=0)  # on a narrow screen it scrolls, also by keyboard

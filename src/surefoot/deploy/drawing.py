"""Small charts over episodes as SVG: sharp at every size, and coloured by the page, so that they suit light and dark.

Drawn by hand rather than by a plotting library: a page that is looked at while rows are written is drawn every second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 230  # of a chart in its own units; text is 12 of them high
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 10, 34

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """The part of the plane that is shown: episodes 0 … `end` across, `low` … `high` up."""

    end: float
    low: float
    high: float

    def x(self, episode: float) -> float:
        return (WIDTH - LEFT - RIGHT) * min(1.0, episode / self.end)

    def y(self, value: float) -> float:
        """What lies far outside is drawn just outside, where it is cut off."""
        share = (value - self.low) / (self.high - self.low)
        return (HEIGHT - TOP - BOTTOM) * (1 - min(2.0, max(-1.0, share)))


def frame(episodes: float, values: Sequence[float], room: float = 0.08) -> Frame:
    """Holds all these values, and some room around them."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    return Frame(max(episodes, 1.0), low - room * span, high + room * span)


def chart(label: str, shown: Frame, marks: Sequence[Markup], ticks: Sequence[tuple[float, str]] = ()) -> Markup:
    """Axes, and within them `marks`; `label` says in words what a reader without eyes for it would miss.

    Args:
        ticks: (height, text) where they are not numbers.
    """
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, label)]
    heights = ticks or [(value, written(value)) for value in nice(shown.low, shown.high)]
    for value, text in heights:
        y = TOP + shown.y(value)
        if not ticks:
            parts.append(Markup('<path class="grid" d="M{} {:.1f}h{}"/>').format(LEFT, y, width))
        parts.append(Markup('<text class="up" x="{}" y="{:.1f}">{}</text>').format(LEFT - 8, y + 4, text))
    inner = Markup("").join(marks)
    parts.append(Markup('<svg x="{}" y="{}" width="{}" height="{}">{}</svg>').format(LEFT, TOP, width, height, inner))
    floor = TOP + height
    parts.append(Markup('<path class="axis" d="M{} {}h{}"/>').format(LEFT, floor, width))
    for value in nice(0, shown.end, least=1.0):  # episodes are whole
        x = LEFT + shown.x(value)
        parts.append(Markup('<path class="axis" d="M{:.1f} {}v4"/>').format(x, floor))
        parts.append(Markup('<text class="across" x="{:.1f}" y="{}">{}</text>').format(x, floor + 18, written(value)))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


# ----------------------------------------------------------------------------------------------------- marks in a chart


def line(shown: Frame, points: Sequence[Point], kind: str) -> Markup:
    return _path(kind, "M" + "L".join(_place(shown, *point) for point in points)) if points else Markup("")


def steps(shown: Frame, points: Sequence[Point], kind: str, end: float | None = None) -> Markup:
    """Each value holds until the next one, the last until the `end`, by default that of the frame."""
    if not points:
        return Markup("")
    turns = [f"H{shown.x(x):.1f}V{shown.y(y):.1f}" for x, y in points[1:]]
    return _path(kind, f"M{_place(shown, *points[0])}{''.join(turns)}H{shown.x(shown.end if end is None else end):.1f}")


def band(shown: Frame, points: Sequence[tuple[float, float, float]], kind: str) -> Markup:
    """Between the second and the third coordinate."""
    if not points:
        return Markup("")
    there = [_place(shown, x, high) for x, _, high in points]
    back = [_place(shown, x, low) for x, low, _ in reversed(points)]
    return _path(kind, "M" + "L".join([*there, *back]) + "Z")


def level(shown: Frame, value: float, kind: str) -> Markup:
    return _path(kind, f"M0 {shown.y(value):.1f}H{shown.x(shown.end):.1f}")


def above(shown: Frame, value: float, kind: str) -> Markup:
    return _path(kind, f"M0 0H{shown.x(shown.end):.1f}V{shown.y(value):.1f}H0Z")


def moment(shown: Frame, episode: float, kind: str) -> Markup:
    return _path(kind, f"M{shown.x(episode):.1f} 0v{HEIGHT}")


def block(shown: Frame, across: Point, up: Point, share: float, kind: str) -> Markup:
    """A rectangle, the fainter the smaller its share."""
    left, right = map(shown.x, across)
    top, bottom = shown.y(up[1]), shown.y(up[0])
    path = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"
    return Markup('<path class="{}" opacity="{:.2f}" shape-rendering="crispEdges" d="{}"/>').format(
        kind, 0.15 + 0.85 * share, path
    )


def _path(kind: str, path: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(escape(kind), path)


def _place(shown: Frame, x: float, y: float) -> str:
    return f"{shown.x(x):.1f} {shown.y(y):.1f}"


# -------------------------------------------------------------------------------------------------------------- numbers


def nice(low: float, high: float, most: int = 5, least: float = 0.0) -> list[float]:
    """A few round numbers between these two, about `most`, `least` or more apart."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = max(least, next((size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough), size))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(k * step, 12) for k in range(first, min(last, first + 2 * most) + 1)] or [(low + high) / 2]


def written(value: float) -> str:
    """A number for a tick: short, with a true minus sign."""
    size = abs(value)
    text = f"{value / 1e6:g} M" if size >= 1e6 else f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")

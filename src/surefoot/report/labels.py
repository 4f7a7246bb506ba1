"""Names at the ends of lines, in place of a legend: none lies upon another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from surefoot.report.palette import INK

LEADER = 16.0  # points from the end of a line to its name
SIZE = 8.5


@dataclass(frozen=True, eq=False)
class EndLabel:
    """A name beside the end of a line, not yet moved away from others."""

    axes: Axes
    end: float
    text: Annotation
    leader: Line2D


def end_labels(axes: Axes, lines: Mapping[str, Line2D]) -> list[EndLabel]:
    """Names to the right of the panel, each behind a piece of its own line."""
    made = []
    for name, line in lines.items():
        text = axes.annotate(
            name,
            (1, 0.5),
            xycoords="axes fraction",
            xytext=(LEADER + 4, 0),
            textcoords="offset points",
            va="center",
            fontsize=SIZE,
            color=INK,
            annotation_clip=False,
        )
        leader = Line2D([], [])
        leader.update_from(line)  # dashes and all
        leader.set(marker="", linewidth=min(line.get_linewidth(), 2.4), clip_on=False, label="_leader")
        made.append(EndLabel(axes, float(np.asarray(line.get_ydata())[-1]), text, leader))
    return made


def place(figure: Figure, labels: Sequence[EndLabel]) -> None:
    """Lay the figure out, once and for all, and move names of one panel apart that would lie upon each other."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    points = figure.dpi / 72
    for axes in dict.fromkeys(label.axes for label in labels):
        own = [label for label in labels if label.axes is axes]
        box, x, (low, high) = axes.get_window_extent(), axes.get_xlim()[0], axes.get_ylim()
        ends = [float(axes.transData.transform((x, min(max(label.end, low), high)))[1]) for label in own]
        apart = spread(ends, gap=1.25 * SIZE * points, low=box.y0, high=box.y1)
        for label, end, y in zip(own, ends, apart, strict=True):
            _draw(label, (end - box.y0) / box.height, (y - box.y0) / box.height, LEADER * points / box.width)


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The places closest to these (least squares) that keep their order, lie `gap` apart and within [low, high].

    Of equal ones the first is the highest. Pooled as in isotonic regression: names that touch move as one block.
    """
    order = sorted(range(len(places)), key=lambda k: (places[k], -k))
    blocks: list[tuple[float, int]] = []  # mean of the places less the gaps below, and how many
    for rank, k in enumerate(order):
        mean, size = places[k] - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    base = [mean for mean, size in blocks for _ in range(size)]
    room = high - (len(places) - 1) * gap
    found = [0.0] * len(places)
    for rank, k in enumerate(order):
        found[k] = max(low, min(base[rank], room)) + rank * gap
    return found


def _draw(label: EndLabel, end: float, y: float, width: float) -> None:
    """From the end of the line straight to its name."""
    label.text.xy = (1, y)
    label.leader.set_data([1, 1 + width * 0.45, 1 + width], [end, y, y])
    label.leader.set_transform(label.axes.transAxes)
    label.axes.add_artist(label.leader)

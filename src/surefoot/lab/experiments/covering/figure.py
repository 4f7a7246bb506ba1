"""Covering numbers against the radius, a panel per family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from surefoot.lab.experiments.covering.settings import TITLES
from surefoot.report.figures import STYLE
from surefoot.report.palette import COLOURS


def covering_numbers(rows: Sequence[Mapping[str, Any]], delta: float) -> Figure:
    names = list(dict.fromkeys(row["family"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(names) + 0.6, 3.4), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _draw(axes, [row for row in rows if row["family"] == name])
            axes.set_title(TITLES[name].replace(": ", "\n"), fontsize=10.5, fontweight="bold")
            axes.set_xlabel("radius ε")
        figure.axes[0].set_ylabel(f"balls that hold all but δ = {delta:g}")
        figure.axes[0].legend()
    return figure


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    radii = [row["epsilon"] for row in rows]
    axes.fill_between(
        radii,
        [row["lower"] for row in rows],
        [row["upper"] for row in rows],
        color=COLOURS[0],
        alpha=0.2,
        linewidth=0,
        label="from samples",
    )
    if rows[0]["exact"] is not None:
        axes.plot(radii, [row["exact"] for row in rows], color=COLOURS[0], label="C")
        axes.plot(radii, [row["exact_as_left"] for row in rows], color=COLOURS[0], linestyle="--", label="C with 3δ")
    axes.plot(radii, [row["found"] for row in rows], "o", color=COLOURS[1], markersize=4.5, label="Algorithm 1")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.invert_xaxis()

"""Regret over episodes, covering number and margin: measured, certified, and as the paper bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from surefoot.lab.experiments.regret.settings import TITLES
from surefoot.report.figures import STYLE
from surefoot.report.palette import COLOURS, INK, REFERENCE, stroke

PAPER, TRIVIAL, SAFE = COLOURS[18], INK, stroke(REFERENCE).colour
Row = Mapping[str, Any]


def regret_and_bounds(curves: Row, sweeps: Mapping[str, Sequence[Row]], methods: Sequence[str]) -> Figure:
    """One panel over the episodes, one per sweep.

    Args:
        curves: lists over `episode`: of every method regret and what was certified, and the bounds.
        sweeps: by what was varied: rows with its `value` and the same numbers at the last episode.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * (1 + len(sweeps)) + 0.4, 5.0), layout="constrained")
        over, *others = figure.subplots(1, 1 + len(sweeps), sharey=True, squeeze=False)[0]
        _draw(over, curves["episode"], curves, methods, marker="")
        over.set_xlabel(TITLES["episodes"])
        over.set_ylabel("regret")
        for axes, (name, rows) in zip(others, sweeps.items(), strict=True):
            rows = sorted(rows, key=lambda row: row["value"])
            values = [row["value"] for row in rows]
            _draw(axes, values, {key: [row[key] for row in rows] for key in rows[0]}, methods, marker="o")
            axes.set_xlabel(TITLES[name])
            axes.set_xticks(values)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        over.set_ylim(bottom=0.5 * float(np.min([curves[method] for method in methods])))
        over.yaxis.set_major_locator(LogLocator(numticks=20))
        over.yaxis.set_minor_formatter(NullFormatter())
        figure.legend(*over.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _draw(axes: Axes, where: Sequence[float], numbers: Row, methods: Sequence[str], marker: str) -> None:
    look: dict[str, Any] = {"marker": marker, "markersize": 4}
    axes.plot(where, numbers["theorem"], color=PAPER, label="Theorem 4.2, constants of its proof", **look)
    axes.plot(where, numbers["shape"], "--", color=PAPER, label="Theorem 4.2, without constants", **look)
    axes.plot(where, numbers["trivial"], ":", color=TRIVIAL, linewidth=1.6, label="nobody has more: range × K")
    axes.plot(where, numbers["safe-only"], color=SAFE, linewidth=4, label="measured, safe-only")
    for method in methods:
        colour = stroke(method).colour
        axes.plot(where, numbers[f"certified {method}"], "--", color=colour, label=f"certified, {method}", **look)
        axes.plot(where, numbers[method], color=colour, label=f"measured, {method}", **look)
    axes.set_xscale("log")
    axes.set_yscale("log")

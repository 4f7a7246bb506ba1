"""Unsafe tasks at every level that was tried, against how many may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from surefoot.report.figures import STYLE
from surefoot.report.metrics import binomial_interval
from surefoot.report.palette import BUDGET_COLOUR, INK, stroke


def unsafe_by_level(calibration: Mapping[str, Any], fresh: Mapping[str, Any]) -> Figure:
    """Dots with 95 % intervals, triangles where a level failed; the line is what a level may not exceed."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.8), layout="constrained")
        axes = figure.subplots()
        runs, most = calibration["runs"], calibration["risk"] - calibration["error"]
        limit = "risk less the error of the test" if calibration["error"] else "risk"
        colour = stroke(calibration["method"]).colour
        for level, unsafe in calibration["counts"]:
            passed = calibration["level"] is not None and level <= calibration["level"]
            label = "simulated tasks, passed" if passed else "failed: so many or more, not counted to the end"
            axes.plot(level, 100 * unsafe / runs, "o" if passed else "^", color=colour, markersize=7, label=label)
            if passed:  # a count that was broken off has no interval
                low, high = binomial_interval(unsafe, runs)
                axes.plot([level, level], [100 * low, 100 * high], color=colour, linewidth=1.5)
        if calibration["level"] is not None:
            low, high = (100 * end for end in fresh["interval"])
            share = 100 * fresh["unsafe"] / fresh["tasks"]
            axes.errorbar(
                calibration["level"] * 1.02,
                share,
                [[share - low], [high - share]],
                fmt="s",
                color=INK,
                markersize=5,
                label="fresh tasks, at the level that was found",
            )
        axes.axhline(100 * most, color=BUDGET_COLOUR, linewidth=1.2, linestyle="--")
        axes.annotate(
            limit, (0.01, 100 * most), xycoords=("axes fraction", "data"),
            xytext=(0, 3), textcoords="offset points", fontsize=8.5, color=BUDGET_COLOUR,
        )  # fmt: skip
        axes.set_xlim(0, 1.25 * max(level for level, _ in calibration["counts"]))
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.set_xlabel("nominal level")
        axes.set_ylabel("unsafe tasks in %")
        handles, labels = axes.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))  # each once
        below = 100 * most / axes.get_ylim()[1]  # the line, where levels are low and nothing is in the way
        axes.legend(named.values(), named.keys(), loc="upper left", bbox_to_anchor=(0.0, below))
    return figure

"""Samples against each of the four quantities of the bound, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from surefoot.lab.experiments.lower_bound.settings import EXPONENTS, TITLES
from surefoot.report.figures import STYLE
from surefoot.report.palette import GREY, stroke


def samples_needed(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    quantities = list(dict.fromkeys(row["quantity"] for row in rows))
    found = [row for row in rows if None not in row["samples"]]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3 * len(quantities) + 0.6, 3.8), layout="constrained")
        for axes, quantity in zip(
            figure.subplots(1, len(quantities), sharey=True, squeeze=False)[0], quantities, strict=True
        ):
            _draw(axes, quantity, [row for row in found if row["quantity"] == quantity], methods)
        figure.axes[0].set_ylabel("samples until the best policy is found")
        figure.axes[0].legend(loc="upper left")
    return figure


def _draw(axes: Axes, quantity: str, rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> None:
    if not rows:
        return
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        where, colour = [row["value"] for row in own], stroke(method).colour
        axes.plot(where, [np.median(row["samples"]) for row in own], "o-", color=colour, markersize=4, label=method)
        for row in own:
            axes.plot([row["value"]] * 2, [min(row["samples"]), max(row["samples"])], color=colour, linewidth=1)
    _slope(axes, quantity, rows)
    axes.set_xscale("log")
    axes.set_yscale("log")
    values = sorted({row["value"] for row in rows})
    axes.set_xticks(values)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(TITLES[quantity])


def _slope(axes: Axes, quantity: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """The bound's exponent, through the fewest samples at the first value: it says nothing of a constant."""
    values = np.array(sorted({row["value"] for row in rows}))
    first = min(min(row["samples"]) for row in rows if row["value"] == values[0])
    power, line = EXPONENTS[quantity], first / 2 * (values / values[0]) ** EXPONENTS[quantity]
    label = f"as the bound grows: power {power}"
    axes.plot(values, line, "--", color=GREY, linewidth=1.2)
    axes.text(0.97, 0.04, label, ha="right", color=GREY, fontsize=8.5, transform=axes.transAxes)

"""Unsafe tasks of every method against the risk it was given, and whether a broken promise would have been seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.lab.experiments.promise.verdict import Count
from surefoot.report.figures import STYLE
from surefoot.report.palette import BUDGET_COLOUR, INK, PAPER, SOFT, stroke


def counts_and_risks(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel per risk, a row per method: the share of unsafe tasks with its exact 95 % interval, and the risk."""
    risks = sorted({row["risk"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(8.0, 4.6 * len(risks)), 0.78 * len(methods) + 1.3), layout="constrained")
        panels = figure.subplots(1, len(risks), sharey=True, squeeze=False)[0]
        for axes, risk in zip(panels, risks, strict=True):
            _draw(axes, risk, [row for row in rows if row["risk"] == risk], methods)
        panels[0].set_yticks([-k for k in range(len(methods))], methods)
        panels[0].set_ylim(-len(methods) + 0.4, 0.45)
    return figure


def powerful(row: Mapping[str, Any]) -> bool:
    """Whether the count could have shown a broken promise; earlier versions did not look."""
    if row.get("tested") is None or not row["tasks"]:
        return False
    counted = (row[key] for key in ("tasks", "unsafe_tasks", "tested", "twin_tasks", "twin_unsafe"))
    return Count(*counted).has_power(row["risk"])


def _draw(axes: Axes, risk: float, rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> None:
    for row in rows:
        y, colour = -methods.index(row["method"]), stroke(row["method"]).colour
        low, high = (100 * end for end in row["interval"])
        axes.plot([low, high], [y, y], color=colour, linewidth=3, solid_capstyle="butt")
        share, face = 100 * row["unsafe_tasks"] / row["tasks"], colour if powerful(row) else PAPER
        axes.plot(share, y, "o", color=colour, markerfacecolor=face, markersize=8, clip_on=False, zorder=3)
        place: Any = {"xytext": (5, -14), "textcoords": "offset points", "fontsize": 8, "va": "center", "color": SOFT}
        axes.annotate(_words(row), (0, y), **place)
    highest = max([risk, *(row["interval"][1] for row in rows)])
    axes.set_xlim(0, 100 * min(1.0, 1.25 * highest))
    axes.axvline(100 * risk, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2)
    axes.axvspan(100 * risk, axes.get_xlim()[1], color=BUDGET_COLOUR, alpha=0.06, linewidth=0, zorder=0)
    axes.set_title(f"risk {risk:g}", fontsize=10.5, fontweight="bold", color=INK)
    axes.set_xlabel("unsafe tasks, %")
    axes.grid(axis="y", visible=False)
    axes.tick_params(left=False)


def _words(row: Mapping[str, Any]) -> str:
    """The count, the verdict, and what the twin did that shows the power of it."""
    told = f"{row['unsafe_tasks']:,} of {row['tasks']:,}: {row.get('verdict') or 'not judged'}"
    twin = f"; overconfident twin {row['twin_unsafe']} of {row['twin_tasks']}" if row.get("twin_tasks") else ""
    return told + twin

"""How soon shifts are noticed, and what a promise at a distance costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from surefoot.report.figures import STYLE
from surefoot.report.palette import BUDGET_COLOUR, GREY, PAPER, REFERENCE, SOFT, stroke

MARKS = ("o", "s", "D", "^")  # of the method alone, and with each test beside it


def power(rows: Sequence[Mapping[str, Any]], episodes: int) -> Figure:
    """Every shift in a row, every method and test a point: filled where the alarm is always raised, at its median."""
    shifts = list(dict.fromkeys(row["shift"] for row in rows))
    kinds = list(dict.fromkeys(label(row) for row in rows))
    tests = sorted({row["test"] for row in rows})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 0.62 * len(shifts) + 1.5), layout="constrained")
        axes = figure.subplots()
        for k, kind in enumerate(kinds):
            own = [each for each in rows if label(each) == kind]
            colour, mark = stroke(own[0]["method"]).colour, MARKS[tests.index(own[0]["test"]) % len(MARKS)]
            axes.plot([], [], mark, color=colour, label=kind)
            for row in own:
                height = -shifts.index(row["shift"]) + 0.3 - 0.6 * k / max(1, len(kinds) - 1)
                share = row["alarms"] / row["runs"]
                if row["median_alarm"] is None:
                    axes.plot(1.6 * episodes, height, "x", color=colour, markersize=5)
                    continue
                face = colour if share == 1 else PAPER
                axes.plot(row["median_alarm"], height, mark, color=colour, markerfacecolor=face, markersize=6)
                if share < 1:
                    text = f"{row['alarms']} of {row['runs']}"
                    axes.annotate(
                        text, (row["median_alarm"], height), (6, -3), textcoords="offset points", fontsize=7, color=SOFT
                    )
        axes.axvline(episodes, color=GREY, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(1, 2.4 * episodes)
        axes.set_yticks([-k for k in range(len(shifts))], shifts)
        axes.set_xlabel("median episode of the alarm (hollow: not in all runs; ×: in none)")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def price(near: Sequence[Mapping[str, Any]]) -> Figure:
    """Left, regret on tasks of the distribution by the distance told; right, the least margin at that distance."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for method in dict.fromkeys(row["method"] for row in near):
            own = [row for row in near if row["method"] == method]
            colour, told = stroke(method).colour, [row["shift"] for row in own]
            left.plot(told, [row["regret"] for row in own], "o-", color=colour)
            right.plot(told, [row["least_margin"] for row in own], "o-", color=colour, label=f"{method}, told of η")
            untold = [row["least_margin_untold"] for row in own]
            right.plot(told, untold, "o--", color=colour, markerfacecolor=PAPER, label=f"{method}, not told")
        left.axhline(near[0]["regret_never"], color=stroke(REFERENCE).colour, label="safe-only")
        left.set_ylim(bottom=0)
        left.set_ylabel("mean regret on tasks of D")
        right.axhline(0, color=BUDGET_COLOUR, linewidth=1.0, label="budget")
        right.set_ylabel("least margin on tasks at distance η")
        for axes in (left, right):
            axes.set_xlabel("distance η")
            axes.locator_params(axis="x", nbins=5)
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def label(row: Mapping[str, Any]) -> str:
    return f"{row['method']} + {row['test']}" if row["test"] else str(row["method"])

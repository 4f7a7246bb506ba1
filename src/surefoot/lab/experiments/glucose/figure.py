"""The figures of the insulin pump: a few patients over the days, and the gain of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.lab.experiments.glucose.elimination import ELIMINATION
from surefoot.lab.experiments.glucose.settings import ADAPTING, KNOWN
from surefoot.lab.pump.family import BUDGET
from surefoot.report.figures import STYLE
from surefoot.report.palette import BUDGET_COLOUR, GREY, INK, PAPER, SOFT, stroke

HIGHEST_BELOW = 12.0  # per cent of the day; what lies above is named at the edge
SETTINGS_COLOURS = matplotlib.colormaps["YlGnBu"]
SAFE_COLOUR = "#d9d9d9"
POSSIBLE = INK
SMALL_PRINT: dict[str, Any] = {"fontsize": 8, "color": SOFT}
UNCERTIFIED_LINE = (0, (4, 2))


def patients_over_days(shown: Sequence[Mapping[str, Any]], policies: Sequence[str], drawn: Sequence[str]) -> Figure:
    """A column per patient: time in range, time below it against the budget, and the settings of `ADAPTING`."""
    adapting = ADAPTING if ADAPTING in drawn else drawn[-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(3.9 * len(shown), 5.2), 8.2), layout="constrained")
        rows = figure.subplots(3, len(shown), sharex=True, sharey="row", squeeze=False, height_ratios=[1.2, 1.1, 0.9])
        for column, patient in enumerate(shown):
            _draw_lines(rows[0][column], patient, drawn, "in_range", 100.0)
            possible = rows[0][column].axhline(
                100 * patient["possible"][0], color=POSSIBLE, linestyle=":", linewidth=1.2
            )
            rows[0][column].set_title(_title(patient), fontsize=10, fontweight="bold")
            _draw_lines(rows[1][column], patient, drawn, "below", HIGHEST_BELOW)
            budget = rows[1][column].axhline(100 * BUDGET, color=BUDGET_COLOUR, linestyle="--", linewidth=1.2)
            _draw_settings(rows[2][column], patient["methods"][adapting]["weights"], policies)
            _mark_leaving(rows[:, column], patient["methods"][adapting]["weights"])
            rows[2][column].set_xlabel("day")
        rows[0][0].set_ylim(0, 100)
        rows[1][0].set_ylim(0, HIGHEST_BELOW)
        rows[0][0].set_ylabel("time in range, % of the day")
        rows[1][0].set_ylabel("time below range, % of the day")
        rows[2][0].set_ylabel(f"settings in use, %\n({adapting})")
        figure.align_ylabels()
        handles, labels = rows[0][0].get_legend_handles_labels()
        words = ["the most that is safely possible", "at most 4 % below range"]
        first = figure.legend(
            [*handles, possible, budget],
            [*labels, *words],
            loc="outside upper center",
            ncols=5 if len(shown) > 1 else 2,
            fontsize=9,
        )
        figure.add_artist(first)
        patches, names = rows[2][0].get_legend_handles_labels()
        title = "settings, from least to most insulin, each named by the patient it was made for"
        figure.legend(patches, names, loc="outside lower center", ncols=3, fontsize=8, title=title, title_fontsize=8)
    return figure


def gain_over_days(methods: Mapping[str, Any], cell_known: Mapping[str, Any]) -> Figure:
    """The share of the safely possible gain on each day, all patients together."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.subplots()
        days = 0
        for name, found in methods.items():
            share = 100 * np.array(found["share_by_day"])
            days = max(days, len(share))
            width = 2.2 if name == ADAPTING else 1.5
            axes.plot(np.arange(1, len(share) + 1), share, linewidth=width, **_look(name, found["certified"]))
        axes.axhline(100, color=POSSIBLE, linestyle=":", linewidth=1.2, label="the patient known")
        axes.axhline(100 * cell_known["share"], color=GREY, linestyle="-.", linewidth=1.2, label="the cell known")
        axes.set(xlim=(1, max(days, 2)), ylim=(min(-3.0, axes.dataLim.y0), 105))
        axes.set(xlabel="day", ylabel="share of the possible gain, %")
        figure.legend(loc="outside right upper", fontsize=8.5)
    return figure


def _look(name: str, certified: bool) -> dict[str, Any]:
    """Colour, stroke and label of a method; what has no certificate is dashed and says so."""
    colour = stroke("pce" if name == ELIMINATION.name else name).colour
    if certified:
        return {"color": colour, "linestyle": "-", "label": name}
    return {"color": colour, "linestyle": UNCERTIFIED_LINE, "label": f"{name} (uncertified)"}


def _draw_lines(axes: Axes, patient: Mapping[str, Any], drawn: Sequence[str], what: str, most: float) -> None:
    for name in drawn:
        values = 100 * np.array(patient["methods"][name][what])
        days, look = np.arange(1, len(values) + 1), _look(name, KNOWN[name].certified)
        width = 2.2 if name == ADAPTING else 1.5
        axes.step(days, np.minimum(values, most), where="mid", linewidth=width, **look)
        if values.max() > most:
            axes.text(
                min(days[values > most].max() + 1, 0.7 * days.max()),
                0.93 * most,
                f"up to {values.max():.0f} %",
                fontsize=8,
                color=look["color"],
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0},
            )


def _draw_settings(axes: Axes, weights: Any, policies: Sequence[str]) -> None:
    """How likely each of the settings is on each day, stacked: the safe ones below."""
    shares = 100 * np.array(weights)
    shades = [SAFE_COLOUR, *(SETTINGS_COLOURS(each) for each in np.linspace(0.2, 1.0, max(len(policies) - 1, 1)))]
    days = np.arange(1, len(shares) + 1)
    names = ["safe for everybody", *policies[1:]]
    axes.stackplot(days, shares.T, colors=shades[: len(policies)], labels=names, step="mid", linewidth=0)
    axes.set(ylim=(0, 100), xlim=(1, max(len(shares), 2)))
    axes.grid(False)


def _mark_leaving(column: Any, weights: Any) -> None:
    """The first day on which something was deployed that is not safe for everybody."""
    shares = np.array(weights)
    left = np.flatnonzero((shares != shares[0]).any(axis=1))
    if not left.size:
        column[0].text(0.03, 0.04, "keeps to what is safe for everybody", transform=column[0].transAxes, **SMALL_PRINT)
        return
    day = int(left[0]) + 1
    for axes in column:
        axes.axvline(day, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.5)))
    column[0].annotate(
        f"leaves what is safe\nfor everybody: day {day}",
        (day, 2),
        xytext=(4, 2),
        textcoords="offset points",
        **SMALL_PRINT,
    )


def _title(patient: Mapping[str, Any]) -> str:
    sensitivity, minutes = patient["parameter"]
    word = "sensitive" if sensitivity > 1.25 else "average" if sensitivity > 0.8 else "insensitive"
    return f"{word}: sensitivity {sensitivity:.2f}, {minutes:.0f} min"

"""A deployment as one HTML page, from its journal alone: margin, weight, what survives, and alarms over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.arrays import Floats
from surefoot.deploy.chain import Row, read, understood
from surefoot.deploy.forms import checked
from surefoot.deploy.outcomes import outcome_of
from surefoot.deploy.status import ALARMS, Status, Tally, facts
from surefoot.report.figures import BUDGET_COLOUR, COLOURS, STYLE, png
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Cell, Table

WINDOWS = 60  # points of the observed curve
MOST_EVENTS = 200


@dataclass(frozen=True, eq=False)
class History:
    """What the page shows of a journal; n told episodes, d decisions.

    Attributes:
        told, margin: [n] episode numbers and [n, m] budget - observed cost.
        decided: [d] episodes from which on the decisions hold; weight [d], surviving [d], claimed [d, m] (NaN: none).
    """

    status: Status
    told: Floats
    margin: Floats
    decided: Floats
    weight: Floats
    surviving: Floats
    claimed: Floats
    events: list[dict[str, Any]]
    abandoned: list[dict[str, Any]]


def deployment_page(path: str | PathLike[str]) -> Page:
    history = read_history(path)
    with understood(Path(path)):
        return _page(history)


def read_history(path: str | PathLike[str]) -> History:
    with understood(Path(path)):
        return gather(read(path))


def _page(history: History) -> Page:
    status = history.status
    alarms = len(status.alarms)
    lead = (
        f"{status.episodes:,} episodes, {status.abandoned:,} of them abandoned, with the method {status.method}. "
        f"Now: {status.why}. "
        + (f"{alarms} alarm{'s' if alarms != 1 else ''} on the way." if alarms else "No alarm on the way.")
    )
    return Page(
        "Deployment",
        lead,
        facts(status),
        (
            Section(
                "Over time",
                figure=png(history_figure(history)),
                caption=(
                    f"Margin: budget minus {status.kind}, smallest over the constraints. The line is what the method "
                    "claims of the mixture in force (a lower bound if it is certified), the dots are means of observed "
                    "episodes. Weight: probability of leaving the safe policy. Surviving: cells or candidates that are "
                    "not ruled out. Dashed lines are alarms."
                ),
            ),
            Section("Events", table=_events_table(history)),
        ),
        "Read from the journal alone; surefoot verify recomputes it from the policy set. "
        + ", ".join(f"{name} {version}" for name, version in versions()),
    )


def gather(rows: Iterable[Row]) -> History:
    tally, opened, last = Tally(), {}, None
    told: list[int] = []
    cost: list[Floats] = []
    decisions: list[dict[str, Any]] = []
    abandoned: list[dict[str, Any]] = []
    for row in rows:
        tally.add(row)
        last = row
        match row.kind:
            case "open":
                opened = checked(row)
            case "outcome":
                data = checked(row)
                told.append(data["episode"])
                cost.append(outcome_of(data, opened["discount"]).cost)
            case "decision":
                decisions.append(checked(row))
            case "abandoned":
                abandoned.append(checked(row))
    budget = np.array(opened["budget"])
    nothing = [float("nan")] * len(budget)
    claimed = [each["margin"] if each["margin"] is not None else nothing for each in decisions]
    return History(
        tally.status(last.n + 1 if last else 0, last.hash if last else b""),
        np.array(told, dtype=np.float64),
        budget - np.array(cost).reshape(-1, len(budget)),
        np.array([each["episode"] for each in decisions], dtype=np.float64),
        np.array([each["weight"] for each in decisions], dtype=np.float64),
        np.array([each["surviving"] for each in decisions], dtype=np.float64),
        np.array(claimed, dtype=np.float64).reshape(-1, len(budget)),
        tally.events,
        abandoned,
    )


def history_figure(history: History) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 6.4), layout="constrained")
        margin, weight, surviving = figure.subplots(3, 1, sharex=True, height_ratios=[1.4, 1, 1])
        end = max(history.status.episodes, 1)
        if len(history.claimed):
            _steps(margin, history.decided, history.claimed.min(axis=1), end, COLOURS[0], "claimed")
        if len(history.told):
            middle, mean = _windows(history.told, history.margin)
            margin.plot(middle, mean, ".", color=COLOURS[1], label="observed mean")
        margin.axhline(0.0, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, label="budget")
        margin.legend(loc="best", fontsize=8)
        _steps(weight, history.decided, history.weight, end, COLOURS[2])
        _steps(surviving, history.decided, history.surviving, end, COLOURS[4])
        for axes, label in ((margin, "margin"), (weight, "weight"), (surviving, "surviving")):
            axes.set_ylabel(label)
            for event in history.events:
                if event["kind"] in ALARMS:
                    axes.axvline(event["episode"], color=BUDGET_COLOUR, linestyle=":", linewidth=1.2)
        weight.set_ylim(-0.03, 1.03)
        surviving.set_ylim(bottom=0)
        surviving.set_xlabel("episode")
        surviving.set_xlim(0, end)
        surviving.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.align_ylabels()
    return figure


def _steps(axes: Axes, at: Floats, values: Floats, end: float, colour: str, label: str = "") -> None:
    if len(at):
        places, heights = np.append(at, end), np.append(values, values[-1])
        axes.plot(places, heights, drawstyle="steps-post", color=colour, linewidth=1.8, label=label)


def _windows(told: Floats, margin: Floats) -> tuple[Floats, Floats]:
    """Middle and smallest mean margin of at most `WINDOWS` runs of episodes."""
    parts = np.array_split(np.arange(len(told)), min(WINDOWS, len(told)))
    middle = np.array([told[part].mean() for part in parts])
    return middle, np.array([margin[part].mean(axis=0).min() for part in parts])


def _events_table(history: History) -> Table:
    rows: list[tuple[int, str, str]] = [
        (event["episode"], event["kind"], event["message"]) for event in history.events
    ] + [(each["episode"], "abandoned", each["reason"]) for each in history.abandoned]
    rows.sort(key=lambda row: row[0])
    shown = rows if len(rows) <= MOST_EVENTS else rows[: MOST_EVENTS // 2] + rows[-MOST_EVENTS // 2 :]
    return Table(
        ("episode", "event", "what"),
        tuple(
            (f"{episode:,}", Cell(kind, "bad") if kind in ALARMS else kind, message) for episode, kind, message in shown
        ),
        numbers=(0,),
    )

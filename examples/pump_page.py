"""The page of `pump.py` for the clinic, from the journal alone: time in range day by day, and glucose by the hour.

The lower figure is the ambulatory glucose profile that clinics use (Battelino et al. 2019, Diabetes Care 42:1593-1603):
the median over days at each hour, and the bands that hold half and nine tenths of the readings.

A simulation and no medical device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from surefoot.deploy.chain import read
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Page, Section, render
from surefoot.report.palette import BUDGET_COLOUR, COLOURS, GREY, INK
from surefoot.report.table import Table
from surefoot.report.verdict import Answer, Verdict

FORTNIGHT = 14  # days of a glucose profile
LOW, HIGH, MOST_BELOW = 70, 180, 4.0  # mg/dl, and per cent of the day


@dataclass(frozen=True, eq=False)
class Diary:
    """Days that were told [n]: their numbers, time in and below range in per cent, settings, glucose [n, 289]; and the
    days without an outcome, with the reason."""

    days: np.ndarray
    in_range: np.ndarray
    below: np.ndarray
    settings: np.ndarray
    glucose: np.ndarray
    missing: dict[int, str]


def clinic_page(journal: Path, settings: Sequence[str]) -> Path:
    """Write the page beside the journal; `settings` are the names in the policy set."""
    diary = read_diary(journal)
    page = Page(
        title="Insulin pump: report for the clinic",
        verdict=_verdict(diary, slice(-FORTNIGHT, None)),
        lead="This is a simulation and no medical device.",
        sections=(
            Section(
                "Day by day",
                figure=svg(days_figure(diary, settings)),
                caption="Time in range, time below range with its mean over the days so far, and the settings in use.",
            ),
            Section(
                "The first and the last fortnight",
                figure=svg(profile_figure(diary)),
                caption="Readings by the hour: median, and where half and nine tenths of them lie; green is in range.",
            ),
            Section(
                "Days without an outcome",
                table=Table(("day", "why"), tuple((str(day), why) for day, why in diary.missing.items())),
            ),
        ),
    )
    path = journal.with_suffix(".clinic.html")
    path.write_text(render(page), encoding="utf-8")
    return path


def _verdict(diary: Diary, last: slice) -> Verdict:
    days, below = len(diary.days[last]), diary.below[last].mean()
    return Verdict(
        f"In the last {days} simulated days {diary.in_range[last].mean():.0f} % of the time was in range and "
        f"{below:.1f} % below it; at most {MOST_BELOW:g} % is asked for.",
        (
            Answer("In range", f"{diary.in_range[last].mean():.0f} %", f"of the time, in the last {days} days"),
            Answer(
                "Below range",
                f"{below:.1f} %",
                f"at most {MOST_BELOW:g} % is asked for",
                "bad" if below > MOST_BELOW else "good",
            ),
            Answer("Days", str(len(diary.days)), f"with an outcome, {len(diary.missing)} without"),
        ),
    )


def read_diary(journal: Path) -> Diary:
    """Every row is checked against the one before on the way."""
    ordered, missing, told = {}, {}, []
    for row in read(journal):
        if row.kind == "order":
            ordered[row.data["episode"]] = row.data["policy"]
        elif row.kind == "abandoned":
            missing[row.data["episode"]] = row.data["reason"]
        elif row.kind == "outcome":
            told.append(row.data)
    days = np.array([each["episode"] for each in told])
    return Diary(
        days,
        100 * np.array([each["reward"] for each in told]),
        100 * np.array([each["cost"][0] for each in told]),
        np.array([ordered[day] for day in days]),
        np.array([each["observations"] for each in told])[..., 0],
        missing,
    )


def days_figure(diary: Diary, settings: Sequence[str]) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 6.4), layout="constrained")
        upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=[1.2, 1, 1])
        upper.bar(diary.days, diary.in_range, color="#3fa66a", width=0.8)
        upper.set(ylabel="time in range, %", ylim=(0, 100))
        middle.bar(diary.days, diary.below, color=COLOURS[3], width=0.8)
        so_far = np.cumsum(diary.below) / np.arange(1, len(diary.below) + 1)
        middle.plot(diary.days, so_far, color=INK, label="mean so far")
        middle.axhline(MOST_BELOW, color=BUDGET_COLOUR, linestyle="--", label=f"{MOST_BELOW:g} %")
        middle.set(ylabel="time below range, %", ylim=(0, max(12.0, diary.below.max())))
        middle.legend(loc="upper right", ncols=2)
        lower.scatter(diary.days, diary.settings, s=18, color=COLOURS[0])
        lower.set(xlabel="day", yticks=range(len(settings)), ylim=(-0.5, len(settings) - 0.5))
        lower.set_yticklabels([f"for {name}" if k else "safe for everybody" for k, name in enumerate(settings)])
        for day in diary.missing:
            upper.annotate("no outcome", (day, 4), rotation=90, fontsize=8, color=GREY, ha="center")
    return figure


def profile_figure(diary: Diary) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 3.4), layout="constrained")
        parts = {"first": diary.glucose[:FORTNIGHT], "last": diary.glucose[-FORTNIGHT:]}
        for axes, (name, glucose) in zip(figure.subplots(1, 2, sharey=True), parts.items(), strict=True):
            hours = np.linspace(0, 24, glucose.shape[1])
            axes.axhspan(LOW, HIGH, color="#3fa66a", alpha=0.12, linewidth=0)
            for tail, shade in ((5, 0.18), (25, 0.35)):
                low, high = np.percentile(glucose, [tail, 100 - tail], axis=0)
                axes.fill_between(hours, low, high, color=COLOURS[0], alpha=shade, linewidth=0)
            axes.plot(hours, np.median(glucose, axis=0), color="#003f66")
            axes.axhline(LOW, color=BUDGET_COLOUR, linestyle="--", linewidth=1)
            axes.set(
                title=f"{name} {len(glucose)} days", xlabel="hour", xlim=(0, 24), xticks=range(0, 25, 6), ylim=(40, 400)
            )
        figure.axes[0].set_ylabel("glucose, mg/dl")
    return figure

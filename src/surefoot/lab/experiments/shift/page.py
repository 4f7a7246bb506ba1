"""The report on shifted tasks, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.shift.figure import label, power, price
from surefoot.lab.experiments.shift.tasks import FROM_D
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Cell, Table, interval, number
from surefoot.report.verdict import Answer, Verdict, took, unsafe


def shift_page(results: Results) -> Report:
    """Two figures and three tables."""
    settings = results["settings"]
    figures = {"power.png": power(results["rows"], settings["episodes"]), "price.png": price(results["near"])}
    shown = tables(results)
    page = Page(
        title="Tasks nobody trained for",
        verdict=_verdict(results),
        lead=(
            "A certified method speaks of tasks drawn from the training distribution D. Three things can be had beyond "
            "it: a test that raises an alarm where the task is none of them, a promise for tasks within a distance η "
            "of them, and the method without a model, which only needs a safe policy that is safe."
        ),
        facts=(
            ("episodes", f"{settings['episodes']:,}"),
            ("risk and level", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(
            Section("How soon it is noticed", figure=svg(figures["power.png"]), caption=_POWER),
            Section("Alarms", table=shown["Alarms"], notes=_ALARMS),
            Section("What a promise at a distance costs", figure=svg(figures["price.png"]), caption=_PRICE),
            Section("At a distance", table=shown["At a distance"]),
            Section("Without a model", table=shown["Without a model"], notes=_FREE),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {name: png(figure) for name, figure in figures.items()})


_POWER = (
    "The test looks at transitions beside the method, with the tasks of each cell known exactly, or (of balls) only up "
    "to the radius of the cell. On fresh tasks of D an alarm is a false one."
)
_ALARMS = (
    "After an alarm only the safe policy is deployed. Where that has a negative margin itself, every episode is "
    "unsafe, before and after.",
)
_PRICE = (
    "Left: regret of a learner that is told that the task may lie at distance η, on tasks of D. Right: the smallest "
    "margin of anything deployed on tasks moved by η against the candidate nearest to them, by learners that were told "
    "and that were not. Who was not told and sees transitions may meet a cost that fits no cell, and goes back to the "
    "safe policy."
)
_FREE = (
    "Shifts under which the safe policy is feasible, which is all that this method assumes. It stays close to the safe "
    "policy for so long that a count on gridworlds has little power.",
)


def tables(results: Results) -> dict[str, Table]:
    """The alarms, the promise at a distance, and the method without a model."""
    return {
        "Alarms": Table(
            (
                "shift",
                "method",
                "margin of the safe policy",
                "alarms",
                "median episode",
                "runs unsafe before",
                "unsafe episodes before, mean",
                "and after",
            ),
            tuple(map(_alarm_row, results["rows"])),
            numbers=(2, 3, 4, 5, 6, 7),
            optional=(4, 5),
        ),
        "At a distance": Table(
            (
                "η",
                "method",
                "regret on D",
                "unsafe at η",
                "95 %",
                "least margin",
                "unsafe if not told",
                "least margin ",
            ),
            tuple(map(_near_row, results["near"])),
            numbers=(0, 2, 3, 4, 5, 6, 7),
            optional=(4,),
        ),
        "Without a model": Table(
            ("shift", "margin of the safe policy", "unsafe runs", "95 %", "least margin", "reward gained"),
            tuple(map(_free_row, results["model_free"])),
            numbers=(1, 2, 3, 4, 5),
        ),
    }


def _verdict(results: Results) -> Verdict:
    """Who is told of a shift promises something about it, and so does who needs no model; who is not does not."""
    rows, settings = results["rows"], results["settings"]
    shifts = {row["shift"] for row in rows if row["shift"] != FROM_D and "no shift" not in row["shift"]}
    noticed = {row["shift"] for row in rows if row["alarms"] == row["runs"] and row["shift"] in shifts}
    drawn = [row for row in rows if row["shift"] == FROM_D]
    false, fresh = sum(row["alarms"] for row in drawn), sum(row["runs"] for row in drawn)
    near, free = results["near"], results["model_free"]
    count = sum(row["unsafe"] for row in [*near, *free]) + sum(row["runs_unsafe_before"] for row in drawn)
    total = sum(row["tasks"] for row in near) + sum(row["runs"] for row in free) + fresh
    safe = f"{count} of {total} runs with a promise were unsafe" if count else "no run with a promise was ever unsafe"
    beyond = [row for row in rows if row["shift"] in shifts]  # whom nobody told of the shift: nothing is promised
    outside = f"{sum(row['runs_unsafe_before'] for row in beyond)} of {sum(row['runs'] for row in beyond)}"
    return Verdict(
        f"{len(noticed)} of {len(shifts)} shifts were always noticed by a method or test, with {false} false alarms in "
        f"{fresh} runs; {safe}, of those that nothing is promised of {outside} were before an alarm.",
        (
            Answer(
                "Noticed",
                f"{len(noticed)} of {len(shifts)}",
                "shifts at which some method or test always raised an alarm",
            ),
            unsafe(count, total, "runs within what is promised: tasks of D, at a distance η told of, without a model"),
            Answer("False alarms", f"{false} of {fresh}", f"runs on fresh tasks of D; level {settings['risk']:g}"),
            took(results["seconds"], f"{settings['episodes']:,} episodes on each task"),
        ),
    )


def _alarm_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["shift"],
        label(row),
        MISSING if row["first_margin"] is None else number(row["first_margin"]),
        f"{row['alarms']} of {row['runs']}",
        MISSING if row["median_alarm"] is None else f"{row['median_alarm']:,.0f}",
        f"{row['runs_unsafe_before']} of {row['runs']}",
        f"{row['unsafe_before_mean']:,.0f}",
        f"{row['unsafe_after_mean']:,.0f}",
    )


def _near_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        f"{row['shift']:g}",
        row["method"],
        f"{row['regret']:,.0f}",
        _unsafe(row["unsafe"], row["tasks"]),
        interval(row["interval"], ".3f"),
        number(row["least_margin"]),
        _unsafe(row["unsafe_untold"], row["tasks"]),
        number(row["least_margin_untold"]),
    )


def _free_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["shift"],
        number(row["first_margin"]),
        _unsafe(row["unsafe"], row["runs"]),
        interval(row["interval"], ".3f"),
        number(row["least_margin"]),
        f"{row['gained']:.2f}",
    )


def _unsafe(count: int, total: int) -> Cell:
    return Cell(f"{count} of {total}", "bad" if count else "good")

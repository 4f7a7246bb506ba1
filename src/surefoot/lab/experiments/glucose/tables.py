"""The tables of the report on the insulin pump, from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.lab.experiments.frame import Results
from surefoot.report import table
from surefoot.report.table import MISSING, Cell, Table


def methods_table(results: Results) -> Table:
    settings = results["settings"]
    rows = tuple(
        (
            name,
            table.certified(found),
            _days(found["median_moved"], settings["days"]),
            _days(found["median_days"], settings["days"]),
            percent(found["share_early"]),
            percent(found["share"]),
            percent(found["in_range"]),
        )
        for name, found in results["methods"].items()
    )
    headers = (
        "method",
        "certified",
        "median day of leaving what is safe for everybody",
        "median days until 90 % of the possible gain",
        f"share of the gain, first {min(30, settings['days'])} days",
        f"all {settings['days']} days",
        "mean time in range",
    )
    return Table(headers, rows, numbers=(2, 3, 4, 5, 6), optional=(2, 6))


def safety_table(results: Results) -> Table:
    rows = tuple(
        (
            name,
            table.certified(found),
            _unsafe_cell(found),
            str(found["undecided_tasks"]),
            table.interval([100 * end for end in found["unsafe_interval"]], ".1f"),
            f"{found['unsafe_days']:,}",
            f"{100 * found['largest_below']:.2f} ± {100 * found['largest_below_error']:.2f}",
        )
        for name, found in results["methods"].items()
    )
    headers = (
        "method",
        "certified",
        "patients ever above 4 %",
        "undecided",
        "95 % interval, %",
        "days above 4 %",
        "largest time below range, %",
    )
    return Table(headers, rows, numbers=(2, 3, 4, 5, 6), optional=(4,))


def risks_table(results: Results) -> Table:
    days = results["settings"]["days"]
    rows = tuple(
        (
            risk,
            _days(found["median_moved"], days),
            _days(found["median_days"], days),
            percent(found["share_early"]),
            percent(found["share"]),
            _unsafe_cell(found),
        )
        for risk, found in results["risks"].items()
    )
    known = (
        ("the cell known", MISSING, MISSING, *[percent(results["cell_known"]["share"])] * 2, MISSING),
        ("the patient known", MISSING, MISSING, "100 %", "100 %", MISSING),
    )
    headers = (
        "risk",
        "median day of leaving what is safe for everybody",
        "median days until 90 %",
        f"share of the gain, first {min(30, days)} days",
        f"all {days} days",
        "patients ever above 4 %",
    )
    return Table(headers, (*rows, *known), numbers=(1, 2, 3, 4, 5))


def information_table(results: Results) -> Table:
    """Per patient the safe settings, and those that were made for one like that."""
    names, rows = results["policies"], []
    for row in results["information"]["rows"]:
        sensitivity = row["parameter"][0]
        if row["policy"] not in (0, _closest(names, sensitivity)):
            continue
        words = "safe for everybody" if row["policy"] == 0 else names[row["policy"]]
        rows.append((f"{sensitivity:g}", words, _error(row["sums"]), _error(row["signals"])))
    headers = ("sensitivity", "settings", "from the two sums", "from sums and signals")
    return Table(headers, tuple(rows), numbers=(2, 3))


def _closest(names: Sequence[str], sensitivity: float) -> int:
    """The settings that were made for the patient of closest sensitivity, by their names."""
    made_for = [float(name.removeprefix("sensitivity ").split(",")[0]) for name in names[1:]]
    return 1 + min(range(len(made_for)), key=lambda k: abs(made_for[k] / sensitivity - 1))


def _unsafe_cell(found: Mapping[str, Any]) -> str | Cell:
    text = f"{found['unsafe_tasks']} of {found['tasks']}"
    return Cell(text, "bad") if found["unsafe_tasks"] else text


def _days(median: float | None, days: int) -> str:
    return f"> {days}" if median is None else f"{median:g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", "−")


def _error(error: float | None) -> str:
    return MISSING if error is None else f"{error:.2f}" if error < 10 else "> 10"

"""The report on shifted tasks, made from results.json alone."""

from __future__ import annotations

from surefoot.experiments.results import Report, Results
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Table, number


def shift_page(results: Results) -> Report:
    """The table of alarms."""
    settings = results["settings"]
    page = Page(
        title="Tasks nobody trained for",
        lead=(
            "The promise holds for tasks drawn from the training distribution. Here the task is another one: more "
            "noise than the cells cover, a red cell moved, actions that stick. What can be hoped for is an alarm, "
            "after which only the safe policy is deployed. Where the safe policy itself has a negative margin, every "
            "episode is unsafe, before and after."
        ),
        facts=(
            ("episodes", f"{settings['episodes']:,}"),
            ("risk", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=tuple(Section(title, table=table) for title, table in tables(results).items()),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {})


def tables(results: Results) -> dict[str, Table]:
    """The alarms."""
    rows = tuple(
        (
            row["shift"],
            row["method"],
            number(row["first_margin"]),
            f"{row['alarms']} of {row['runs']}",
            MISSING if row["median_alarm"] is None else f"{row['median_alarm']:,.0f}",
            f"{row['runs_unsafe_before']} of {row['runs']}",
            f"{row['unsafe_before_mean']:,.0f}",
            f"{row['unsafe_after_mean']:,.0f}",
        )
        for row in results["rows"]
    )
    headers = (
        "shift",
        "method",
        "margin of the safe policy",
        "alarms",
        "median episode",
        "runs unsafe before",
        "unsafe episodes before, mean",
        "and after",
    )
    return {"Alarms": Table(headers, rows, numbers=(2, 3, 4, 5, 6, 7), optional=(4, 5))}

"""The report on calibrated levels, made from results.json alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.experiments.calibration.figure import unsafe_by_level
from surefoot.experiments.results import Report, Results
from surefoot.report.figures import png
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Table


def calibration_page(results: Results) -> Report:
    """The verdict, the figure and the tables."""
    settings, found = results["settings"], results["calibration"]
    figure = png(unsafe_by_level(found, results["fresh"]))
    page = Page(
        title="How much risk may really be taken",
        lead=_lead(results),
        facts=(
            ("method", settings["method"]),
            ("risk", f"{settings['risk']:g}, of which {found['error']:g} for the calibration itself"),
            ("episodes", f"{settings['episodes']:,}"),
            ("runs at each level", f"{settings['runs']:,}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s, of which {results['seconds_calibrating']:.0f} s for calibrating"),
            *versions(),
        ),
        sections=(
            Section("Unsafe tasks by level", figure=figure, caption=_CAPTION),
            *(Section(title, table=table) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"calibration.png": figure})


_CAPTION = (
    "A task counts as unsafe if anything that was deployed on it breaks the budget, or if the safe policy would. "
    "Levels are tried from the left, on the same simulated tasks, until one fails; the last that passed is used. "
    "A count breaks off once it is too large, so that a level that failed is worse than it looks."
)


def tables(results: Results) -> dict[str, Table]:
    """Levels; and what the one that was found is worth."""
    found, fresh = results["calibration"], results["fresh"]
    levels = tuple(
        (f"{level:g}", f"{unsafe:,} of {found['runs']:,}", "passed" if _passed(found, level) else "failed")
        for level, unsafe in found["counts"]
    )
    published = results["published"]
    means = {name: float(np.mean(regrets)) for name, regrets in published.items()}
    worth = (
        ("as proved", f"{results['settings']['risk']:g}", f"{means['plain']:,.0f}", MISSING, MISSING),
        (
            "calibrated",
            MISSING if found["level"] is None else f"{found['level']:g}",
            f"{means['calibrated']:,.0f}",
            f"{fresh['regret']:,.0f}",
            f"{fresh['unsafe']:,} of {fresh['tasks']:,}",
        ),
    )
    headers = ("level", "value", "regret, published noises", "regret, fresh tasks", "unsafe fresh tasks")
    return {
        "Levels": Table(("level", "unsafe", "verdict"), levels, numbers=(0, 1)),
        "Regret and promise": Table(headers, worth, numbers=(1, 2, 3, 4)),
    }


def _passed(found: Any, level: float) -> bool:
    return found["level"] is not None and level <= found["level"]


def _lead(results: Results) -> str:
    found, fresh, settings = results["calibration"], results["fresh"], results["settings"]
    if found["level"] is None:
        return f"No level passed: {settings['method']} is best used as it is proved, at level {settings['risk']:g}."
    plain, calibrated = (float(np.mean(results["published"][name])) for name in ("plain", "calibrated"))
    low, high = fresh["interval"]
    return (
        f"For {settings['episodes']:,} episodes at risk {settings['risk']:g} simulated tasks allow "
        f"{settings['method']} a level of {found['level']:g}: a regret of {calibrated:,.0f} on the published noises "
        f"instead of {plain:,.0f}. Of {fresh['tasks']:,} fresh tasks {fresh['unsafe']:,} were unsafe "
        f"({100 * low:.1f} to {100 * high:.1f} %; promised: at most {100 * settings['risk']:g} %)."
    )

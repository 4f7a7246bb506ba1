"""The report on calibrated levels, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.lab.experiments.calibration.figure import unsafe_by_level
from surefoot.lab.experiments.results import Report, Results
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Table
from surefoot.report.verdict import Answer, Verdict, percent, took


def calibration_page(results: Results) -> Report:
    """The verdict, the figure and the tables."""
    settings, found = results["settings"], results["calibration"]
    figure = unsafe_by_level(found, results["fresh"])
    page = Page(
        title="How much risk may really be taken",
        verdict=_verdict(results),
        lead=_LEAD,
        facts=(
            ("method", settings["method"]),
            ("risk", f"{settings['risk']:g}, {_part(found['error'])}"),
            ("episodes", f"{settings['episodes']:,}"),
            ("runs at each level", f"{settings['runs']:,}"),
            ("attempt", _attempt(found.get("attempt", 0))),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s, of which {results['seconds_calibrating']:.0f} s for calibrating"),
            *versions(),
        ),
        sections=(
            Section("Unsafe tasks by level", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"calibration.png": png(figure)})


_LEAD = (
    "A certified method is given a level, its risk, and is unsafe less often than that. Simulated tasks show how far "
    "the level may be raised for a declared number of episodes, the risk kept; fresh tasks show what that is worth."
)
_CAPTION = (
    "A task counts as unsafe if anything that was deployed on it breaks the budget, or if the safe policy would. "
    "Levels are tried from the left, on the same simulated tasks, until one fails; the last that passed is used. "
    "A count breaks off once it is too large: at a level that failed there may be many more."
)


def _attempt(attempt: int) -> str:
    return str(attempt) if attempt else "as if there were no other"


def _part(error: float) -> str:
    return f"of which {error:g} for the calibration itself" if error else "jointly over the calibration and the task"


def tables(results: Results) -> dict[str, Table]:
    """Levels; and what the one that was found is worth."""
    found, fresh = results["calibration"], results["fresh"]
    levels = tuple(
        (f"{level:g}", f"{unsafe:,} of {found['runs']:,}", "passed")
        if _passed(found, level)
        else (f"{level:g}", f"{unsafe:,} or more of {found['runs']:,}", "failed")
        for level, unsafe in found["counts"]
    )
    counted = (f"{fresh['regret']:,.0f}", f"{fresh['unsafe']:,} of {fresh['tasks']:,}")
    means = _means(results)
    plain = ("as proved", f"{results['settings']['risk']:g}", f"{means['plain']:,.0f}")
    if found["level"] is None:
        worth: tuple[tuple[str, ...], ...] = ((*plain, *counted), ("calibrated: no level passed", *[MISSING] * 4))
    else:
        calibrated = ("calibrated", f"{found['level']:g}", f"{means['calibrated']:,.0f}", *counted)
        worth = ((*plain, MISSING, MISSING), calibrated)
    headers = ("level", "value", "regret, published noises", "regret, fresh tasks", "unsafe fresh tasks")
    return {
        "Levels": Table(("level", "unsafe", "verdict"), levels, numbers=(0, 1)),
        "Regret and promise": Table(headers, worth, numbers=(1, 2, 3, 4)),
    }


def _means(results: Results) -> dict[str, float]:
    """Of the regret on the published noises."""
    return {name: float(np.mean(regrets)) for name, regrets in results["published"].items()}


def _passed(found: Any, level: float) -> bool:
    return found["level"] is not None and level <= found["level"]


def _verdict(results: Results) -> Verdict:
    found, fresh, settings = results["calibration"], results["fresh"], results["settings"]
    (low, high), risk, level = fresh["interval"], settings["risk"], found["level"]
    answers = (
        _gain_answer(_means(results), level),
        Answer(
            "Unsafe",
            f"{fresh['unsafe']:,} of {fresh['tasks']:,}",
            f"fresh tasks{' as proved' if level is None else ''}; promised: at most {percent(risk)} of them",
            "bad" if low > risk else "" if fresh["unsafe"] else "good",
        ),
        Answer("How sure", f"{percent(low)} to {percent(high)}", "of fresh tasks are unsafe, 95 % interval"),
        took(results["seconds"], f"of which {results['seconds_calibrating']:,.0f} s for calibrating"),
    )
    if level is None:
        return Verdict(
            f"No level passed: {settings['method']} is best used as it is proved, at level {risk:g}.", answers
        )
    kept = "more than the risk allows" if low > risk else f"the risk {risk:g} allows {risk * fresh['tasks']:,.0f}"
    return Verdict(
        f"For {settings['episodes']:,} episodes at risk {risk:g} simulated tasks allow {settings['method']} a level of "
        f"{level:g}; of {fresh['tasks']:,} fresh tasks {fresh['unsafe']:,} were then unsafe, {kept}.",
        answers,
    )


def _gain_answer(means: Mapping[str, float], level: float | None) -> Answer:
    if level is None:
        return Answer("Gained", "nothing", "no level above the risk passed")
    plain, raised = means["plain"], means["calibrated"]
    worth = f"of the regret on the published noises avoided: {raised:,.0f} instead of {plain:,.0f}"
    return Answer("Gained", percent(1 - raised / plain) if plain > 0 else "nothing", worth)

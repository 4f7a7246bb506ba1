"""The report on tails, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.experiments.results import Report, Results
from surefoot.experiments.tail.figure import NAMES, cost_laws
from surefoot.report.figures import png
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Cell, Table


def tail_page(results: Results) -> Report:
    """The figure and the table."""
    settings, rows = results["settings"], results["rows"]
    figure = png(cost_laws(rows, settings["level"]))
    worst = f"worst {1 - settings['level']:.0%}"
    page = Page(
        title="A budget on the tail",
        lead=(
            f"The paper's gridworld for 20 steps, twice: with a budget of {settings['mean']:g} on the mean of an "
            f"episode's cost, and with one of {settings['tail']:g} on the mean of the {worst} of all episodes "
            f"(CVaR), by states that know the cost so far. {_verdict(rows, worst)}"
        ),
        facts=(
            ("fresh tasks", str(settings["tasks"])),
            ("episodes on each", f"{settings['episodes']:,}"),
            ("threshold", f"{settings['threshold']:g}"),
            ("policies", ", ".join(f"{count} ({NAMES[name]})" for name, count in results["policies"].items())),
            ("risk", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(
            Section("What episodes cost", figure=figure, caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"tail.png": figure})


_CAPTION = (
    "Exact probabilities of the cost of an episode, over all that a certified method deployed, as a mean over the "
    "tasks; on a logarithmic axis. Dashed: the mean cost of the worst episodes."
)
_NOTES = (
    "Both are certified with their own budget: unsafe is who ever deployed a policy whose mean, or whose excess over "
    "the threshold, is above what that allows. Rewards are those of the first and of the last policy deployed, beside "
    "the best that either budget allows on the task.",
)


def tables(results: Results) -> dict[str, Table]:
    """Every task with either budget."""
    share = f"worst {1 - results['settings']['level']:.0%}"
    rows = tuple(
        (
            NAMES[row["budget"]],
            f"{row['noise']:.3f}",
            f"{row['mean']:.3f}",
            f"{row['cvar']:.3f}",
            f"{row['reward_first']:.2f}",
            f"{row['reward']:.2f}",
            f"{row['optimum']:.2f}",
            Cell("yes", "bad") if row["unsafe"] else Cell("no", "good"),
        )
        for row in results["rows"]
    )
    headers = ("budget", "noise", "mean cost", share, "reward, first", "last", "possible", "unsafe")
    return {"Tasks": Table(headers, rows, numbers=(1, 2, 3, 4, 5, 6))}


def _verdict(rows: Sequence[Mapping[str, Any]], worst: str) -> str:
    found = {
        name: {key: float(np.mean([row[key] for row in rows if row["budget"] == name])) for key in ("cvar", "reward")}
        for name in NAMES
    }
    unsafe = sum(row["unsafe"] for row in rows)
    return (
        f"The {worst} cost {found['mean']['cvar']:.2f} with the one and {found['tail']['cvar']:.2f} with the other, "
        f"at a reward of {found['mean']['reward']:.2f} and {found['tail']['reward']:.2f} in the end; {unsafe} of "
        f"{len(rows)} runs were ever unsafe."
    )

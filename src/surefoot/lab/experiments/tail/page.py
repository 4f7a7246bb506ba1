"""The report on tails, made from results.json alone."""

from __future__ import annotations

import numpy as np

from surefoot.lab.experiments.results import Report, Results
from surefoot.lab.experiments.tail.figure import NAMES, cost_laws
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Cell, Table
from surefoot.report.verdict import Answer, Verdict, certain, percent, took, unsafe


def tail_page(results: Results) -> Report:
    """The figure and the table."""
    settings, rows = results["settings"], results["rows"]
    figure = cost_laws(rows, settings["level"])
    worst = f"worst {percent(1 - settings['level'])}"
    page = Page(
        title="A budget on the tail",
        verdict=_verdict(results, worst),
        lead=(
            f"The paper's gridworld for 20 steps, twice: with a budget of {settings['mean']:g} on the mean of an "
            f"episode's cost, and with one of {settings['tail']:g} on the mean of the {worst} of all episodes "
            f"(CVaR), by states that know the cost so far."
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
            Section("What episodes cost", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"tail.png": png(figure)})


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
    share = f"worst {percent(1 - results['settings']['level'])}"
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


def _verdict(results: Results, worst: str) -> Verdict:
    rows, settings = results["rows"], results["settings"]
    mean, tail = (
        {key: float(np.mean([row[key] for row in rows if row["budget"] == name])) for key in ("cvar", "reward")}
        for name in NAMES
    )
    count = sum(row["unsafe"] for row in rows)
    price = f"from {mean['reward']:.2f} to {tail['reward']:.2f}"
    safe = f"{count} of {len(rows)} runs were ever unsafe" if count else "no run was ever unsafe"
    return Verdict(
        f"With a budget on the tail the {worst} of all episodes cost {tail['cvar']:.2f} instead of {mean['cvar']:.2f}, "
        f"the reward goes {price}, and {safe}.",
        (
            Answer(
                f"The {worst}",
                f"{tail['cvar']:.2f}",
                f"cost of an episode; with a budget on the mean {mean['cvar']:.2f}",
            ),
            unsafe(count, len(rows), "runs, each judged by its own budget"),
            certain(count, len(rows), settings["risk"], "runs"),
            took(results["seconds"], f"{len(rows)} runs of {settings['episodes']:,} episodes"),
        ),
    )

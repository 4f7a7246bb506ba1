"""`surefoot reproduce covering`: C_ε(D, δ), exactly and from samples, beside the covers that Algorithm 1 finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from surefoot.arrays import check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.analysis.covering_number import covering_number, sampled_covering_number
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option
from surefoot.lab.families.two_walls import two_walls
from surefoot.lab.families.windy import windy_gridworld
from surefoot.oracles.exact import ParameterDistance, exact_check
from surefoot.progress import silent
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import COLOURS
from surefoot.report.table import MISSING, Column, Table
from surefoot.report.verdict import Answer, Verdict, elapsed_time
from surefoot.streams import Stream
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.cover import cover_tasks

# Distances between their tasks are those between points.
FAMILIES: Mapping[str, Callable[[], TaskDistribution]] = MappingProxyType(
    {"gridworld": gridworld, "two-walls": two_walls, "windy": windy_gridworld}
)
TITLES = {
    "gridworld": "gridworld: one normal parameter",
    "two-walls": "two walls: one uniform parameter",
    "windy": "windy: two parameters",
}
ERROR = 0.05  # of the intervals
FINEST_IN_MANY = 0.01  # ε of a family with several parameters: finer covers take millions of sampled tasks
LEFT = 3  # δ that Algorithm 1 may leave of its samples: what its cover is to be held against


def _below_a_third(name: str, value: float) -> None:
    if not 0 < value < 1 / 3:
        raise InvalidInput(f"{name} must be above 0 and below 1/3, got {value!r}")


@dataclass(frozen=True)
class CoveringSizes(frame.ExperimentSettings):
    """Attributes:
    points: coordinates of so many sampled tasks, from which covering numbers are estimated.
    """

    families: tuple[str, ...] = option(tuple(FAMILIES), "Comma-separated names.", choices=FAMILIES)
    epsilons: tuple[float, ...] = option(
        (0.05, 0.02, 0.01, 0.005, 0.002, 0.001), "Radii, comma-separated.", check=check_unit_interval
    )
    delta: float = option(0.05, "Part of the tasks that need not be covered.", check=_below_a_third, fact="δ")
    points: int = option(200_000, "Sampled tasks, for the intervals.", least=1000, fact="sampled tasks")
    seed: int = frame.seed_option()


# ------------------------------------------------------------------------------------------------------------- counting


def run(settings: CoveringSizes, bench: Bench) -> dict[str, Any]:
    calls = [(name, epsilon, settings) for name in settings.families for epsilon in radii(name, settings)]
    _check_radii(calls, settings)
    return {"rows": bench.map("covering", sizes, calls)}


def radii(name: str, settings: CoveringSizes) -> list[float]:
    one = FAMILIES[name]().dimension == 1
    return [epsilon for epsilon in settings.epsilons if one or epsilon >= FINEST_IN_MANY]


def _check_radii(calls: Sequence[tuple[str, float, CoveringSizes]], settings: CoveringSizes) -> None:
    """Families of which nothing would be counted are not passed over."""
    left = [name for name in settings.families if name not in {call[0] for call in calls}]
    if left:
        raise InvalidInput(
            f"epsilons must hold one of at least {FINEST_IN_MANY:g} for {', '.join(left)}, of several parameters, "
            f"got {', '.join(map(str, settings.epsilons))}"
        )


def sizes(name: str, epsilon: float, settings: CoveringSizes) -> dict[str, Any]:
    """One family at one radius."""
    tasks = FAMILIES[name]()
    check = exact_check(tasks)
    if not isinstance(check, ParameterDistance):
        raise InvalidInput(f"families must have coordinates, got {name}, which has none")
    points = check.coordinates(tasks.sample(settings.points, Stream.COVERING_SAMPLE.rng(settings.seed)))
    lower, upper = sampled_covering_number(points, epsilon, settings.delta, ERROR)
    rng = Stream.COVERING_COVER.rng(settings.seed)
    samples, centres = cover_tasks(tasks, epsilon, settings.delta, check, rng, silent)
    exact, as_left = (_exact(tasks, check, epsilon, part * settings.delta) for part in (1, LEFT))
    return {
        "family": name,
        "epsilon": epsilon,
        "exact": exact,
        "lower": lower,
        "upper": upper,
        "found": len(centres),
        "sampled": len(samples),
        "exact_as_left": as_left,
    }


def _exact(tasks: TaskDistribution, check: ParameterDistance, epsilon: float, delta: float) -> int | None:
    """C of a family of one parameter, of which points are a multiple."""
    if tasks.dimension != 1:
        return None
    support = tasks.distribution.support
    scale = float(np.ptp(check.coordinates(support.T)) / np.ptp(support))
    return covering_number(tasks.distribution, epsilon / scale, delta)


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure = covering_numbers(results["rows"], results["settings"]["delta"])
    return frame.report(
        results,
        CoveringSizes,
        title="How many tasks cover a family",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            Section("Covering numbers and covers", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        figures={"covering.png": figure},
    )


_LEAD = (
    "The paper's bounds grow with C, the number of balls of radius ε that hold all but δ of the tasks. For one "
    "normal or uniform parameter it is known exactly; for any family with coordinates it follows from sampled "
    "tasks, up to an interval. Algorithm 1 does not know it, and finds a cover of about that size."
)
_CAPTION = (
    "Line: C exactly, with δ and, dashed, with the 3δ that Algorithm 1 may leave out. Band: 95 % interval from sampled "
    "tasks. Dots: centres that Algorithm 1 chose. Both axes are logarithmic."
)
_NOTES = (
    "Algorithm 1 leaves up to 3δ of its samples uncovered and takes its centres from them: the last column is what its "
    "cover is to be held against. With several parameters the lower end is loose: it rests on the largest ball alone.",
)


def tables(results: Results) -> dict[str, Table]:
    """Every family at every radius."""
    return {
        "Counts": Table.of(
            results["rows"],
            Column("family", "family"),
            Column("ε", "epsilon", "g"),
            Column("C", "exact", ","),
            Column("from samples", lambda row: f"{row['lower']:,} to {row['upper']:,}", ""),
            Column("Algorithm 1", "found", ","),
            Column("out of", "sampled", ",", optional=True),
            Column("C with 3δ", "exact_as_left", ","),
        )
    }


def _verdict(results: Results) -> Verdict:
    """Nothing is deployed here, so that nothing is unsafe."""
    rows = results["rows"]
    ratios = [row["found"] / row["exact_as_left"] for row in rows if row["exact_as_left"]]
    inside = [row["lower"] <= row["exact"] <= row["upper"] for row in rows if row["exact"]]
    span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else MISSING
    told = f" of {span} times the smallest size where that is known" if ratios else ""
    held, points = f"{sum(inside)} of {len(inside)}", f"{results['settings']['points']:,} sampled tasks"
    return Verdict(
        f"Algorithm 1 finds covers{told}, without knowing how many tasks cover the family.",
        (
            Answer(
                "Size of the covers", span, "times C with 3δ, the least number of centres, where it is known exactly"
            ),
            Answer("How sure", held, "intervals from samples (95 %) hold C where it is known"),
            elapsed_time(results["seconds"], f"{len(rows)} covers, {points}"),
        ),
    )


def covering_numbers(rows: Sequence[Mapping[str, Any]], delta: float) -> Figure:
    """Covering numbers against the radius, a panel per family."""
    names = list(dict.fromkeys(row["family"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(names) + 0.6, 3.4), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _draw(axes, [row for row in rows if row["family"] == name])
            axes.set_title(TITLES[name].replace(": ", "\n"), fontsize=10.5, fontweight="bold")
            axes.set_xlabel("radius ε")
        figure.axes[0].set_ylabel(f"balls that hold all but δ = {delta:g}")
        figure.axes[0].legend()
    return figure


def _draw(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    radii = [row["epsilon"] for row in rows]
    axes.fill_between(
        radii,
        [row["lower"] for row in rows],
        [row["upper"] for row in rows],
        color=COLOURS[0],
        alpha=0.2,
        linewidth=0,
        label="from samples",
    )
    if rows[0]["exact"] is not None:
        axes.plot(radii, [row["exact"] for row in rows], color=COLOURS[0], label="C")
        axes.plot(radii, [row["exact_as_left"] for row in rows], color=COLOURS[0], linestyle="--", label="C with 3δ")
    axes.plot(radii, [row["found"] for row in rows], "o", color=COLOURS[1], markersize=4.5, label="Algorithm 1")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.invert_xaxis()


EXPERIMENT = frame.Experiment(
    "covering",
    CoveringSizes,
    run,
    page,
    tables,
    "covering.png and results.json beside it",
    quick={"points": 20_000, "epsilons": (0.05, 0.02, 0.01)},
)

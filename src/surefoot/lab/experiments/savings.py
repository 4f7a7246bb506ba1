"""Energy saved by a setting that is found day by day, on fresh simulated tasks: what `water` and `buildings` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from surefoot.arrays import Floats
from surefoot.calibration import calibrate_side_by_side
from surefoot.lab.experiments.adapting import (
    AdaptedTask,
    Clock,
    Contender,
    Judging,
    adapt_to_task,
    calibrated_label,
    known_cell_summary,
    mean_reward,
    settings_to_try,
    summarise_runs,
)
from surefoot.lab.experiments.frame import Bench, Results
from surefoot.lab.experiments.judging import available
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report import table, verdict
from surefoot.report.calibration import settings_figure, settings_table
from surefoot.report.figures import svg
from surefoot.report.page import Section
from surefoot.report.palette import GREY, INK, stroke
from surefoot.report.table import Cell, Column, Table
from surefoot.report.verdict import Answer, Verdict, percent
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

ADAPTING, REFERENCE, BAYESIAN = "certified-signals", "safe-only", "posterior"
DEFAULT_METHODS = (REFERENCE, "certified-returns", ADAPTING, BAYESIAN)
CALIBRATED = (ADAPTING, BAYESIAN)  # each by itself
EARLY = 14  # days
NEAR, PRECISE = 0.005, 0.001  # within half a point of the budget values are wanted to 0.2 points (two errors)
UNCERTIFIED_LINE = (0, (4, 2))


@dataclass(frozen=True)
class Words:
    """What the page of an experiment calls things.

    Attributes:
        task, tasks: such as town, towns; the plural is also where results.json has them.
        policies: such as speeds.
        policy: one of them.
        cost: such as time below the reserve.
        budget: on that, as a share.
        least_gain: kWh a day; days until most of less than this are not counted.
    """

    task: str
    tasks: str
    policy: str
    policies: str
    cost: str
    budget: float
    least_gain: float

    @property
    def limit(self) -> str:
        return f"{100 * self.budget:g} %"


@dataclass(frozen=True)
class Study:
    """What is done with fresh tasks.

    Attributes:
        tasks: of the calibration and of the fresh tasks; `count` of the latter.
        bounded: whether the bounds of the policy set are about these tasks.
        calibrated: further tasks, on which it is counted how bold a method may be; 0 for no such rows.
        calibration_days: on which these are judged, at most, of each policy.
        judged_days, most_judged_days: of each policy on each fresh task.
        streams: of the fresh tasks, of the runs and of the days on which they are judged.
    """

    words: Words
    tasks: TaskDistribution
    count: int
    days: int
    methods: tuple[str, ...]
    risk: float
    seed: int
    calibrated: int
    calibration_days: int
    judged_days: int
    most_judged_days: int
    streams: tuple[Stream, Stream, Stream]
    bounded: bool = True


# -------------------------------------------------------------------------------------------------------------- the run


def run_study(study: Study, bound: Callable[[], PolicyValueSet], bench: Bench, file: str) -> dict[str, Any]:
    """Bound, calibrate and adapt."""
    clock = Clock()
    policies = bench.policy_sets[file] = bound()
    clock.lap(f"bounding what {study.words.policies} do")
    calibrations = calibrate_methods(policies, study, bench)
    clock.lap("calibrating")
    contenders, refused = available_contenders(policies, study, calibrations)
    found = adapt_to_tasks(policies, contenders, study, bench)
    clock.lap("adapting and judging")
    return {
        "seconds_by_stage": clock.seconds,
        **summarise(policies, contenders, found, study),
        "refused": refused,
        "calibrations": {name: calibration.plain() for name, calibration in calibrations.items()},
    }


def calibrate_methods(policies: PolicyValueSet, study: Study, bench: Bench) -> dict[str, Calibration]:
    """How bold methods may be, counted on tasks of which none is among those of the experiment."""
    paths = {
        name: settings_to_try(name, policies, study.risk, bounded=study.bounded)
        for name in CALIBRATED
        if name in study.methods
    }
    if not paths or not study.calibrated:
        return {}
    return calibrate_side_by_side(
        policies,
        study.tasks,
        paths,
        attempt=0,
        episodes=study.days,
        risk=study.risk,
        runs=study.calibrated,
        judged_on=study.calibration_days,
        seed=study.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )


def available_contenders(
    policies: PolicyValueSet, study: Study, calibrations: Mapping[str, Calibration]
) -> tuple[list[Contender], dict[str, str]]:
    """Methods as they are, then calibrated; and why some of these cannot be had."""
    plain = [Contender(name, name, study.risk) for name in study.methods]
    bold = [Contender(calibrated_label(name), name, study.risk, found) for name, found in calibrations.items()]
    by_label = {one.label: one for one in (*plain, *bold)}
    labels, refused = available(by_label, lambda label: by_label[label].learner(policies, study.days))
    return [by_label[label] for label in labels], refused


def adapt_to_tasks(
    policies: PolicyValueSet, contenders: Sequence[Contender], study: Study, bench: Bench
) -> list[AdaptedTask]:
    parameters = study.tasks.sample(study.count, study.streams[0].rng(study.seed))
    adapt = partial(adapt_with_all, policies, contenders, study)
    return bench.map(f"adapting to {study.words.tasks}", adapt, list(enumerate(parameters)))


def adapt_with_all(
    policies: PolicyValueSet, contenders: Sequence[Contender], study: Study, number: int, parameter: Floats
) -> AdaptedTask:
    """Task `number` with every contender."""
    _, runs, evaluation = study.streams
    seed = runs.seed(study.seed, number)
    learners = [each.learner(policies, study.days, seed) for each in contenders]
    judging = Judging([study.seed, evaluation, number], study.judged_days, study.most_judged_days, NEAR, PRECISE)
    return adapt_to_task(policies, learners, study.tasks.task(parameter), study.days, seed, judging)


def summarise(
    policies: PolicyValueSet, contenders: Sequence[Contender], found: Sequence[AdaptedTask], study: Study
) -> dict[str, Any]:
    """The methods of results.json, and all that the page shows besides. What is proved of other tasks than the fresh
    ones is not certified."""
    words, methods = study.words, {}
    for place, one in enumerate(contenders):
        rests = one.calibration is not None or study.bounded
        certified = one.learner(policies, study.days).certified and rests
        summary = summarise_runs(
            found,
            place,
            certified=certified,
            risk=one.risk,
            budget=words.budget,
            least_gain=words.least_gain,
            early=EARLY,
        )
        methods[one.label] = {**summary, "energy": -mean_reward(found, place)}
    cells = policies.cells
    return {
        "methods": methods,
        "cell_known": known_cell_summary(found, words.budget),
        "policies": [policies.name(index) for index in range(len(policies.policies))],
        "bounds": {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered},
        words.tasks: [
            {
                "parameter": one.parameter.tolist(),
                "energy": (-one.mean[:, 0]).tolist(),
                "below": one.mean[:, 1].tolist(),
                "possible": float(-one.possible @ one.mean[:, 0]),
            }
            for one in found
        ],
        "judged": {
            "days": int(sum(one.count.sum() for one in found)),
            "most_days": int(max(one.count.max() for one in found)),
        },
    }


# ------------------------------------------------------------------------------------------------------------- the page


def methods_table(results: Results) -> Table:
    days = results["settings"]["days"]
    return Table.of(
        _rows(results),
        *_METHOD,
        Column("median days until 90 %", lambda row: _days(row["median_days"], days), ""),
        Column(f"share of the gain, first {min(EARLY, days)} days", lambda row: percent(row["share_early"]), ""),
        Column(f"all {days} days", lambda row: percent(row["share"]), ""),
        Column("kWh a day", "energy", ",.0f", optional=True),
    )


def safety_table(words: Words, results: Results) -> Table:
    return Table.of(
        _rows(results),
        *_METHOD,
        Column(f"{words.tasks} ever above {words.limit}", _unsafe_cell, ""),
        Column("undecided", "undecided_tasks", ""),
        Column(
            "95 % interval, %",
            lambda row: table.interval([100 * end for end in row["unsafe_interval"]], ".1f"),
            "",
            optional=True,
        ),
        Column(f"days above {words.limit}", "unsafe_days", ","),
        Column(
            f"largest {words.cost}, %",
            lambda row: f"{100 * row['largest_below']:.1f} ± {100 * row['largest_below_error']:.1f}",
            "",
        ),
    )


_METHOD = (Column("method", "name"), Column("certified", table.certified))


def _rows(results: Results) -> list[dict[str, Any]]:
    return [{"name": name, **own} for name, own in results["methods"].items()]


def _days(days: float | None, most: int) -> str:
    return f"> {most}" if days is None else f"{days:g}"


def _unsafe_cell(row: Mapping[str, Any]) -> str | Cell:
    text = f"{row['unsafe_tasks']} of {row['tasks']}"
    return Cell(text, "bad") if row["unsafe_tasks"] else text


def judge_results(words: Words, results: Results) -> Verdict:
    settings, methods = results["settings"], results["methods"]
    certified = {name: own for name, own in methods.items() if own["certified"] and name != REFERENCE}
    name = max(certified, key=lambda each: certified[each]["share"], default=None)
    found = None if name is None else certified[name]
    days = f"over the first {settings['days']} days"
    worth = "" if found is None else f"‘{name}’ saved {percent(found['share'])} of what is possible {days}, and "
    return Verdict(
        f"In simulation {worth}{verdict.in_words(methods, settings['risk'], words.tasks)}.",
        (
            Answer(
                "Saved",
                "nothing" if found is None else percent(found["share"]),
                f"of the energy that can be saved safely, {days}",
            ),
            verdict.safety(methods, settings["risk"]),
            verdict.sureness(methods, settings["risk"], words.tasks),
            verdict.elapsed_time(
                results["seconds"], f"{len(methods)} methods on {settings[words.tasks]} {words.tasks}"
            ),
        ),
    )


def facts(words: Words, results: Results, trained_on: str = "") -> list[tuple[str, str]]:
    settings, bounds = results["settings"], results["bounds"]
    held_out = f"one for each {words.task}" if settings.get("grid") else f"{settings['holdout']} held-out {words.tasks}"
    made = (
        f"{bounds['cells']} cells, {held_out}, {settings['episodes']} days on average per {words.task} and "
        f"{words.policy}{trained_on}; {bounds['uncovered']:.2g} uncovered"
    )
    return [("bounds", made)]


def method_notes(words: Words, results: Results, *more: str) -> tuple[str, ...]:
    counted = next(iter(results["methods"].values()))["counted"]
    return (
        f"Days until 90 %: of the {counted} of {results['settings'][words.tasks]} {words.tasks} where "
        f"{words.least_gain:g} kWh a day or more can be saved; those that never got there count as later than the last "
        f"day. With the {words.task}’s cell known from the first day the bounds would allow "
        f"{percent(results['cell_known']['share'])} of the gain.",
        *more,
        *(f"{name} was not run: {why}." for name, why in results["refused"].items()),
    )


def safety_notes(words: Words, results: Results) -> tuple[str, ...]:
    judged, settings = results["judged"], results["settings"]
    return (
        f"A {words.task} is unsafe if on any day the mixture of {words.policies} in use has an expected {words.cost} "
        f"above {words.limit}. Values are means over {judged['days']:,} fresh days, {settings['judged_days']:,} to "
        f"{judged['most_days']:,} per {words.task} and {words.policy}. Unsafe and safe are said at three standard "
        f"errors; in between a {words.task} is undecided.",
    )


def calibration_section(words: Words, name: str, plain: Mapping[str, Any]) -> Section:
    found = parse_calibration(plain)
    return Section(
        f"How bold simulated {words.tasks} allow ‘{name}’ to be",
        paragraphs=(
            f"At each setting {found.runs} further {words.tasks} live {found.episodes} days, and whichever is not "
            f"shown to keep the {words.limit} throughout, by a test on fresh days, counts as unsafe. The promise is "
            f"about a {words.task} drawn like these, and lasts for as many days.",
        ),
        figure=svg(settings_figure(found)),
        table=settings_table(found),
        notes=(f"At most {found.allowed} may count as unsafe (docs/guarantees.md, Theorem 12c).",),
    )


# --------------------------------------------------------------------------------------------------------------- figure


def draw_gain(axes: Axes, words: Words, methods: Mapping[str, Any]) -> None:
    for name, found in methods.items():
        share = 100 * np.array(found["share_by_day"])
        line = "-" if found["certified"] else UNCERTIFIED_LINE
        calibrated = name.endswith(", calibrated")
        colour = stroke(name.removesuffix(", calibrated")).colour
        axes.plot(
            np.arange(1, len(share) + 1),
            share,
            color=colour,
            linestyle=line,
            linewidth=2.6 if calibrated else 1.4,
            label=name if found["certified"] else f"{name} (uncertified)",
        )
    axes.axhline(100, color=INK, linestyle=":", linewidth=1.2, label=f"the {words.task} known")
    axes.set(xlabel="day", ylabel="share of the possible saving, %", ylim=(min(-3.0, axes.dataLim.y0), 105))
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # lines may fall anywhere


def draw_tasks(axes: Axes, words: Words, tasks: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> None:
    """Both parameters, coloured by the policy of least energy that keeps the budget."""
    shades = [GREY, *matplotlib.colormaps["YlGnBu"](np.linspace(0.95, 0.35, max(len(policies) - 1, 1)))]
    places = np.array([each["parameter"] for each in tasks])
    best = np.array([_best_policy(each, words.budget) for each in tasks])
    for k, name in enumerate(policies):
        own = best == k
        if own.any():
            axes.scatter(places[own, 0], places[own, 1], color=shades[k], s=22, label=name)
    axes.legend(fontsize=8, title=f"best {words.policy}", title_fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _best_policy(task: Mapping[str, Any], budget: float) -> int:
    """Of those that keep the budget by their means; the safe one where none does."""
    energy = np.where(np.array(task["below"]) <= budget, task["energy"], np.inf)
    return int(energy.argmin()) if np.isfinite(energy).any() else 0

"""`surefoot reproduce shift`: certified methods on tasks they were not trained for, and tests that tell such tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from surefoot.arrays import Integers
from surefoot.bounds.widening import check_shift
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option
from surefoot.lab.experiments.gridworld import DELTA, EPSILON
from surefoot.lab.families.shifted_gridworlds import SHIFTS, shifted_task
from surefoot.learning.event import Event
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.shift_test import ShiftState, ShiftTest
from surefoot.methods import METHODS, adapt, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.metrics import binomial_interval
from surefoot.report.page import Section
from surefoot.report.palette import BUDGET_COLOUR, GREY, PAPER, REFERENCE, SOFT, stroke
from surefoot.report.table import Cell, Column, Table, interval, number
from surefoot.report.verdict import Answer, Verdict, elapsed_time, unsafe
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner
from surefoot.streams import Stream
from surefoot.tabular.distance import distance
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.robust import worst_within
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train

FROM_D = "fresh tasks of D"
# By which a learner may be told that the task lies at a distance.
NEAR_METHODS = ("certified-ball", "certified-returns")
# The test of the task, with tasks of the cells known exactly and up to a distance; and what it runs beside.
TESTS, BESIDE = ("test", "test of balls"), "certified-ball"
MODEL_FREE = "certified-model-free"
MARKS = ("o", "s", "D", "^")  # of the method alone, and with each test beside it


@dataclass(frozen=True)
class Shifts(frame.ExperimentSettings):
    """Runs per kind of shift and method, fresh tasks, and tasks at a distance."""

    methods: tuple[str, ...] = option(
        ("certified-likelihood", "certified-ball", "certified-returns"), "Comma-separated names.", choices=METHODS
    )
    runs: int = option(20, "Runs per shift and method.", least=1)
    episodes: int = frame.episodes_option(10_000, "Episodes per run.", fact="episodes")
    fresh: int = option(200, "Fresh tasks of the distribution on which false alarms are counted.", least=1)
    near: int = option(40, "Fresh tasks, moved against the learner, per distance.", least=1)
    distances: tuple[float, ...] = option(
        (0.0, 0.0005, 0.001), "Distances that the learner is told of.", check=lambda _, shift: check_shift(shift)
    )
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.distances)) < len(self.distances):
            raise InvalidInput(f"distances must be different numbers, got {self.distances}")


# -------------------------------------------------------------------------------------------------- under D, and beyond


def run(settings: Shifts, bench: Bench) -> dict[str, Any]:
    """Every method and test under every shift, and the promise at every distance."""
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=bench.progress)
    for shift in settings.distances:
        for method in NEAR_METHODS:
            learner(policies, method=method, risk=settings.risk, shift=shift)  # refused now rather than in an hour
    kinds = [*((name, "") for name in settings.methods), *((BESIDE, test) for test in TESTS)]
    calls = [(policies, shift, *kind, settings) for shift in (FROM_D, *SHIFTS) for kind in kinds]
    rows = bench.map("running", _runs, calls)
    distances = [(policies, method, shift, settings) for shift in settings.distances for method in NEAR_METHODS]
    near = bench.map("at a distance", near_runs, distances)
    free = bench.map("without a model", model_free_runs, [(policies, shift, settings) for shift in SHIFTS])
    return {
        "uncovered": policies.cells.uncovered if policies.cells else None,
        "rows": rows,
        "near": near,
        "model_free": [row for row in free if row is not None],
    }


def _runs(policies: PolicyValueSet, name: str, method: str, test: str, settings: Shifts) -> dict[str, Any]:
    """What happened in all runs of one method, with a test beside it or without, under one shift."""
    alarms, before, after, safe_margin = [], [], [], 0.0
    for k, task in enumerate(_tasks(name, settings)):
        seed = Stream.SHIFT_RUNS.seed(settings.seed, k)
        agent = learner(policies, method=method, risk=settings.risk, seed=seed)
        if test:
            watched = MethodWithTest(agent.method, ShiftTest(_policies_for_test(policies, test), settings.risk))
            agent = Learner(watched, seed=seed, horizon=agent.horizon)
        run = run_learner(agent, task, episodes=settings.episodes, seed=seed, optimal_reward=0.0)
        alarm = next((event.episode for event in run.events if event.kind == "alarm"), None)
        unsafe = run.unsafe
        cut = settings.episodes if alarm is None else alarm
        alarms.append(alarm)
        before.append(int(unsafe[:cut].sum()))
        after.append(int(unsafe[cut:].sum()))
        safe_margin = float(run.margin[0])
    raised = [alarm for alarm in alarms if alarm is not None]
    return {
        "shift": name,
        "method": method,
        "test": test,
        "runs": len(alarms),
        "alarms": len(raised),
        "median_alarm": float(np.median(raised)) if raised else None,
        "last_alarm": max(raised) if raised else None,
        "runs_unsafe_before": sum(count > 0 for count in before),
        "unsafe_before_mean": float(np.mean(before)),
        "unsafe_after_mean": float(np.mean(after)),
        "first_margin": None if name == FROM_D else safe_margin,
    }


def _tasks(name: str, settings: Shifts) -> Sequence[Task]:
    """Of every run: fresh tasks of the distribution, or always the same one outside."""
    if name != FROM_D:
        return [shifted_task(name)] * settings.runs
    tasks = gridworld()
    return [tasks.task(p) for p in tasks.sample(settings.fresh, Stream.SHIFT_FRESH_TASKS.rng(settings.seed))]


def _policies_for_test(policies: PolicyValueSet, test: str) -> PolicyValueSet:
    """What a test knows of the cells: everything, or transitions up to their radius only."""
    cells = policies.cells
    if cells is None or cells.model is None:
        raise InvalidInput("policies must hold cells with a transition model, got none")
    if test == TESTS[0]:
        return policies
    return replace(policies, cells=replace(cells, model=replace(cells.model, affine=None)))


@dataclass(frozen=True, eq=False)
class MethodWithTestState:
    inner: Any
    test: ShiftState


@dataclass(frozen=True, eq=False)
class MethodWithTest(Method):
    """The inner method as long as the test has raised no alarm."""

    inner: Method
    test: ShiftTest
    certified: bool = True
    observes: ClassVar[Observes] = "transitions"

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def units(self) -> Units:
        return self.inner.units

    def start(self) -> MethodWithTestState:
        return MethodWithTestState(self.inner.start(), self.test.start())

    def mixture(self, state: MethodWithTestState) -> Mixture:
        return self.inner.mixture(state.inner) if state.test.alarm is None else SAFE_MIXTURE

    def policy(self, state: MethodWithTestState, index: int) -> Policy:
        return self.inner.policy(state.inner, index)

    def update(self, state: MethodWithTestState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.test.alarm is not None:
            return Step(state, len(outcomes))
        step = self.inner.update(state.inner, episode, drawn, outcomes)
        test = self.test.observe(state.test, outcomes[: step.used])
        events = () if test.alarm is None else (Event(test.alarm, "alarm", "the task is not one of those trained for"),)
        return Step(MethodWithTestState(step.state, test), step.used, events)

    def abandon(self, state: MethodWithTestState, episode: int, drawn: int) -> Step:
        raise TypeError("episodes of an experiment are never abandoned")

    def certificate(self, state: MethodWithTestState) -> Certificate:
        return self.inner.certificate(state.inner)


# --------------------------------------------------------------------------------------- at a distance, without a model


def near_runs(policies: PolicyValueSet, method: str, shift: float, settings: Shifts) -> dict[str, Any]:
    """One method with one shift, on fresh tasks of the distribution and on the same tasks moved against it by `shift`:
    what the shift costs on the former, whether it keeps its promise on the latter, and what happens without it."""
    tasks = gridworld()
    parameters = tasks.sample(settings.near, Stream.SHIFT_NEAR_TASKS.rng(settings.seed))
    regret, never, margins, untold, farthest = [], [], [], [], 0.0
    for k, parameter in enumerate(parameters):
        task: TabularCMDP = tasks.task(parameter)
        moved = worst_within(task, nearest_candidate(policies, float(parameter[0])), shift)
        farthest = max(farthest, distance(task, moved))
        seed = Stream.SHIFT_NEAR_RUNS.seed(settings.seed, k)
        common: dict[str, Any] = {"method": method, "episodes": settings.episodes, "risk": settings.risk, "seed": seed}
        run = adapt(policies, task, shift=shift, **common)
        regret.append(float(run.regret[-1]))
        never.append(settings.episodes * (run.optimal_reward - task.values(policies.policies[SAFE]).reward))
        margins.append(_least(adapt(policies, moved, shift=shift, optimal_reward=0.0, **common)))
        untold.append(_least(adapt(policies, moved, optimal_reward=0.0, **common)) if shift else margins[-1])
    return {
        "method": method,
        "shift": shift,
        "tasks": len(parameters),
        "distance": farthest,
        "regret": float(np.mean(regret)),
        "regret_never": float(np.mean(never)),
        "unsafe": sum(margin < 0 for margin in margins),
        "interval": binomial_interval(sum(margin < 0 for margin in margins), len(margins)),
        "least_margin": min(margins),
        "unsafe_untold": sum(margin < 0 for margin in untold),
        "least_margin_untold": min(untold),
    }


def model_free_runs(policies: PolicyValueSet, name: str, settings: Shifts) -> dict[str, Any] | None:
    """The model-free method under one shift, told that the safe policy is feasible; None where that is not so."""
    task = shifted_task(name)
    safe = task.values(policies.policies[SAFE])
    if safe.margin.min() < 0:
        return None
    margins, gained = [], []
    for k in range(settings.runs):
        seed = Stream.SHIFT_NEAR_RUNS.seed(settings.seed, k)
        run = adapt(
            policies,
            task,
            method=MODEL_FREE,
            episodes=settings.episodes,
            risk=settings.risk,
            seed=seed,
            assume_safe=True,
            optimal_reward=0.0,
        )
        margins.append(_least(run))
        gained.append(float(np.asarray(run.reward)[-1] - safe.reward))
    unsafe = sum(margin < 0 for margin in margins)
    return {
        "shift": name,
        "runs": settings.runs,
        "unsafe": unsafe,
        "interval": binomial_interval(unsafe, settings.runs),
        "first_margin": float(safe.margin.min()),
        "least_margin": min(margins),
        "gained": float(np.mean(gained)),
    }


def nearest_candidate(policies: PolicyValueSet, noise: float) -> TabularPolicy:
    """Of the task nearest to this noise: what a learner will want to deploy there."""
    best = min(policies.entries, key=lambda entry: abs(float(entry.parameter[0]) - noise))
    if not isinstance(best.policy, TabularPolicy):
        raise TypeError(f"policies of gridworlds are tables, got one of kind {best.policy.kind!r}")
    return best.policy


def _least(run: Run) -> float:
    """The smallest margin of anything deployed; what rounding hides counts as none."""
    margin = float(run.margin.min())
    return margin if run.unsafe_episodes else max(margin, 0.0)


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    """Two figures and three tables."""
    settings, shown = results["settings"], tables(results)
    alarms, costs = power(results["rows"], settings["episodes"]), price(results["near"])
    return frame.report(
        results,
        Shifts,
        title="Tasks nobody trained for",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            Section("How soon it is noticed", figure=svg(alarms), caption=_POWER),
            Section("Alarms", table=shown["Alarms"], notes=_ALARMS),
            Section("What a promise at a distance costs", figure=svg(costs), caption=_PRICE),
            Section("At a distance", table=shown["At a distance"]),
            Section("Without a model", table=shown["Without a model"], notes=_FREE),
        ),
        figures={"power.png": alarms, "price.png": costs},
    )


_LEAD = (
    "A certified method speaks of tasks drawn from the training distribution D. Three things can be had beyond "
    "it: a test that raises an alarm where the task is none of them, a promise for tasks within a distance η "
    "of them, and the method without a model, which only needs a safe policy that is safe."
)
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
        "Alarms": Table.of(
            results["rows"],
            Column("shift", "shift"),
            Column("method", label),
            Column("margin of the safe policy", _safe_margin, ""),
            Column("alarms", lambda row: f"{row['alarms']} of {row['runs']}", ""),
            Column("median episode", "median_alarm", ",.0f", optional=True),
            Column(
                "runs unsafe before", lambda row: f"{row['runs_unsafe_before']} of {row['runs']}", "", optional=True
            ),
            Column("unsafe episodes before, mean", "unsafe_before_mean", ",.0f"),
            Column("and after", "unsafe_after_mean", ",.0f"),
        ),
        "At a distance": Table.of(
            results["near"],
            Column("η", "shift", "g"),
            Column("method", "method"),
            Column("regret on D", "regret", ",.0f"),
            Column("unsafe at η", lambda row: _unsafe(row["unsafe"], row["tasks"]), ""),
            Column("95 %", lambda row: interval(row["interval"], ".3f"), "", optional=True),
            Column("least margin", lambda row: number(row["least_margin"]), ""),
            Column("unsafe if not told", lambda row: _unsafe(row["unsafe_untold"], row["tasks"]), ""),
            Column("least margin ", lambda row: number(row["least_margin_untold"]), ""),
        ),
        "Without a model": Table.of(
            results["model_free"],
            Column("shift", "shift"),
            Column("margin of the safe policy", lambda row: number(row["first_margin"]), ""),
            Column("unsafe runs", lambda row: _unsafe(row["unsafe"], row["runs"]), ""),
            Column("95 %", lambda row: interval(row["interval"], ".3f"), ""),
            Column("least margin", lambda row: number(row["least_margin"]), ""),
            Column("reward gained", "gained", ".2f"),
        ),
    }


def _safe_margin(row: Mapping[str, Any]) -> str | None:
    return None if row["first_margin"] is None else number(row["first_margin"])


def _unsafe(count: int, total: int) -> Cell:
    return Cell(f"{count} of {total}", "bad" if count else "good")


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
            elapsed_time(results["seconds"], f"{settings['episodes']:,} episodes on each task"),
        ),
    )


def power(rows: Sequence[Mapping[str, Any]], episodes: int) -> Figure:
    """Every shift in a row, every method and test a point: filled where the alarm is always raised, at its median."""
    shifts = list(dict.fromkeys(row["shift"] for row in rows))
    kinds = list(dict.fromkeys(label(row) for row in rows))
    tests = sorted({row["test"] for row in rows})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 0.62 * len(shifts) + 1.5), layout="constrained")
        axes = figure.subplots()
        for k, kind in enumerate(kinds):
            own = [each for each in rows if label(each) == kind]
            colour, mark = stroke(own[0]["method"]).colour, MARKS[tests.index(own[0]["test"]) % len(MARKS)]
            axes.plot([], [], mark, color=colour, label=kind)
            for row in own:
                height = -shifts.index(row["shift"]) + 0.3 - 0.6 * k / max(1, len(kinds) - 1)
                share = row["alarms"] / row["runs"]
                if row["median_alarm"] is None:
                    axes.plot(1.6 * episodes, height, "x", color=colour, markersize=5)
                    continue
                face = colour if share == 1 else PAPER
                axes.plot(row["median_alarm"], height, mark, color=colour, markerfacecolor=face, markersize=6)
                if share < 1:
                    text = f"{row['alarms']} of {row['runs']}"
                    axes.annotate(
                        text, (row["median_alarm"], height), (6, -3), textcoords="offset points", fontsize=7, color=SOFT
                    )
        axes.axvline(episodes, color=GREY, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(1, 2.4 * episodes)
        axes.set_yticks([-k for k in range(len(shifts))], shifts)
        axes.set_xlabel("median episode of the alarm (hollow: not in all runs; ×: in none)")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def price(near: Sequence[Mapping[str, Any]]) -> Figure:
    """Left, regret on tasks of the distribution by the distance told; right, the least margin at that distance."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for method in dict.fromkeys(row["method"] for row in near):
            own = [row for row in near if row["method"] == method]
            colour, told = stroke(method).colour, [row["shift"] for row in own]
            left.plot(told, [row["regret"] for row in own], "o-", color=colour)
            right.plot(told, [row["least_margin"] for row in own], "o-", color=colour, label=f"{method}, told of η")
            untold = [row["least_margin_untold"] for row in own]
            right.plot(told, untold, "o--", color=colour, markerfacecolor=PAPER, label=f"{method}, not told")
        left.axhline(near[0]["regret_never"], color=stroke(REFERENCE).colour, label="safe-only")
        left.set_ylim(bottom=0)
        left.set_ylabel("mean regret on tasks of D")
        right.axhline(0, color=BUDGET_COLOUR, linewidth=1.0, label="budget")
        right.set_ylabel("least margin on tasks at distance η")
        for axes in (left, right):
            axes.set_xlabel("distance η")
            axes.locator_params(axis="x", nbins=5)
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def label(row: Mapping[str, Any]) -> str:
    return f"{row['method']} + {row['test']}" if row["test"] else str(row["method"])


EXPERIMENT = frame.Experiment(
    "shift",
    Shifts,
    run,
    page,
    tables,
    "power.png, price.png and results.json beside it",
    quick={"runs": 3, "episodes": 1500, "fresh": 10, "near": 3},
)

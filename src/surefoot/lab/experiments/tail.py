"""`surefoot reproduce tail`: one family with a budget on the mean of its cost, and with one on its tail."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from surefoot.arrays import Floats, check_unit_interval
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import COLOURS
from surefoot.report.table import Cell, Column, Table
from surefoot.report.verdict import Answer, Verdict, certain, elapsed_time, percent, unsafe
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.cvar_tasks import Tail, conditional_value_at_risk, cost_distribution, cvar
from surefoot.tasks.distribution import Normal
from surefoot.tasks.gridworld_tasks import GOAL, MEAN_NOISE, RED_CELLS, STATES, slip_direction
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

METHOD = "certified"
EPSILON, DELTA = 0.02, 0.05  # of the cover
STEPS = 20
LOW, HIGH, SPREAD = 0.2, 0.4, 0.04  # of the noise, whose mean is the paper's
ENTRANCE = 3  # the cell below the corridor between the red walls
NAMES = {"mean": "budget on the mean", "tail": "budget on the tail"}
RARE = 1e-5  # probability below which nothing is drawn


@dataclass(frozen=True)
class TailBudgets(frame.ExperimentSettings):
    """Attributes:
    mean: budget on the mean of an episode's cost.
    level, tail, threshold: α, the budget d on CVaR_α, and t.
    """

    tasks: int = option(5, "Fresh tasks.", least=1, fact="fresh tasks")
    episodes: int = frame.episodes_option(4_000, "Episodes per task.", fact="episodes on each")
    mean: float = option(1.0, "Budget on the mean of an episode's cost.")
    level: float = option(0.9, "Part of the episodes that the tail leaves out.", check=check_unit_interval)
    tail: float = option(3.0, "Budget on the mean of the others.")
    threshold: float = option(2.0, "Up to which an episode's cost is free.", fact="threshold")
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        Tail(self.level, self.tail, self.threshold)

    @property
    def budget(self) -> Tail:
        return Tail(self.level, self.tail, self.threshold)


def crossing(budget: float) -> TaskDistribution:
    """The paper's gridworld for 20 steps from the entrance of the corridor: reward 1 for each step at the goal, cost 1
    for each in a red cell, and a budget on the mean of their sum."""

    def task(noise: Floats) -> TabularCMDP:
        straight, blown = slip_direction("published")
        states = np.arange(STATES)
        return TabularCMDP(
            straight + noise[0] * blown,
            np.where(states == GOAL, 1.0, 0.0),
            np.where(np.isin(states, RED_CELLS), 1.0, 0.0),
            budget,
            np.where(states == ENTRANCE, 1.0, 0.0),
            1.0,
            (0.0, 1.0),
            (0.0, 1.0),
            horizon=STEPS,
        )

    return TaskDistribution(task, Normal(MEAN_NOISE, std=SPREAD, low=LOW, high=HIGH, how="truncated"))


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: TailBudgets, bench: Bench) -> dict[str, Any]:
    """Train with either budget, and adapt on the same tasks."""
    base, tail, show = crossing(settings.mean), settings.budget, bench.progress
    families: dict[str, tuple[TaskDistribution, Tail | None]] = {"mean": (base, None), "tail": (cvar(base, tail), tail)}
    show("training", 0, 1)
    sets = {name: policy_set(tasks, settings.seed, bench) for name, (tasks, _) in families.items()}
    parameters = base.sample(settings.tasks, Stream.TAIL_TASKS.rng(settings.seed))
    rows: list[dict[str, Any]] = []
    for k, parameter in enumerate(parameters):
        for name, (tasks, own) in families.items():
            show("adapting", len(rows), 2 * len(parameters))
            found = adapt(
                sets[name],
                tasks.task(parameter),
                method=METHOD,
                episodes=settings.episodes,
                risk=settings.risk,
                seed=settings.seed + k,
            )
            rows.append({"budget": name, "noise": float(parameter[0]), **costs(base.task(parameter), found, own, tail)})
    return {"policies": {name: len(policies.policies) for name, policies in sets.items()}, "rows": rows}


def policy_set(tasks: TaskDistribution, seed: int, bench: Bench) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # the paper's theorem is not claimed
        return train(tasks, epsilon=EPSILON, delta=DELTA, xi=None, seed=seed, jobs=bench.jobs, progress=bench.progress)


def costs(task: TabularCMDP, run: Run, own: Tail | None, tail: Tail) -> dict[str, Any]:
    """The exact law of what the episodes of a run cost, all together, and what was earned at its end."""
    law = np.zeros((task.units.horizon or 0) + 1)
    for policy, weight in zip(run.output.components, run.output.weights, strict=True):
        found, chances = cost_distribution(task, policy, own)
        law[found.astype(np.int64)] += weight * chances
    cost = np.arange(len(law), dtype=np.float64)
    earned = np.asarray(run.reward)
    return {
        "law": law.tolist(),
        "mean": float(cost @ law),
        "cvar": conditional_value_at_risk(cost, law, tail.level),
        "unsafe": bool(run.unsafe.any()),
        "reward_first": float(earned[0]),
        "reward": float(earned[-1]),
        "optimum": float(run.optimal_reward),
    }


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    settings = results["settings"]
    figure, worst = cost_laws(results["rows"], settings["level"]), _worst(settings)
    return frame.report(
        results,
        TailBudgets,
        title="A budget on the tail",
        verdict=_verdict(results),
        lead=(
            f"The paper's gridworld for 20 steps, twice: with a budget of {settings['mean']:g} on the mean of an "
            f"episode's cost, and with one of {settings['tail']:g} on the mean of the {worst} of all episodes "
            f"(CVaR), by states that know the cost so far."
        ),
        sections=(
            Section("What episodes cost", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        figures={"tail.png": figure},
        facts=(("policies", ", ".join(f"{count} ({NAMES[name]})" for name, count in results["policies"].items())),),
    )


_CAPTION = (
    "Exact probabilities of the cost of an episode, over all that a certified method deployed, as a mean over the "
    "tasks; on a logarithmic axis. Dashed: the mean cost of the worst episodes."
)
_NOTES = (
    "Both are certified with their own budget: unsafe is who ever deployed a policy whose mean, or whose excess over "
    "the threshold, is above what that allows. Rewards are those of the first and of the last policy deployed, beside "
    "the best that either budget allows on the task.",
)


def _worst(settings: Mapping[str, Any]) -> str:
    return f"worst {percent(1 - settings['level'])}"


def tables(results: Results) -> dict[str, Table]:
    """Every task with either budget."""
    return {
        "Tasks": Table.of(
            results["rows"],
            Column("budget", lambda row: NAMES[row["budget"]]),
            Column("noise", "noise", ".3f"),
            Column("mean cost", "mean", ".3f"),
            Column(_worst(results["settings"]), "cvar", ".3f"),
            Column("reward, first", "reward_first", ".2f"),
            Column("last", "reward", ".2f"),
            Column("possible", "optimum", ".2f"),
            Column("unsafe", lambda row: Cell("yes", "bad") if row["unsafe"] else Cell("no", "good")),
        )
    }


def _verdict(results: Results) -> Verdict:
    rows, settings, worst = results["rows"], results["settings"], _worst(results["settings"])
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
            elapsed_time(results["seconds"], f"{len(rows)} runs of {settings['episodes']:,} episodes"),
        ),
    )


def cost_laws(rows: Sequence[Mapping[str, Any]], level: float) -> Figure:
    """What episodes cost with a budget on the mean and with one on the tail: two distributions."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for k, (budget, name) in enumerate(NAMES.items()):
            own = [row for row in rows if row["budget"] == budget]
            law, worst = np.mean([row["law"] for row in own], axis=0), float(np.mean([row["cvar"] for row in own]))
            drawn = np.flatnonzero(law > RARE)
            axes.bar(drawn + (k - 0.5) * 0.4, law[drawn], width=0.4, color=COLOURS[k], label=name)
            axes.axvline(worst, color=COLOURS[k], linestyle="--", linewidth=1.3)
            left = worst < max(row["cvar"] for row in rows) - 0.2 and budget == "tail"  # away from the other line
            axes.annotate(
                f"worst {percent(1 - level)}: {worst:.2f}",
                (worst, 0.93),
                xycoords=("data", "axes fraction"),
                xytext=(-5 if left else 5, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                color=COLOURS[k],
                fontsize=9,
            )
        axes.set_yscale("log")
        axes.set_ylim(RARE, 1.0)
        axes.set_xlabel("cost of an episode: steps in red cells")
        axes.set_ylabel("probability")
        axes.legend(loc="upper right")
    return figure


EXPERIMENT = frame.Experiment(
    "tail",
    TailBudgets,
    run,
    page,
    tables,
    "tail.png and results.json beside it",
    quick={"tasks": 2, "episodes": 1000},
)

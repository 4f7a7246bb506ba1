"""`surefoot reproduce baselines`: each baseline on the task its authors published it with, beside ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats, check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.dope import VISIT_GROWTH
from surefoot.lab.baselines.log_barrier import AISTATS
from surefoot.lab.baselines.softmax import entropy_regularised
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option, setting
from surefoot.lab.families import dope_benchmarks, two_walls
from surefoot.methods import adapt
from surefoot.oracles.exact import exact_oracles
from surefoot.oracles.policy_gradient import worst_task_then_gradient
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.report import table, verdict
from surefoot.report.figures import learning_curves, panels_in_words, svg
from surefoot.report.metrics import mean_interval, sort_by_regret, summarise
from surefoot.report.page import Section
from surefoot.report.palette import REFERENCE
from surefoot.report.table import Cell, Column, Table, interval
from surefoot.report.verdict import Answer, Verdict
from surefoot.simulate.run import Run
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.train import train

# The authors of DOPE take as safe baseline policy the optimum for this share of the budget.
SAFE_SHARE = 0.2

PLANNERS = ("dope-theory", "dope-published", "dope-plus-theory", "optpess-lp-theory", "optpess-lp-published")
BARRIERS = ("lb-sgd-theory", "lb-sgd-published")
OURS = "certified-likelihood"
ALWAYS = (REFERENCE, OURS)  # run on every benchmark
METHODS = (*ALWAYS, *PLANNERS, *BARRIERS)

FITTED_POINTS = 200  # at which the growth of the regret is fitted
BESIDE = ("growth", "last", "seconds_per_run")  # what is told of each method beside its summary


# ------------------------------------------------------------------------------------------------------- the benchmarks


def frugal_optimum(task: TabularCMDP) -> TabularPolicy:
    """The optimal policy of the same task with `SAFE_SHARE` of its budget."""
    frugal: TabularPolicy = solve(task, tighten=(1 - SAFE_SHARE) * task.budget).policy
    return frugal


def regularised_optimum(task: TabularCMDP) -> TabularPolicy:
    """LB-SGD's authors start from the optimum for 9/10 of the budgets with entropy of weight 1 added to the reward."""
    return entropy_regularised(task, 1.0, tighten=0.1 * task.budget)


@dataclass(frozen=True)
class Benchmark:
    """A task, how its authors ran it, and how it is run here.

    Attributes:
        family: the published task is one of its tasks, the one of `parameter`.
        steps: of an episode, one per layer of the layered task; None for a discounted task.
        episodes: by default; the authors had `published_episodes`, in each of `published_runs`.
        safe_policy: the authors' first policy, of the published task.
        methods: those that are run on it.
        planning: further options of dope-published, where the authors' script for this task differs from the others.
    """

    family: Callable[[], TaskDistribution]
    parameter: tuple[float, ...]
    steps: int | None
    what: str
    episodes: int
    published_episodes: int
    published_runs: int = 20
    safe_policy: Callable[[TabularCMDP], TabularPolicy] = frugal_optimum
    methods: tuple[str, ...] = (*ALWAYS, *PLANNERS)
    planning: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> TabularCMDP:
        published: TabularCMDP = self.family().task(self.parameter)
        return published

    def options(self, method: str) -> dict[str, Any]:
        """Further arguments of `adapt`: a layered episode ends by itself, and planners may know of the layers; the log
        barrier starts where its authors did, and its published figure had other constants than the 7×7 gridworld's.
        """
        options: dict[str, Any] = {} if self.steps is None else {"horizon": self.steps}
        if method in PLANNERS:
            options |= {"layers": self.steps}
        if method == "dope-published":
            options |= self.planning
        if method in BARRIERS:
            options |= {"start": self.safe_policy(self.task).probabilities.tolist()}
        if method == "lb-sgd-published":
            options |= AISTATS
        return options


BENCHMARKS: Mapping[str, Benchmark] = {
    "factored": Benchmark(
        dope_benchmarks.factored,
        dope_benchmarks.PUBLISHED_FAILURE,
        dope_benchmarks.FACTORED_STEPS,
        "Three states in a ring, six steps. Advancing brings more the further one is, and costs 1; half of the "
        "steps may be advances. In the authors' task an advance never fails, which no method is told.",
        episodes=100_000,
        published_episodes=100_000,
    ),
    "media": Benchmark(
        dope_benchmarks.media,
        dope_benchmarks.PUBLISHED_DRAIN,
        dope_benchmarks.MEDIA_STEPS,
        "A buffer of at most nine packets over ten steps, which a fast and a slow service fill and the player "
        "drains. The fast service costs 1; the reward is the number of steps in which the buffer is not empty. "
        "These are more episodes than the authors had: within theirs, DOPE is here still above safe-only.",
        episodes=500_000,
        published_episodes=100_000,
    ),
    "inventory": Benchmark(
        dope_benchmarks.inventory,
        dope_benchmarks.PUBLISHED_SHIFT,
        dope_benchmarks.INVENTORY_STEPS,
        "A store of at most five units over seven steps, with a random demand. Ordering and holding cost, sales "
        "are the reward. The authors' script for this task alone has smaller widths, and no bonus for reward.",
        episodes=1_000_000,
        published_episodes=1_000_000,
        planning={"widths": "inventory"},
    ),
    "two-walls": Benchmark(
        two_walls.two_walls,
        two_walls.PUBLISHED_PARAMETER,
        None,
        "A 6×6 gridworld with noise 0.1, γ = 0.7 and two walls of red cells, each with a budget of its own; the "
        "goal lies between them. The first policy is the authors': optimal for budgets 1.8 with entropy of weight "
        "1 added to the reward. Their 12,000,000 episodes are 4,000 steps of 3,000 trajectories.",
        episodes=600_000,
        published_episodes=12_000_000,
        published_runs=10,
        safe_policy=regularised_optimum,
        methods=(*ALWAYS, *BARRIERS),
    ),
}


@dataclass(frozen=True)
class BaselinesSettings(frame.ExperimentSettings):
    """Every benchmark with those of its methods that are among `methods`, each `runs` times.

    `episodes` None stands for each benchmark's own number, `runs` None for its authors'. `risk` is the authors' δ.
    """

    benchmarks: tuple[str, ...] = option(tuple(BENCHMARKS), "Comma-separated names.", choices=BENCHMARKS)
    methods: tuple[str, ...] = option(METHODS, "Comma-separated names.", choices=METHODS)
    episodes: int | None = frame.episodes_option(None, "Episodes per run.", "each benchmark's own number")
    runs: int | None = option(None, "Per benchmark and method.", least=1, default_words="its authors' number")
    risk: float = setting(0.01, check=check_unit_interval, fact="risk")
    seed: int = frame.seed_option()
    epsilon: float = 0.02
    delta: float = 0.1
    cells: int = setting(400, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.with_methods:
            known = sorted({method for name in self.benchmarks for method in BENCHMARKS[name].methods})
            raise InvalidInput(
                f"methods must hold one that runs on benchmark {', '.join(self.benchmarks)} ({', '.join(known)}), "
                f"got {', '.join(self.methods)}"
            )
        idle = sorted(set(self.methods).difference(*(self.methods_on(name) for name in self.benchmarks)))
        if idle and self.methods != METHODS:
            raise InvalidInput(f"methods must run on benchmark {', '.join(self.benchmarks)}, got {', '.join(idle)}")

    @property
    def with_methods(self) -> tuple[str, ...]:
        """The benchmarks on which there is something to run."""
        return tuple(name for name in self.benchmarks if self.methods_on(name))

    def methods_on(self, benchmark: str) -> tuple[str, ...]:
        return tuple(method for method in BENCHMARKS[benchmark].methods if method in self.methods)

    def episodes_on(self, benchmark: str) -> int:
        return BENCHMARKS[benchmark].episodes if self.episodes is None else self.episodes

    def runs_on(self, benchmark: str) -> int:
        return BENCHMARKS[benchmark].published_runs if self.runs is None else self.runs


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: BaselinesSettings, bench: Bench) -> dict[str, Any]:
    """Every benchmark."""
    benchmarks = {name: run_benchmark(name, settings, bench) for name in settings.with_methods}
    return {"seconds": sum(one["seconds"] for one in benchmarks.values()), "benchmarks": benchmarks}


def run_benchmark(name: str, settings: BaselinesSettings, bench: Bench) -> dict[str, Any]:
    """The policy set of one benchmark's family, and all methods on the task that was published."""
    benchmark, began = BENCHMARKS[name], time.perf_counter()
    bench.progress(f"{name}: training", 0, 1)
    policies = train_benchmark(name, settings, bench.progress)
    trained = time.perf_counter()
    found = run_methods(policies, name, settings, bench)
    adapted = time.perf_counter()
    # Measured one method after the other: arrays over a million episodes are 8 MB each, and go with their run.
    measured = {method: measures(found.pop(method)) for method in settings.methods_on(name)}
    results = frame.experiment_results(
        name,
        settings={
            "parameter": list(benchmark.parameter),
            "episodes": settings.episodes_on(name),
            "runs": settings.runs_on(name),
            "candidates": len(policies),
        },
        seconds={"training": trained - began, "adapting": adapted - trained},
        methods={method: own["summary"] for method, own in measured.items()},
        events={method: own["events"] for method, own in measured.items()},
        policies=policies,
    )
    return {
        **results,
        "optimum": float(solve(benchmark.task).values.reward),
        "safe_cost": evaluate(benchmark.task, benchmark.safe_policy(benchmark.task)).cost.tolist(),
        **{key: {method: own[key] for method, own in measured.items()} for key in BESIDE},
    }


def train_benchmark(name: str, settings: BaselinesSettings, show: Progress = silent) -> PolicyValueSet:
    """Algorithm 1 on the family around the published task, with the authors' first policy as the safe one."""
    benchmark, tasks = BENCHMARKS[name], BENCHMARKS[name].family()
    safe = benchmark.safe_policy(benchmark.task)
    return train(
        tasks,
        epsilon=settings.epsilon,
        delta=settings.delta,
        oracles=replace(exact_oracles(tasks), feasible=worst_task_then_gradient(safe)),
        seed=settings.seed,
        progress=show,
        cells=settings.cells,
    )


def run_methods(
    policies: PolicyValueSet, name: str, settings: BaselinesSettings, bench: Bench
) -> dict[str, list[tuple[Run, float]]]:
    """Runs of each method and how long they took; every run has its own seed, the same for all methods."""
    seeds = [settings.seed + 1000 * (k + 1) for k in range(settings.runs_on(name))]
    methods = settings.methods_on(name)
    calls = [(policies, name, method, settings, seed) for method in methods for seed in seeds]
    runs = bench.map(f"{name}: adapting", _adapt, calls)
    return {method: runs[k * len(seeds) : (k + 1) * len(seeds)] for k, method in enumerate(methods)}


def _adapt(
    policies: PolicyValueSet, name: str, method: str, settings: BaselinesSettings, seed: int
) -> tuple[Run, float]:
    """One run and its wall time in seconds."""
    benchmark, episodes, began = BENCHMARKS[name], settings.episodes_on(name), time.perf_counter()
    options = benchmark.options(method)
    run = adapt(policies, benchmark.task, method=method, episodes=episodes, risk=settings.risk, seed=seed, **options)
    return run, time.perf_counter() - began


def measures(found: Sequence[tuple[Run, float]]) -> dict[str, Any]:
    """What is told of one method's runs, which took so many seconds."""
    runs = [run for run, _ in found]
    return {
        "summary": summarise(runs),
        "events": [run.events for run in runs],
        "growth": growth(runs),
        "last": last_policies(runs),
        "seconds_per_run": sum(seconds / len(runs) for _, seconds in found),
    }


def growth(runs: Sequence[Run]) -> dict[str, Any]:
    """Exponent x of regret ∝ episodes^x over the second half of the runs: mean, and 95 % interval with several."""
    slopes = [slope for run in runs if (slope := growth_exponent(run.regret)) is not None]
    if len(slopes) < len(runs):
        return {"exponent": None, "interval": None}
    interval = list(mean_interval(slopes)) if len(slopes) > 1 else None
    return {"exponent": float(np.mean(slopes)), "interval": interval}


def growth_exponent(regret: Floats) -> float | None:
    """Least-squares slope of log regret [K] against log episode over the second half; None without any regret there.

    Fitted at episodes that are evenly spaced on the logarithmic scale, so that each part of it counts the same.
    """
    K = len(regret)
    episodes = np.unique(np.geomspace(max(K // 2, 1), K, FITTED_POINTS).round().astype(np.int64))
    values = regret[episodes - 1]
    if len(episodes) < 2 or not (values > 0).all():
        return None
    return float(np.polyfit(np.log(episodes), np.log(values), 1)[0])


def last_policies(runs: Sequence[Run]) -> dict[str, float]:
    """Means over the runs of the last episode's policy: what it falls short of the optimum, and its margin."""
    before = [run.regret[-2] if run.episodes > 1 else 0.0 for run in runs]
    gaps = [run.regret[-1] - earlier for run, earlier in zip(runs, before, strict=True)]
    return {"gap": float(np.mean(gaps)), "margin": float(np.mean([run.margin[-1] for run in runs]))}


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    """Per benchmark what it is, the learning curves, the table, and what was cut."""
    benchmarks = results["benchmarks"]
    figures = {
        name: learning_curves(benchmark["methods"], budgets=benchmark["training"]["budget"], closer=True)
        for name, benchmark in benchmarks.items()
    }
    return frame.report(
        results,
        BaselinesSettings,
        title="The baselines on their own benchmarks",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            *(_benchmark_section(name, each, svg(figures[name])) for name, each in benchmarks.items()),
            Section("What the names mean", _presets(results["settings"]["risk"])),
        ),
        figures={f"{name}.png": figure for name, figure in figures.items()},
    )


_LEAD = (
    "Before a baseline is compared with anything, it has to behave on the task that its authors published it with. "
    "Each was run there several times, next to a certified method of this library and to never adapting. Regret, costs "
    "and margins are exact values of the deployed policies."
)


def _presets(risk: float) -> tuple[str, ...]:
    return (
        "A baseline's name ends in its preset. ‘theory’ has the constants that its guarantee needs, ‘published’ "
        "those of the code behind a published figure. Planning methods know rewards, costs and which transitions "
        "are possible, as in their authors' code, and pool what they count over the steps of an episode. They plan "
        f"again when a visit count has grown by {VISIT_GROWTH:.0%}, not after every episode, which changes the "
        "regret by less than 3 %. The last step leads to the end for sure, so it is planned without a bonus.",
        f"The safe policy of the planning benchmarks is their authors' baseline policy: the optimum for "
        f"{SAFE_SHARE:.0%} of the budget. The certified method is told a family of tasks around the published one "
        "(a range for one parameter), which the baselines are not; in return they need no training. Certified "
        f"means that a run has an unsafe episode with a probability of at most {risk:g}, not that none ever has.",
    )


def _benchmark_section(name: str, benchmark: Mapping[str, Any], figure: bytes) -> Section:
    panels = panels_in_words(benchmark["methods"], benchmark["training"]["budget"], closer=True)
    costs = " and ".join(f"{cost:.3f}" for cost in benchmark["safe_cost"])
    return Section(
        name,
        paragraphs=(BENCHMARKS[name].what,),
        figure=figure,
        caption=f"{panels} Lines are means over the runs; bands hold 80 % of them, where no other line runs through.",
        table=methods_table(benchmark),
        notes=(
            f"Optimal value {benchmark['optimum']:.6f}. The safe policy costs {costs}. Growth exponent: slope of log "
            "regret against log episode, fitted on the second half of every run; 1 is linear growth. ‘Last’ is the "
            "policy of the last episode.",
            _cut(BENCHMARKS[name], benchmark["settings"]["episodes"], benchmark["settings"]["runs"]),
        ),
    )


def _cut(published: Benchmark, episodes: int, runs: int) -> str:
    """What the authors ran, and in what this run falls short of it."""
    theirs = f"{published.published_episodes:,} episodes, {published.published_runs} runs"
    if (episodes, runs) == (published.published_episodes, published.published_runs):
        return f"As many episodes and runs as the authors had ({theirs})."
    return f"The authors had {theirs}; this is {episodes:,} episodes, {runs} runs."


def tables(results: Results) -> dict[str, Table]:
    """One per benchmark."""
    return {name: methods_table(benchmark) for name, benchmark in results["benchmarks"].items()}


def methods_table(benchmark: Mapping[str, Any]) -> Table:
    """One row per method, in the order of the figure's lines."""
    methods = sort_by_regret(benchmark["methods"])
    return Table.of(
        ({**found, "name": name, **{key: benchmark[key][name] for key in BESIDE}} for name, found in methods.items()),
        Column("method", "name"),
        Column("certified", table.certified),
        Column("regret, mean", table.regret, ""),
        Column("95 % interval", lambda row: interval(row["regret_interval"]), "", optional=True),
        Column("growth exponent", lambda row: _exponent(**row["growth"]), ""),
        Column("unsafe episodes", _unsafe_episodes, ""),
        Column("smallest margin", table.smallest_margin, ""),
        Column("last gap to V*", lambda row: table.number(row["last"]["gap"]), "", optional=True),
        Column("last margin", lambda row: table.number(row["last"]["margin"]), "", optional=True),
        Column("seconds per run", "seconds_per_run", ".1f", optional=True),
    )


def _exponent(exponent: float | None, interval: list[float] | None) -> str | None:
    if exponent is None or interval is None:
        return None if exponent is None else f"{exponent:.2f}"
    return f"{exponent:.2f} ({table.interval(interval, '.2f')})"


def _unsafe_episodes(row: Mapping[str, Any]) -> str | Cell:
    count = row["unsafe_episodes"]
    return Cell(f"{count:,} in {row['unsafe_tasks']} of {row['tasks']} runs", "bad") if count else "0"


def _verdict(results: Results) -> Verdict:
    """Which baselines were unsafe, and whether the certified method beats them."""
    benchmarks, risk = results["benchmarks"], results["settings"]["risk"]
    runs = {f"{method}, {name}": own for name, each in benchmarks.items() for method, own in each["methods"].items()}
    theirs = {name: each for name, each in runs.items() if name.split(",")[0] not in ALWAYS}
    loose = [name for name, each in theirs.items() if each["unsafe_tasks"]]
    verb = "was" if len(loose) == 1 else "were"
    words = f"Of {len(theirs)} baselines on benchmarks of their authors {len(loose)} {verb} ever unsafe"
    proved = {name: each for name, each in runs.items() if each["certified"]}
    beaten = [wins for each in benchmarks.values() if (wins := _wins(each["methods"])) is not None]
    return Verdict(
        f"{words}; {verdict.in_words(proved, risk)}." if proved else f"{words}.",
        (
            Answer(
                "Least regret",
                f"{sum(beaten)} of {len(beaten)}",
                f"benchmarks on which ‘{OURS}’ has less regret than every baseline",
            ),
            Answer("Unsafe baselines", f"{len(loose)} of {len(theirs)}", _worst(theirs)),
            verdict.safety(runs, risk),
            verdict.elapsed_time(results["seconds"], f"{len(runs)} runs of methods on benchmarks"),
        ),
    )


def _wins(methods: Mapping[str, Any]) -> bool | None:
    """Whether ours has the least regret; None where it met no baseline."""
    theirs = [found["regret_mean"] for name, found in methods.items() if name not in ALWAYS]
    return methods[OURS]["regret_mean"] < min(theirs) if OURS in methods and theirs else None


def _worst(theirs: Mapping[str, Any]) -> str:
    worst = max(theirs, key=lambda name: theirs[name]["unsafe_episodes"], default=None)
    if worst is None or not theirs[worst]["unsafe_episodes"]:
        return "no baseline was unsafe in any episode"
    return f"most often ‘{worst}’, in {theirs[worst]['unsafe_episodes']:,} episodes"


EXPERIMENT = frame.Experiment(
    "baselines",
    BaselinesSettings,
    run,
    page,
    tables,
    "results.json and a figure per benchmark beside it",
    quick={"episodes": 4_000, "runs": 2, "cells": 100},
)

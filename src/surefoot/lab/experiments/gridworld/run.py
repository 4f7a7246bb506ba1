"""`surefoot reproduce gridworld`: train, adapt on the test tasks, write results, figures and the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.frame import Bench, Experiment, experiment_results
from surefoot.lab.experiments.gridworld.limit import limit_curve
from surefoot.lab.experiments.gridworld.page import gridworld_page, tables
from surefoot.lab.experiments.gridworld.settings import FIGURE_1_NOISES, QUICK, GridworldSettings
from surefoot.methods import adapt, plan
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.report.metrics import summarise, totals
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tabular.evaluate import state_values
from surefoot.tabular.solve import solve
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld
from surefoot.training.train import train

POLICY_SET = "gridworld.policyset"  # its file


def run(settings: GridworldSettings, bench: Bench) -> dict[str, Any]:
    """Everything behind Figures 1 and 2."""
    jobs, show, began = bench.jobs, bench.progress, time.perf_counter()
    show("training", 0, 1)
    tasks = gridworld()
    policies = train(tasks, epsilon=settings.epsilon, delta=settings.delta, seed=settings.seed, progress=show)
    bench.policy_sets[POLICY_SET] = policies
    noises = noises_under_test(settings)
    trained = time.perf_counter()
    runs = run_methods(policies, noises, settings, jobs, show)
    adapted = time.perf_counter()
    fresh = run_fresh(policies, settings, jobs, show) if settings.fresh else {}
    seconds = {"training": trained - began, "adapting": adapted - trained, "fresh": time.perf_counter() - adapted}
    results = experiment_results(
        "gridworld",
        settings={**asdict(settings), "noises": noises.tolist(), "candidates": len(policies)},
        seconds=seconds,
        methods={name: summarise(one) for name, one in runs.items()},
        events={name: [run.events for run in one] for name, one in runs.items()},
        policies=policies,
        plan=plan(policies, episodes=settings.episodes, risk=settings.risk, progress=show),
    )
    results["limit"] = limit(policies, noises, settings, jobs, show)
    results["fresh"] = {name: totals(one) for name, one in fresh.items()}
    results["figure1"] = [optimal_policy(noise) for noise in FIGURE_1_NOISES]
    return results


def limit(
    policies: PolicyValueSet, noises: Floats, settings: GridworldSettings, jobs: int, show: Progress
) -> dict[str, Any]:
    """What no method can stay below that keeps the promise wherever the certified ones do, in the mean and per task."""
    highest = float(policies.cells.high.max()) if policies.cells is not None else 0.0
    calls = [(float(noise), highest, settings.episodes, settings.risk) for noise in noises]
    curves = list(parallel_map("limits", limit_curve, calls, jobs, show))
    mean = np.mean([curve["regret"] for curve in curves], axis=0)
    return {"episode": curves[0]["episode"], "mean": mean.tolist(), "tasks": [curve["regret"][-1] for curve in curves]}


def optimal_policy(noise: float) -> dict[str, Any]:
    """One panel of Figure 1: the optimal policy [S, A] of a task and its values [S] and V*."""
    task = gridworld().task([noise])
    best = solve(task)
    chances = best.policy.probabilities
    return {
        "noise": noise,
        "policy": chances.tolist(),
        "state_values": state_values(task, chances)[0].tolist(),
        "optimal_value": float(best.values.reward),
    }


def noises_under_test(settings: GridworldSettings) -> Floats:
    """The published test noises, continued by fresh draws when more are asked for."""
    published = np.array(PUBLISHED_TEST_NOISES[: settings.tasks])
    extra = settings.tasks - len(published)
    if not extra:
        return published
    fresh = gridworld().sample(extra, Stream.GRIDWORLD_TASKS.rng(settings.seed))[:, 0]
    return np.concatenate([published, fresh])


def run_methods(
    policies: PolicyValueSet, noises: Floats, settings: GridworldSettings, jobs: int, show: Progress
) -> dict[str, list[Run]]:
    """Each method on each test task; every task has its own seed, so the order of work does not matter."""
    tasks = [(float(noise), settings.seed + 1000 * (k + 1)) for k, noise in enumerate(noises)]
    return _by_method("adapting", policies, tasks, settings, jobs, show)


def run_fresh(policies: PolicyValueSet, settings: GridworldSettings, jobs: int, show: Progress) -> dict[str, list[Run]]:
    """Each method on each of the fresh tasks."""
    noises = gridworld().sample(settings.fresh, Stream.GRIDWORLD_FRESH_TASKS.rng(settings.seed))[:, 0]
    seeds = np.random.SeedSequence([settings.seed, Stream.GRIDWORLD_FRESH_RUNS]).generate_state(settings.fresh)
    tasks = [(float(noise), int(seed)) for noise, seed in zip(noises, seeds, strict=True)]
    return _by_method("fresh tasks", policies, tasks, settings, jobs, show)


def _by_method(
    what: str,
    policies: PolicyValueSet,
    tasks: Sequence[tuple[float, int]],
    settings: GridworldSettings,
    jobs: int,
    show: Progress,
) -> dict[str, list[Run]]:
    """Runs of every method on every task, given as (noise, seed), in the order of the tasks."""
    calls = [(policies, noise, name, settings, seed) for noise, seed in tasks for name in settings.methods]
    runs: dict[str, list[Run]] = {name: [] for name in settings.methods}
    for call, run in zip(calls, parallel_map(what, _adapt, calls, jobs, show), strict=True):
        runs[call[2]].append(run)
    return runs


def _adapt(policies: PolicyValueSet, noise: float, method: str, settings: GridworldSettings, seed: int) -> Run:
    task = gridworld().task([noise])
    return adapt(policies, task, method=method, episodes=settings.episodes, risk=settings.risk, seed=seed)


EXPERIMENT = Experiment(
    "gridworld",
    GridworldSettings,
    run,
    gridworld_page,
    tables,
    "figure1.png, figure2.png, results.json and gridworld.policyset beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
)

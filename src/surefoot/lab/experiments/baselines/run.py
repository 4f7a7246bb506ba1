"""`surefoot reproduce baselines`: every baseline on its authors' own benchmark, beside ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.baselines.page import baselines_page, tables
from surefoot.lab.experiments.baselines.settings import BENCHMARKS, QUICK, BaselinesSettings, seed_of
from surefoot.lab.experiments.frame import Bench, Experiment, experiment_results
from surefoot.methods import adapt
from surefoot.oracles.exact import exact_oracles
from surefoot.oracles.policy_gradient import worst_task_then_gradient
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.report.metrics import mean_interval, summarise
from surefoot.simulate.run import Run
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.solve import solve
from surefoot.training.train import train

FITTED_POINTS = 200  # at which the growth of the regret is fitted
BESIDE = ("growth", "last", "seconds_per_run")  # what is told of each method beside its summary


def run(settings: BaselinesSettings, bench: Bench) -> dict[str, Any]:
    """Every benchmark."""
    benchmarks = {name: run_benchmark(name, settings, bench.jobs, bench.progress) for name in settings.with_methods}
    return {"seconds": sum(one["seconds"] for one in benchmarks.values()), "benchmarks": benchmarks}


def run_benchmark(name: str, settings: BaselinesSettings, jobs: int, show: Progress) -> dict[str, Any]:
    """The policy set of one benchmark's family, and all methods on the task that was published."""
    benchmark = BENCHMARKS[name]
    began = time.perf_counter()
    show(f"{name}: training", 0, 1)
    policies = train_benchmark(name, settings, show)
    trained = time.perf_counter()
    found = run_methods(policies, name, settings, jobs, show)
    adapted = time.perf_counter()
    # Measured one method after the other: arrays over a million episodes are 8 MB each, and go with their run.
    measured = {method: measures(found.pop(method)) for method in settings.methods_on(name)}
    task = benchmark.family().task(benchmark.parameter)
    results = experiment_results(
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
        "optimum": float(solve(task).values.reward),
        "safe_cost": evaluate(task, benchmark.safe_policy(task)).cost.tolist(),
        **{key: {method: own[key] for method, own in measured.items()} for key in BESIDE},
    }


def train_benchmark(name: str, settings: BaselinesSettings, show: Progress = silent) -> PolicyValueSet:
    """Algorithm 1 on the family around the published task, with the authors' first policy as the safe one."""
    benchmark = BENCHMARKS[name]
    tasks = benchmark.family()
    safe = benchmark.safe_policy(tasks.task(benchmark.parameter))
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
    policies: PolicyValueSet, name: str, settings: BaselinesSettings, jobs: int, show: Progress
) -> dict[str, list[tuple[Run, float]]]:
    """Runs of each method and how long they took; every run has its own seed, the same for all methods."""
    seeds = [seed_of(settings, k) for k in range(settings.runs_on(name))]
    methods = settings.methods_on(name)
    calls = [(policies, name, method, settings, seed) for method in methods for seed in seeds]
    runs = list(parallel_map(f"{name}: adapting", _adapt, calls, jobs, show))
    return {method: runs[k * len(seeds) : (k + 1) * len(seeds)] for k, method in enumerate(methods)}


def _adapt(
    policies: PolicyValueSet, name: str, method: str, settings: BaselinesSettings, seed: int
) -> tuple[Run, float]:
    """One run and its wall time in seconds."""
    benchmark = BENCHMARKS[name]
    began = time.perf_counter()
    run = adapt(
        policies,
        benchmark.family().task(benchmark.parameter),
        method=method,
        episodes=settings.episodes_on(name),
        risk=settings.risk,
        seed=seed,
        **benchmark.options(method),
    )
    return run, time.perf_counter() - began


# ------------------------------------------------------------------------------------------------------- in numbers


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


def last_policies(runs: Sequence[Run]) -> Mapping[str, float]:
    """Means over the runs of the last episode's policy: what it falls short of the optimum, and its margin."""
    before = [run.regret[-2] if run.episodes > 1 else 0.0 for run in runs]
    gaps = [run.regret[-1] - earlier for run, earlier in zip(runs, before, strict=True)]
    return {"gap": float(np.mean(gaps)), "margin": float(np.mean([run.margin[-1] for run in runs]))}


EXPERIMENT = Experiment(
    "baselines",
    BaselinesSettings,
    run,
    baselines_page,
    tables,
    "results.json and a figure per benchmark beside it",
    quick=QUICK,
)

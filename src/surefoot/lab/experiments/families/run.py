"""`surefoot reproduce families`: the certified methods on families that nothing in them was tuned for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.arrays import Floats
from surefoot.fan_out import check_jobs, each
from surefoot.lab.experiments.families.page import families_page
from surefoot.lab.experiments.families.settings import FAMILIES, Settings, variant
from surefoot.lab.experiments.results import check_folder, experiment_results, write_report
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.report.metrics import summarise
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tasks import TaskDistribution
from surefoot.training.train import train


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Train and adapt on every family; returns what is written to results.json."""
    check_jobs(jobs)
    check_folder(out, *(f"{name}.policyset" for name in settings.families))
    show = progress or silent
    trained: dict[str, PolicyValueSet] = {}
    families: dict[str, dict[str, Any]] = {}
    for name in settings.families:
        trained[name], families[name] = run_family(name, settings, jobs, show)
    results = {
        "experiment": "families",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": sum(each["seconds"] for each in families.values()),
        "families": families,
    }
    show("writing the report", 0, 1)
    report = families_page(results)
    write_report(out, results, report, {f"{name}.policyset": policies for name, policies in trained.items()})
    return results


def run_family(name: str, settings: Settings, jobs: int, show: Progress) -> tuple[PolicyValueSet, dict[str, Any]]:
    """The policy set of one family, and the results of all methods on its fresh tasks."""
    began = time.perf_counter()
    show(f"{name}: training", 0, 1)
    tasks = FAMILIES[name]()
    shares = {1.0, *(variant(method).cells for method in settings.methods)}
    sets = {share: _trained(tasks, round(share * settings.cells), settings, show) for share in sorted(shares)}
    policies = sets[1.0]
    parameters = tasks.sample(settings.tasks, Stream.FAMILIES_TASKS.rng(settings.seed))
    trained = time.perf_counter()
    runs, seconds = run_methods(sets, name, parameters, settings, jobs, show)
    results = experiment_results(
        name,
        settings={"parameters": parameters.tolist(), "candidates": len(policies), "recipe": dict(tasks.recipe)},
        seconds={"training": trained - began, "adapting": time.perf_counter() - trained},
        methods={method: summarise(each) for method, each in runs.items()},
        events={method: [run.events for run in each] for method, each in runs.items()},
        policies=policies,
    )
    cells = policies.cells
    facts = {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered}
    return policies, {**results, **facts, "seconds_per_run": seconds}


def _trained(tasks: TaskDistribution, cells: int, settings: Settings, show: Progress) -> PolicyValueSet:
    return train(tasks, epsilon=settings.epsilon, delta=settings.delta, seed=settings.seed, progress=show, cells=cells)


def run_methods(
    sets: Mapping[float, PolicyValueSet],
    family: str,
    parameters: Floats,
    settings: Settings,
    jobs: int,
    show: Progress,
) -> tuple[dict[str, list[Run]], dict[str, float]]:
    """Runs of each method, one per task, and its mean CPU time; every task has its own seed, the same for all."""
    seeds = [settings.seed + 1000 * (k + 1) for k in range(len(parameters))]
    calls = [
        (sets[variant(method).cells], family, parameter, method, settings, seed)
        for parameter, seed in zip(parameters, seeds, strict=True)
        for method in settings.methods
    ]
    runs: dict[str, list[Run]] = {method: [] for method in settings.methods}
    seconds = dict.fromkeys(settings.methods, 0.0)
    for call, (run, took) in zip(calls, each(f"{family}: adapting", _adapt, calls, jobs, show), strict=True):
        runs[call[3]].append(run)
        seconds[call[3]] += took / len(parameters)
    return runs, seconds


def _adapt(
    policies: PolicyValueSet, family: str, parameter: Floats, method: str, settings: Settings, seed: int
) -> tuple[Run, float]:
    """One run and its CPU time in seconds, which does not depend on what else the machine does."""
    began = time.process_time()
    task, chosen = FAMILIES[family]().task(parameter), variant(method)
    run = adapt(
        policies,
        task,
        method=chosen.method,
        episodes=settings.episodes,
        risk=settings.risk,
        seed=seed,
        **chosen.options,
    )
    return run, time.process_time() - began

"""`surefoot reproduce tail`: one family with a budget on the mean of its cost, and with one on its tail."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.fan_out import check_jobs
from surefoot.lab.experiments.results import check_folder, write_report
from surefoot.lab.experiments.tail.page import tail_page
from surefoot.lab.experiments.tail.settings import Settings, crossing
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.cvar_tasks import Tail, conditional_value_at_risk, cost_distribution, cvar
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

METHOD = "certified"
EPSILON, DELTA = 0.02, 0.05  # of the cover


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Train with either budget, adapt on the same tasks, and write results.json, the figure and report.html."""
    check_jobs(jobs)
    check_folder(out)
    show, began = progress or silent, time.perf_counter()
    base, tail = crossing(settings.mean), settings.budget
    families: dict[str, tuple[TaskDistribution, Tail | None]] = {"mean": (base, None), "tail": (cvar(base, tail), tail)}
    show("training", 0, 1)
    sets = {name: trained(tasks, settings.seed, jobs, show) for name, (tasks, _) in families.items()}
    parameters = base.sample(settings.tasks, Stream.TAIL_TASKS.rng(settings.seed))
    rows: list[dict[str, Any]] = []
    for k, parameter in enumerate(parameters):
        for name, (tasks, own) in families.items():
            show("adapting", len(rows), 2 * len(parameters))
            run = adapt(
                sets[name],
                tasks.task(parameter),
                method=METHOD,
                episodes=settings.episodes,
                risk=settings.risk,
                seed=settings.seed + k,
            )
            rows.append({"budget": name, "noise": float(parameter[0]), **costs(base.task(parameter), run, own, tail)})
    results = {
        "experiment": "tail",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "policies": {name: len(policies.policies) for name, policies in sets.items()},
        "rows": rows,
    }
    write_report(out, results, tail_page(results))
    return results


def trained(tasks: TaskDistribution, seed: int, jobs: int, show: Progress) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # the paper's theorem is not claimed
        return train(tasks, epsilon=EPSILON, delta=DELTA, xi=None, seed=seed, jobs=jobs, progress=show)


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

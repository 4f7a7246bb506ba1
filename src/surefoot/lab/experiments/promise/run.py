"""`surefoot reproduce promise`: the risk a method was given, against how often it was unsafe on fresh tasks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.lab.experiments.promise import families
from surefoot.lab.experiments.promise.page import promise_page, tables
from surefoot.lab.experiments.promise.settings import PromiseSettings, RandomSettings, settings_for
from surefoot.lab.experiments.promise.twins import overconfident
from surefoot.lab.experiments.promise.verdict import Count
from surefoot.lab.experiments.promise.watched import audit_run, tested
from surefoot.methods import adapt, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.streams import Stream
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train

BATCH = 20  # tasks per unit of parallel work


def run(settings: PromiseSettings | RandomSettings, bench: Bench) -> dict[str, Any]:
    """Count on the gridworld, or on random families."""
    if isinstance(settings, RandomSettings):
        return families.run(settings, bench)
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=bench.progress)
    counts = [row for name in settings.methods for row in count(policies, name, settings, bench.jobs, bench.progress)]
    return {"seconds": sum(row["seconds"] for row in counts), "counts": counts}


def count(
    policies: PolicyValueSet, method: str, settings: PromiseSettings, jobs: int, show: Progress
) -> list[dict[str, Any]]:
    """One method at every risk on fresh tasks, the same for all; its twin knows no risk, so it is run once."""
    noises = gridworld().sample(settings.tasks, Stream.PROMISE_GRIDWORLD_TASKS.rng(settings.seed))[:, 0]
    began = time.perf_counter()
    few = [(policies, noises, batch, method, settings) for batch in _batches(min(settings.twins, settings.tasks))]
    twin = list(chain.from_iterable(parallel_map(f"{method}, overconfident", _twin_batch, few, jobs, show)))
    rows = []
    for risk in settings.risks:
        calls = [(policies, noises, batch, method, risk, settings) for batch in _batches(settings.tasks)]
        found = list(chain.from_iterable(parallel_map(f"{method} at risk {risk:g}", _batch, calls, jobs, show)))
        unsafe, margins, regrets, came_near = zip(*found, strict=True)
        counted = Count(len(found), sum(map(bool, unsafe)), sum(came_near), len(twin), sum(twin))
        rows.append(
            {
                "method": method,
                "risk": risk,
                **counted.summary(risk),
                "unsafe_episodes": sum(unsafe),
                "smallest_margin": min(margins),
                "regret_mean": _finite_mean(regrets),
                "seconds": time.perf_counter() - began,
            }
        )
        began = time.perf_counter()
    return rows


def _batches(tasks: int) -> list[range]:
    return [range(k, min(k + BATCH, tasks)) for k in range(0, tasks, BATCH)]


def _batch(
    policies: PolicyValueSet, noises: np.ndarray, batch: range, method: str, risk: float, settings: PromiseSettings
) -> list[tuple[int, float, float, bool]]:
    """Unsafe episodes, smallest margin, regret and whether the count tests anything, for each task.

    Tasks where nothing is feasible count as they are.
    """
    rows = []
    for k in batch:
        task = gridworld().task([noises[k]])
        found = adapt(policies, task, method=method, episodes=settings.episodes, risk=risk, seed=_seed(settings, k))
        near = tested(found, task, policies.safe_policy)
        rows.append((found.unsafe_episodes, float(found.margin.min()), float(found.regret[-1]), near))
    return rows


def _twin_batch(
    policies: PolicyValueSet, noises: np.ndarray, batch: range, method: str, settings: PromiseSettings
) -> list[bool]:
    """Whether the overconfident twin was unsafe on each task; nothing for methods without one."""
    twin = overconfident(learner(policies, method=method, risk=max(settings.risks), episodes=settings.episodes).method)
    if twin is None:
        return []
    runs = (
        audit_run(
            twin,
            gridworld().task([noises[k]]),
            safe=policies.safe_policy,
            episodes=settings.episodes,
            seed=_seed(settings, k),
            horizon=policies.units.episode_length,
            cell=None,
        )
        for k in batch
    )
    return [run.unsafe_episodes > 0 for run in runs]


def _seed(settings: PromiseSettings, number: int) -> int:
    return Stream.PROMISE_GRIDWORLD_RUNS.seed(settings.seed, number)


def _finite_mean(values: Sequence[float]) -> float:
    return float(np.mean([value for value in values if math.isfinite(value)]))


EXPERIMENT = Experiment(
    "promise",
    RandomSettings,
    run,
    promise_page,
    tables,
    "promise.png and results.json beside it",
    configure=settings_for,
)

"""`surefoot reproduce regret`: measured regret beside what is certified while it runs, and beside the paper's bound."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from surefoot import __version__, theory
from surefoot.arrays import Floats
from surefoot.fan_out import check_jobs, workers
from surefoot.lab.analysis.certified_regret import RegretCertificate, cell_optima
from surefoot.lab.analysis.covering_number import covering_number
from surefoot.lab.experiments.regret.page import regret_page
from surefoot.lab.experiments.regret.settings import DELTA, EPSILON, Family, Settings
from surefoot.lab.experiments.results import check_folder, write_report
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.runner import run_learner
from surefoot.tasks.gridworld_tasks import MEAN_NOISE, gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.train import train

POINTS = 60  # of a curve over episodes
RADII = 40  # ε at which the theorem is tried
FINEST = 1e-4  # of them, as a part of the largest that it allows
ROUNDING = 1e-9  # of regret, relative
NOISE_TO_DISTANCE = 0.75  # d(M_i, M_j) = 0.75·|i - j|


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Train and adapt on every family, and write results.json, the figure and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    began, show = time.perf_counter(), progress or silent
    families = settings.families
    with workers(jobs) as ready:
        sets = list(ready.each("training", trained, [(family, settings) for family in families], show))
        calls = [
            (family, made, method, quantile, settings)
            for family, made in zip(families, sets, strict=True)
            for method in settings.methods
            for quantile in quantiles(settings.tasks)
        ]
        runs = list(ready.each("adapting", measured, calls, show))
    results = {
        "experiment": "regret",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "families": [
            {**asdict(family), **bounds(family, made.policies, settings)}
            for family, made in zip(families, sets, strict=True)
        ],
        "runs": runs,
    }
    write_report(out, results, regret_page(results))
    return results


class Trained(NamedTuple):
    policies: PolicyValueSet
    optima: Floats  # [J] upper bounds on the optimal reward of the tasks of each cell


def trained(family: Family, settings: Settings) -> Trained:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the paper's theorem does not apply at this ε, which the page says
        policies = train(gridworld(**asdict(family)), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=False)
    method = learner(policies, method=settings.methods[0], risk=settings.risk).method
    return Trained(policies, cell_optima(method))


def quantiles(tasks: int) -> list[float]:
    return [(2 * k + 1) / (2 * tasks) for k in range(tasks)]


def measured(family: Family, made: Trained, method: str, quantile: float, settings: Settings) -> dict[str, Any]:
    """One method on one task: its regret and what was certified of it, at a few episodes on the way."""
    noise = MEAN_NOISE + family.std * NormalDist().inv_cdf(quantile)
    task = gridworld(**asdict(family)).task([noise])
    chosen = learner(made.policies, method=method, risk=settings.risk, seed=settings.seed)
    certificate = RegretCertificate(chosen, made.optima)
    run = run_learner(chosen, task, episodes=settings.episodes, seed=settings.seed, observer=certificate.note)
    certified = certificate.totals(settings.episodes)
    kept = np.unique(np.geomspace(1, settings.episodes, POINTS).round().astype(np.int64)) - 1
    return {
        **asdict(family),
        "method": method,
        "noise": noise,
        "episode": (kept + 1).tolist(),
        "regret": run.regret[kept].tolist(),
        "certified": certified[kept].tolist(),
        "safe_gap": run.optimal_reward - float(task.values(made.policies.safe_policy).reward),
        "exceeded": bool((run.regret > certified * (1 + ROUNDING)).any()),
        "unsafe": bool(run.unsafe.any()),
    }


# ---------------------------------------------------------------------------------------------------- the paper's bound


def bounds(family: Family, policies: PolicyValueSet, settings: Settings) -> dict[str, Any]:
    """The paper's bound for this family, on the way to the last episode, in the user's units."""
    tasks, units, xi = gridworld(**asdict(family)), policies.units, float(policies.xi or 0.0)
    episodes = np.unique(np.geomspace(1, settings.episodes, POINTS).round().astype(np.int64)).tolist()
    cover, choices = cover_number(tasks, EPSILON / 2, DELTA), accuracies(tasks, xi, settings.risk)
    in_units = {
        "trivial": [theory.trivial_regret(k, units.discount) for k in episodes],
        "shape": [theory.regret_bound(k, cover, EPSILON, xi, units.discount) for k in episodes],
        "theorem": [smallest_bound(choices, k, xi, units.discount) for k in episodes],
    }
    return {
        "cover": cover,
        "candidates": len(policies),
        "xi": xi,
        "episode": episodes,
        **{name: [units.reward_scale * each for each in values] for name, values in in_units.items()},
        "says_something_after": says_something_after(choices, xi, units.discount),
    }


class Accuracy(NamedTuple):
    """ε and δ of a training, and the covering number C_{ε/2}(D, δ)."""

    epsilon: float
    delta: float
    cover: int


def accuracies(tasks: TaskDistribution, xi: float, risk: float) -> list[Accuracy]:
    """Trainings for which the theorem holds with probability 1 - risk: of ε, what (8L+18)ε ≤ ξ allows."""
    largest = theory.largest_epsilon(xi, tasks.units.discount)
    return [_accuracy(tasks, float(epsilon), risk) for epsilon in np.geomspace(FINEST * largest, largest, RADII)]


def _accuracy(tasks: TaskDistribution, epsilon: float, risk: float) -> Accuracy:
    """26δ + 9δ ln C ≤ risk: a smaller δ makes C hardly larger, so that this is found in a few steps."""
    delta, cover = risk / 26, 2
    while theory.theorem_probability(delta, cover) < 1 - risk or cover != cover_number(tasks, epsilon / 2, delta):
        cover = cover_number(tasks, epsilon / 2, delta)
        delta = min(delta, 0.99 * risk / (26 + 9 * math.log(cover)))
    return Accuracy(epsilon, delta, cover)


def smallest_bound(choices: Sequence[Accuracy], episodes: float, xi: float, discount: float) -> float:
    """The theorem's bound, unit scale, with the training that makes it smallest."""
    return min(
        theory.regret_bound_with_constants(episodes, each.cover, each.epsilon, xi, each.delta, discount)
        for each in choices
    )


def says_something_after(choices: Sequence[Accuracy], xi: float, discount: float) -> float | None:
    """The least power of ten of episodes at which the theorem's bound is below the trivial one."""
    powers = (10.0**power for power in range(1, 25))
    below = (k for k in powers if smallest_bound(choices, k, xi, discount) < theory.trivial_regret(k, discount))
    return next(below, None)


def cover_number(tasks: TaskDistribution, radius: float, delta: float) -> int:
    """C of balls in the paper's distance, which is a multiple of that between noises."""
    return covering_number(tasks.distribution, radius / NOISE_TO_DISTANCE, delta)

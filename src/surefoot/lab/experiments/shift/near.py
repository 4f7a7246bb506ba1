"""Tasks at a distance from those trained for, and tasks without any relation to them: promises, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.lab.experiments.shift.settings import Settings
from surefoot.lab.experiments.shift.tasks import shifted
from surefoot.learning.method import SAFE
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tabular.distance import distance
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.robust import worst_within
from surefoot.tasks.gridworld_tasks import gridworld

MODEL_FREE = "certified-model-free"


def near_runs(policies: PolicyValueSet, method: str, shift: float, settings: Settings) -> dict[str, Any]:
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


def model_free_runs(policies: PolicyValueSet, name: str, settings: Settings) -> dict[str, Any] | None:
    """The model-free method under one shift, told that the safe policy is feasible; None where that is not so."""
    task = shifted(name)
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

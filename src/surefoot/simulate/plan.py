"""How long each method stays on the safe policy, told before the real system is touched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from surefoot.arrays import Mask
from surefoot.cmdp.task import Task
from surefoot.cmdp.wording import calibration_in_words
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import CLAIMED, CalibratedMethod
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.learning.spec import MethodArgs, MethodSpec, Plan, PlanLine
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.runner import run_learner
from surefoot.tasks.task_distribution import TaskDistribution

# Methods without a plan of their own are tried on so many simulated training tasks, for so many episodes.
TRIAL_TASKS, TRIAL_EPISODES = 3, 2000


def plan_methods(
    specs: Iterable[MethodSpec],
    policies: PolicyValueSet,
    *,
    episodes: int,
    risk: float,
    tasks: TaskDistribution | None = None,
    show: Progress = silent,
) -> tuple[PlanLine, ...]:
    """The plans of those methods that have one, for a run of `episodes` episodes.

    Trials are on tasks drawn from `tasks`, or else on those that the policy set can make itself.
    """
    trials = _trial_tasks(policies, tasks)
    lines = []
    for spec in specs:
        terms = MethodArgs(spec.name, episodes, risk, policies.units.episode_length)
        if spec.plan == "trial":
            lines.append(_plan_by_simulation(spec, policies, terms, trials, show))
        elif spec.plan is not None:
            lines.append(_plan_from_spec(spec, spec.plan, policies, terms))
    return tuple(lines)


def plan_calibration(
    method: CalibratedMethod,
    policies: PolicyValueSet,
    *,
    tasks: TaskDistribution | None = None,
    show: Progress = silent,
) -> PlanLine:
    """The plan of a method at the setting that a calibration allows, for as long as this is good for."""
    found, trials = method.calibration, _trial_tasks(policies, tasks)
    most = min(TRIAL_EPISODES, found.episodes)
    line = _plan_by_trial(method, f"{method.name}, calibrated", found.horizon, trials, most, show)
    follows = f"{method.name} as it is proved, at risk {found.reserve:g}" if found.reserve else "the safe policy"
    rests = f"{calibration_in_words(found.plain())}; after these episodes {follows}"
    reason = f"certified by calibration: {rests}" if method.certified else f"{rests}; {CLAIMED}"
    return replace(line, reason=f"{line.reason}; {reason}")


def _trial_tasks(policies: PolicyValueSet, tasks: TaskDistribution | None) -> list[Task]:
    """None where there is no family and the policy set has no model that tasks could be made of."""
    rng, cells = np.random.default_rng(0), policies.cells
    if tasks is not None:
        return [tasks.task(parameter) for parameter in tasks.sample(TRIAL_TASKS, rng)]
    if cells is None or cells.model is None or cells.model.affine is None or not cells.model.pays:
        return []
    drawn = rng.choice(len(cells), TRIAL_TASKS, p=cells.prior / cells.prior.sum())
    return [cells.model.task(cells.centre[cell], policies.units) for cell in drawn]


def _plan_from_spec(spec: MethodSpec, plan: Plan, policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    """What the method says itself, if it is possible at all."""
    try:
        if spec.needs_cover:
            spec.check_cover(policies)
    except InvalidInput as error:
        return PlanLine(spec.name, spec.certified, math.inf, f"not possible: {error}")
    return plan(policies, terms)


def _plan_by_simulation(
    spec: MethodSpec, policies: PolicyValueSet, terms: MethodArgs, trials: Sequence[Task], show: Progress
) -> PlanLine:
    """How soon the method moves on simulated tasks."""
    try:
        method = spec.method(policies, terms, {})
    except InvalidInput as error:
        return PlanLine(spec.name, spec.certified, math.inf, f"not possible: {error}")
    return _plan_by_trial(method, spec.name, terms.horizon, trials, TRIAL_EPISODES, show)


def _plan_by_trial(
    method: Method, name: str, horizon: int, trials: Sequence[Task], episodes: int, show: Progress
) -> PlanLine:
    first = method.mixture(method.start()).weight
    if not trials:
        reason = f"starts at weight {first:.3g}; how it goes on takes a family of tasks to try it on"
        return PlanLine(name, method.certified, 0 if first else math.nan, reason)
    leaves, halves = [], []
    for seed, task in enumerate(trials):
        show(f"trying {name}", seed, len(trials))
        learner = Learner(method, seed=seed, horizon=horizon)
        run = run_learner(learner, task, episodes=episodes, seed=seed, optimal_reward=0.0)
        leaves.append(_first(run.weight > 0))
        halves.append(_first(run.weight >= 0.5))
    half = float(np.median(halves))
    when = f"after about {half:,.0f} episodes" if math.isfinite(half) else f"not within {episodes} episodes"
    reason = f"first weight {first:.3g}; weight 1/2 {when} (median of {len(trials)} simulated training tasks)"
    return PlanLine(name, method.certified, float(np.median(leaves)), reason)


def _first(reached: Mask) -> float:
    """Number of episodes before the first one marked; infinite when none is."""
    return float(np.argmax(reached)) if reached.any() else math.inf

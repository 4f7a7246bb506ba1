"""How long each method stays on the safe policy, told before the real system is touched."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from surefoot.arrays import Mask
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.spec import MethodSpec, PlanLine, Terms
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner

# Methods without a plan of their own are tried on so many simulated training tasks, for so many episodes.
TRIAL_TASKS, TRIAL_EPISODES = 3, 2000


def planned(
    specs: Iterable[MethodSpec], policies: PolicyValueSet, *, episodes: int, risk: float
) -> tuple[PlanLine, ...]:
    """The plans of those methods that have one, for a run of `episodes` episodes."""
    lines = []
    for spec in specs:
        terms = Terms(spec.name, episodes, risk, policies.units.episode_length)
        if spec.plan == "trial":
            lines.append(_trial(spec, policies, terms))
        elif spec.plan is not None:
            lines.append(spec.plan(policies, terms))
    return tuple(lines)


def _trial(spec: MethodSpec, policies: PolicyValueSet, terms: Terms) -> PlanLine:
    """How soon the method moves on training tasks, simulated with the model in the policy set where it has one."""
    try:
        method = spec.method(policies, terms, {})
    except InvalidInput as error:
        return PlanLine(spec.name, spec.certified, math.inf, f"not possible: {error}")
    first = method.deployed(method.start()).weight
    cells = policies.cells
    if cells is None or cells.model is None or cells.model.affine is None:
        return PlanLine(spec.name, method.certified, 0 if first else math.inf, f"starts at weight {first:.3g}")
    rng = np.random.default_rng(0)
    leaves, halves = [], []
    for seed, cell in enumerate(rng.choice(len(cells), TRIAL_TASKS, p=cells.prior / cells.prior.sum())):
        task = cells.model.task(cells.centre[cell], policies.units)
        learner = Learner(method, seed=seed, horizon=terms.horizon)
        run = run_learner(learner, task, episodes=TRIAL_EPISODES, seed=seed, optimal_reward=0.0)
        leaves.append(_first(run.weight > 0))
        halves.append(_first(run.weight >= 0.5))
    half = float(np.median(halves))
    when = f"after about {half:,.0f} episodes" if math.isfinite(half) else f"not within {TRIAL_EPISODES} episodes"
    reason = f"first weight {first:.3g}; weight 1/2 {when} (median of {TRIAL_TASKS} simulated training tasks)"
    return PlanLine(spec.name, method.certified, float(np.median(leaves)), reason)


def _first(reached: Mask) -> float:
    """Number of episodes before the first one marked; infinite when none is."""
    return float(np.argmax(reached)) if reached.any() else math.inf

"""Values of a policy on a task that may be readable or not: exact, or by simulation with intervals that are proved."""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes, first_breach
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.cmdp.units import Units
from surefoot.cmdp.values import Values
from surefoot.confidence import Betting
from surefoot.errors import InvalidInput


def judged(task: Task, policy: Policy, *, steps: int, episodes: int, level: float, rng: np.random.Generator) -> Values:
    """Exact values of a readable task; otherwise means over `episodes` episodes of `steps` steps, with an error that
    holds for reward and all margins at once with probability 1 - level."""
    if isinstance(task, ReadableTask):
        return task.values(policy)
    outcomes = task.episodes(policy, steps).run(episodes, rng)
    lower, upper = value_bounds(outcomes, task.units, steps, level)
    means = np.array([outcomes.reward.mean(), *(task.units.budget - outcomes.cost.mean(axis=0))])
    error = np.maximum(upper - means, means - lower)
    return Values(float(means[0]), task.units.budget - means[1:], means[1:], error)


def value_bounds(outcomes: Outcomes, units: Units, steps: int, level: float) -> tuple[Floats, Floats]:
    """Lower and upper [1+m]: the reward and the margins of the policy behind independent `outcomes`, all of them at
    once with probability 1 - level.

    The discounted sums are independent and bounded, which is all that betting asks for (docs/guarantees.md, section
    6); sums outside the declared ranges are refused. What episodes lack that were cut off after `steps` steps is added
    at its largest.
    """
    outside = first_breach(outcomes, units)
    if outside < len(outcomes):
        raise InvalidInput(
            f"the task's simulated sums must lie in the ranges that it declares, {units.reachable.tolist()}, "
            f"got reward {outcomes.reward[outside]:g} and cost {outcomes.cost[outside].tolist()} in episode {outside}"
        )
    low, high = units.reachable.T
    span = np.where(high > low, high - low, 1.0)
    sums = np.column_stack([outcomes.reward, outcomes.cost])
    sequence = Betting(level / len(low))
    state = sequence.update(sequence.start((len(low),)), np.clip((sums - low) / span, 0.0, 1.0))
    least, most = sequence.interval(state)
    missed = units.missed(steps)
    lower, upper = low + span * least + missed * low, low + span * most + missed * high
    cost_lower, cost_upper = lower[1:], upper[1:]
    return (
        np.concatenate([lower[:1], units.budget - cost_upper]),
        np.concatenate([upper[:1], units.budget - cost_lower]),
    )

"""Values of the policies on a task, exactly or by simulation, as bounds; and cells made of bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.policyset.cells import Cells, Source
from surefoot.tabular.evaluate import state_values
from surefoot.tabular.expansion import reward_and_margin
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.transition_model import TransitionModel
from surefoot.tasks.family import TaskDistribution

# values(parameter, rng) -> lower, upper [P, 1+m, 1+S]: from the start distribution, then from each state
# (or [P, 1+m, 1] when only the former can be had); reward first, then margins.
Evaluator: TypeAlias = Callable[[Floats, np.random.Generator], tuple[Floats, Floats]]


def exact_values(tasks: TaskDistribution, policies: Sequence[TabularPolicy]) -> Evaluator:
    """Exact values of tabular tasks: lower and upper coincide."""

    def values(parameter: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        task = tasks.task(parameter)
        per_policy = np.stack([state_values(task, policy.probabilities) for policy in policies])  # [P, 1+m, S]
        every = np.concatenate([(per_policy @ task.start)[:, :, None], per_policy], axis=2)
        return reward_and_margin(every, every, task.units)

    return values


def simulated_values(
    simulate: Callable[[Floats, int, int, np.random.Generator], tuple[Floats, Floats]],
    policies: int,
    units: Units,
    *,
    episodes: int,
    error: float,
    truncation: float,
) -> Evaluator:
    """Monte-Carlo values for tasks known only through a simulator, with Hoeffding intervals.

    Args:
        simulate: (parameter, policy index, episodes, rng) to discounted rewards [n] and costs [n, m].
        error: probability that any interval of one task fails; it adds to the uncovered probability (`holdout_cells`).
        truncation: γ^H of the simulated episodes.
    """
    constraints = len(units.budget)
    log = math.log(2 * policies * (1 + constraints) / error)
    # What an episode misses, by stopping early or by being cut off, makes 0 part of every range.
    ranges = np.stack([np.array(units.reward_value_range), *units.cost_value_range])
    spans = np.maximum(ranges[:, 1], 0.0) - np.minimum(ranges[:, 0], 0.0)
    radius = spans * (math.sqrt(log / (2 * episodes)) + truncation)

    def values(parameter: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        means = np.empty((policies, 1 + constraints, 1))
        for index in range(policies):
            reward, cost = simulate(parameter, index, episodes, rng)
            means[index, :, 0] = reward.mean(), *cost.mean(axis=0)
        return reward_and_margin(means - radius[:, None], means + radius[:, None], units)

    return values


def cells_of_bounds(
    low: Floats,
    high: Floats,
    prior: Floats,
    lower: Floats,
    upper: Floats,
    source: Source,
    uncovered: float,
    model: TransitionModel | None,
    outside: Floats | None = None,
) -> Cells:
    """Cells from bounds [J, P, 1+m, 1+S] or [J, P, 1+m, 1], the start distribution first."""
    by_start = lower.shape[-1] > 1
    return Cells(
        low,
        high,
        prior,
        np.ascontiguousarray(lower[..., 0]),
        np.ascontiguousarray(upper[..., 0]),
        np.ascontiguousarray(lower[..., 1:]) if by_start else None,
        np.ascontiguousarray(upper[..., 1:]) if by_start else None,
        source,
        uncovered,
        model,
        np.empty((0, low.shape[1])) if outside is None else outside,
    )

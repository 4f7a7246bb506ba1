"""Values of what a run deploys: exact, or estimated on fresh episodes, as many as show whether the budgets are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task, Values
from surefoot.estimates import Intervals, rounds


class Worth(NamedTuple):
    """Reward and smallest margin of a mixture, and by how much either may be off."""

    reward: float
    margin: float
    reward_error: float
    margin_error: float


def worth(
    indices: Sequence[int], shares: Sequence[float], evaluation: Callable[[int], PolicyEvaluation], rounding: float
) -> Worth:
    """Worth of the mixture of policies with these probabilities, by their evaluations, each refined until it is known
    on which side of 0 the margin lies; one that misses 0 by `rounding` counts as 0."""
    weights, parts = np.array(shares), [evaluation(index) for index in indices]
    while True:
        found = mixture_worth(weights, [part.values for part in parts])
        unfinished = [part for part in parts if not part.is_done]
        low, high = found.margin - found.margin_error, found.margin + found.margin_error
        if not unfinished or low >= -rounding or high < -rounding:
            return found
        for part in unfinished:
            part.refine()


def mixture_worth(weights: Floats, values: Sequence[Values]) -> Worth:
    """Errors [1+m] of a mixture are those of its components, weighted; the smallest margin is off by no more than the
    worst of them."""
    reward = weights @ [value.reward for value in values]
    margin = (weights @ np.stack([value.margin for value in values])).min()
    errors = [value.error for value in values if value.error is not None]
    error = weights @ np.stack(errors) if errors else np.zeros(2)
    return Worth(float(reward), float(margin), float(error[0]), float(error[1:].max()))


class PolicyEvaluation:
    """Values of a policy on a task: exact, or the means over more and more fresh episodes, `most` at the most.

    The `error` of the values holds for reward and all margins, and for all numbers of episodes at once, with
    probability 1 - level. Episodes that a learner has seen would not do: it chose when to stop.
    """

    def __init__(
        self, task: Task, policy: Policy, *, steps: int, most: int, level: float, rng: np.random.Generator
    ) -> None:
        self._exact = task.values(policy) if isinstance(task, ReadableTask) else None
        if self._exact is not None:
            return
        self._simulated, self._rng, self._left = task.episodes(policy, steps), rng, list(rounds(most))
        self._intervals = Intervals(task.units, steps, level / (2 * len(task.units.reachable)))
        self._state = self._intervals.start()
        self._sums, self._count = np.zeros(len(task.units.reachable)), 0
        self.refine()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to be simulated."""
        return self._exact is not None or not self._left

    def refine(self) -> None:
        """As many episodes again as there were, within the most allowed."""
        outcomes = self._simulated.run(self._left.pop(0), self._rng)
        self._state = self._intervals.update(self._state, outcomes)
        self._sums += outcomes.reward.sum(), *outcomes.cost.sum(axis=0)
        self._count += len(outcomes)

    @property
    def values(self) -> Values:
        if self._exact is not None:
            return self._exact
        units = self._intervals.units
        reward, *cost = self._sums / self._count
        margin = units.budget - cost
        lower, upper = self._intervals.bounds(self._state)
        means = np.array([reward, *margin])
        return Values(float(reward), np.array(cost), margin, np.maximum(upper - means, means - lower))

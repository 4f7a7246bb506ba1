"""Values of a policy on a task that may be readable or not: exact, or by simulation with intervals that are proved.

Episodes are simulated in rounds, each as many as all before, and the intervals hold after all rounds at once
(docs/guarantees.md, 2.4). So one may stop whenever they are good enough, and what is known is their intersection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes, first_breach
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes, ReadableTask, Task
from surefoot.cmdp.units import Units
from surefoot.cmdp.values import Values
from surefoot.confidence import Betting, Side, State
from surefoot.errors import InvalidInput

# The first of several rounds has this share of the episodes: enough to see whether more are needed.
FIRST_ROUND = 1 / 8

# enough(lower [1+m], upper [1+m]): whether no more needs to be known of the reward and the margins of a policy.
Enough: TypeAlias = Callable[[Floats, Floats], bool]


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
    once with probability 1 - level."""
    intervals = Intervals(units, steps, level)
    return intervals.bounds(intervals.update(intervals.start(), outcomes))


def bounds_in_rounds(
    simulated: Episodes, intervals: Intervals, most: int, rng: np.random.Generator, enough: Enough | None
) -> tuple[Floats, Floats]:
    """Lower and upper [1+m] of the policy behind `simulated`, from `most` episodes or from as few as are enough.

    They are intersections over all rounds, and right with the probability of a single interval however `enough`
    decides. More rounds never lower `lower` nor raise `upper`; where an interval is wrong the two may pass each other.
    """
    state = intervals.start()
    lower, upper = intervals.bounds(state)
    for size in (most,) if enough is None else rounds(most):
        state = intervals.update(state, simulated.run(size, rng))
        least, greatest = intervals.bounds(state)
        lower, upper = np.maximum(lower, least), np.minimum(upper, greatest)
        if enough is not None and enough(lower, upper):
            break
    return lower, upper


def rounds(most: int) -> Iterator[int]:
    """Sizes of the rounds of `most` episodes: the number simulated so far doubles with each."""
    done, size = 0, max(1, round(FIRST_ROUND * most))
    while done < most:
        size = min(size, most - done)
        yield size
        done += size
        size = done


@dataclass(frozen=True)
class Intervals:
    """Intervals for the reward and the margins of one policy, all of them right after every episode at once with
    probability 1 - level.

    The discounted sums are independent and bounded, which is all that betting asks for (docs/guarantees.md, section
    6); sums outside the declared ranges are refused. What episodes lack that were cut off after `steps` steps is added
    at its largest.

    Attributes:
        margins_only: bound the margins from below and nothing else, with all of the level spent on that.
    """

    units: Units
    steps: int
    level: float
    margins_only: bool = False

    def start(self) -> State:
        return self._sequence.start((len(self._ends),))

    def update(self, state: State, outcomes: Outcomes) -> State:
        units, outside = self.units, first_breach(outcomes, self.units)
        if outside < len(outcomes):
            raise InvalidInput(
                f"the task's simulated sums must lie in the ranges that it declares, {units.reachable.tolist()}, "
                f"got reward {outcomes.reward[outside]:g} and cost {outcomes.cost[outside].tolist()} in episode "
                f"{outside}"
            )
        sums = outcomes.cost if self.margins_only else np.column_stack([outcomes.reward, outcomes.cost])
        low, span = self._scale
        return self._sequence.update(state, np.clip((sums - low) / span, 0.0, 1.0))

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        """Lower and upper [1+m] of the reward and the margins; infinite where not asked for."""
        low, span = self._scale
        least, most = self._sequence.interval(state)
        tail = self.units.tail(self.steps)[-len(low) :]
        lower, upper = low + span * least + tail[:, 0], low + span * most + tail[:, 1]
        if self.margins_only:
            anything = np.full(len(low) + 1, np.inf)
            return np.concatenate([-anything[:1], self.units.budget - upper]), anything
        cost_lower, cost_upper = lower[1:], upper[1:]
        return (
            np.concatenate([lower[:1], self.units.budget - cost_upper]),
            np.concatenate([upper[:1], self.units.budget - cost_lower]),
        )

    @cached_property
    def _sequence(self) -> Betting:
        side: Side = "upper" if self.margins_only else "both"
        return Betting(self.level / len(self._ends), side)

    @property
    def _scale(self) -> tuple[Floats, Floats]:
        """Offset and span that put sums into [0, 1]."""
        low, high = self._ends.T
        return low, np.where(high > low, high - low, 1.0)

    @property
    def _ends(self) -> Floats:
        return self.units.reachable[1:] if self.margins_only else self.units.reachable

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
from surefoot.confidence import Betting, State
from surefoot.errors import InvalidInput

# The first of several rounds has this share of the episodes: enough to see whether more are needed.
FIRST_ROUND = 1 / 4

# enough(lower [1+m+q], upper [1+m+q]): whether no more needs to be known of a policy's reward, margins and signals.
Enough: TypeAlias = Callable[[Floats, Floats], bool]

# read(outcomes) -> [n, q] signals of episodes, numbers in [0, 1]
Read: TypeAlias = Callable[[Outcomes], Floats]


class Judgement:
    """What a policy is worth on a task: exactly, or by the mean over more and more fresh episodes.

    `error` of its values holds for reward and all margins, and for all numbers of episodes at once, with probability
    1 - level.
    """

    def __init__(
        self, task: Task, policy: Policy, *, steps: int, most: int, level: float, rng: np.random.Generator
    ) -> None:
        self.exact = task.values(policy) if isinstance(task, ReadableTask) else None
        if self.exact is not None:
            return
        self._simulated, self._rng, self._left = task.episodes(policy, steps), rng, list(rounds(most))
        self._intervals = Intervals(task.units, steps, level / (2 * len(task.units.reachable)))
        self._state = self._intervals.start()
        self._sums, self._count = np.zeros(len(task.units.reachable)), 0
        self.refine()

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to be simulated."""
        return self.exact is not None or not self._left

    def refine(self) -> None:
        """As many episodes again as there were, within the most allowed."""
        outcomes = self._simulated.run(self._left.pop(0), self._rng)
        self._state = self._intervals.update(self._state, outcomes)
        self._sums += outcomes.reward.sum(), *outcomes.cost.sum(axis=0)
        self._count += len(outcomes)

    @property
    def values(self) -> Values:
        if self.exact is not None:
            return self.exact
        units = self._intervals.units
        reward, *cost = self._sums / self._count
        margin = units.budget - cost
        lower, upper = self._intervals.bounds(self._state)
        means = np.array([reward, *margin])
        return Values(float(reward), np.array(cost), margin, np.maximum(upper - means, means - lower))


def value_bounds(outcomes: Outcomes, units: Units, steps: int, level: float) -> tuple[Floats, Floats]:
    """Lower and upper [1+m]: the reward and the margins of the policy behind independent `outcomes`, all of them at
    once with probability 1 - level."""
    intervals = Intervals(units, steps, level / (2 * len(units.reachable)))
    return intervals.bounds(intervals.update(intervals.start(), outcomes))


def bounds_in_rounds(
    simulated: Episodes, intervals: Intervals, most: int, rng: np.random.Generator, enough: Enough | None
) -> tuple[Floats, Floats]:
    """Lower and upper [1+m+q] of the policy behind `simulated`, from `most` episodes or from as few as are enough.

    They are intersections over all rounds, and right with the probability of a single interval however `enough`
    decides. More rounds never lower `lower` nor raise `upper`; where an interval is wrong the two may pass each other.
    """
    state = intervals.start()
    lower, upper = intervals.bounds(state)
    for size in (most,) if enough is None else rounds(most):
        state = intervals.update(state, simulated.run(size, rng, transitions=intervals.read is not None))
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
    """Bounds on the reward and the margins of one policy, and on the means of q signals of its episodes, of which each
    single one, below or above, is right after every episode at once with probability 1 - error.

    The discounted sums are independent and bounded, which is all that betting asks for (docs/guarantees.md, section
    6); sums outside the declared ranges are refused. What episodes lack that were cut off after `steps` steps is added
    at its largest.

    Attributes:
        margins_only: bound the margins from below and nothing else.
        read: the signals of episodes; None if there are none.
        signals: q, how many there are.
    """

    units: Units
    steps: int
    error: float
    margins_only: bool = False
    read: Read | None = None
    signals: int = 0

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
        numbers = outcomes.cost if self.margins_only else outcomes.sums
        if self.read is not None:
            numbers = np.concatenate([numbers, self.read(outcomes)], axis=1)
        low, span = self._scale
        return self._sequence.update(state, np.clip((numbers - low) / span, 0.0, 1.0))

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        """Lower and upper [1+m+q] of the reward, the margins and the signals; infinite where not asked for."""
        low, span = self._scale
        least, most = self._sequence.interval(state)
        lower, upper = low + span * least, low + span * most
        tail = self.units.tail(self.steps)
        if self.margins_only:
            anything = np.full(len(low) + 1, np.inf)
            return np.concatenate([-anything[:1], self.units.budget - (upper + tail[1:, 1])]), anything
        sums = slice(0, len(tail))
        lower[sums], upper[sums] = lower[sums] + tail[:, 0], upper[sums] + tail[:, 1]
        cost_lower, cost_upper = lower[1 : len(tail)], upper[1 : len(tail)]
        return (
            np.concatenate([lower[:1], self.units.budget - cost_upper, lower[len(tail) :]]),
            np.concatenate([upper[:1], self.units.budget - cost_lower, upper[len(tail) :]]),
        )

    @cached_property
    def _sequence(self) -> Betting:
        return Betting(self.error, "upper") if self.margins_only else Betting(2 * self.error)

    @property
    def _scale(self) -> tuple[Floats, Floats]:
        """Offset and span that put sums into [0, 1]."""
        low, high = self._ends.T
        return low, np.where(high > low, high - low, 1.0)

    @property
    def _ends(self) -> Floats:
        if self.margins_only:
            return self.units.reachable[1:]
        return np.concatenate([self.units.reachable, np.tile([0.0, 1.0], (self.signals, 1))])

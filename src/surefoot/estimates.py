"""Bounds on the values of a policy from simulated episodes, by intervals that are proved.

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
from surefoot.cmdp.task import Episodes
from surefoot.cmdp.units import Units
from surefoot.confidence import Betting, State
from surefoot.errors import InvalidInput

# The first of several rounds has this share of the episodes: enough to see whether more are needed.
FIRST_ROUND = 1 / 4

SIMULATED = "the task's simulated sums must lie in the ranges that it declares"

# enough(lower [1+m], upper [1+m]): whether no more needs to be known of the reward and the margins of a policy.
Enough: TypeAlias = Callable[[Floats, Floats], bool]


def value_bounds(outcomes: Outcomes, units: Units, steps: int, level: float) -> tuple[Floats, Floats]:
    """Lower and upper [1+m]: the reward and the margins of the policy behind independent `outcomes`, all of them at
    once with probability 1 - level."""
    intervals = Intervals(units, steps, level / (2 * len(units.reachable)))
    return intervals.bounds(intervals.update(intervals.start(), outcomes))


def bounds_in_rounds(
    simulated: Episodes, intervals: Intervals, most: int, rng: np.random.Generator, enough: Enough
) -> tuple[Floats, Floats]:
    """Lower and upper [1+m] of the policy behind `simulated`, from `most` episodes or from as few as are enough.

    They are intersections over all rounds, and right with the probability of a single interval however `enough`
    decides. More rounds never lower `lower` nor raise `upper`; where an interval is wrong the two may pass each other.
    """
    state = intervals.start()
    lower, upper = intervals.bounds(state)
    for size in rounds(most):
        state = intervals.update(state, simulated.run(size, rng))
        least, greatest = intervals.bounds(state)
        lower, upper = np.maximum(lower, least), np.minimum(upper, greatest)
        if enough(lower, upper):
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


def check_ranges(outcomes: Outcomes, units: Units, rule: str = SIMULATED) -> None:
    """Refuse sums outside of what the task declares."""
    outside = first_breach(outcomes, units)
    if outside < len(outcomes):
        raise InvalidInput(
            f"{rule}, {units.reachable.tolist()}, "
            f"got reward {outcomes.reward[outside]:g} and cost {outcomes.cost[outside].tolist()} in episode {outside}"
        )


@dataclass(frozen=True)
class Intervals:
    """Bounds on the reward and the margins of one policy, of which each single one, below or above, is right after
    every episode at once with probability 1 - error.

    The discounted sums are independent and bounded, which is all that betting asks for (docs/guarantees.md, section
    6); sums outside the declared ranges are refused. What episodes lack that were cut off after `steps` steps is added
    at its largest.

    Attributes:
        margins_only: bound the margins from below and nothing else.
    """

    units: Units
    steps: int
    error: float
    margins_only: bool = False

    def start(self) -> State:
        return self._sequence.start((len(self.units.reachable) - self.margins_only,))

    def update(self, state: State, outcomes: Outcomes) -> State:
        check_ranges(outcomes, self.units)
        numbers = self.units.scaled(outcomes.sums)
        return self._sequence.update(state, numbers[:, 1:] if self.margins_only else numbers)

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        """Lower and upper [1+m] of the reward and the margins; infinite where not asked for."""
        least, most = self._sequence.interval(state)
        if not self.margins_only:
            return self.units.values_of_sums(least, most, self.steps)
        lower, _ = self.units.values_of_sums(np.append(0.0, least), np.append(1.0, most), self.steps)
        return np.append(-np.inf, lower[1:]), np.full(len(lower), np.inf)

    @cached_property
    def _sequence(self) -> Betting:
        return Betting(self.error, "upper") if self.margins_only else Betting(2 * self.error)

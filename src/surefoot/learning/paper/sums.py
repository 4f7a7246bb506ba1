"""Running sums of a phase, and what their means may be where some episodes have no outcome."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units


@dataclass(frozen=True, eq=False)
class Sums:
    """Reward [n] and costs [n, m] summed up to each of n episodes.

    Of the `count` [n] episodes, `abandoned` [n] have no outcome and add nothing to the sums.
    """

    count: Integers
    reward: Floats
    cost: Floats
    abandoned: Integers

    @classmethod
    def empty(cls, constraints: int) -> Sums:
        """[1] before the first episode."""
        none = np.zeros(1, dtype=np.int64)
        return cls(none, np.zeros(1), np.zeros((1, constraints)), none)

    def __len__(self) -> int:
        return len(self.count)

    def at(self, index: int) -> Sums:
        """[1] up to episode number `index` of these."""
        part = slice(index, index + 1)
        return Sums(self.count[part], self.reward[part], self.cost[part], self.abandoned[part])

    def after(self, outcomes: Outcomes) -> Sums:
        """From here [1] on, one episode after the other, so that blocks and single episodes round alike."""
        return Sums(
            self.count + np.arange(1, len(outcomes) + 1),
            np.cumsum(np.concatenate([self.reward, outcomes.reward]))[1:],
            np.cumsum(np.concatenate([self.cost, outcomes.cost]), axis=0)[1:],
            np.repeat(self.abandoned, len(outcomes)),
        )

    def after_abandoned(self) -> Sums:
        """[1] with an episode more that has no outcome."""
        return Sums(self.count + 1, self.reward, self.cost, self.abandoned + 1)

    def joined(self, others: Sums) -> Sums:
        """With the episodes of `others` [1] added to each."""
        return Sums(
            self.count + others.count,
            self.reward + others.reward,
            self.cost + others.cost,
            self.abandoned + others.abandoned,
        )

    def means(self, units: Units) -> Mean:
        """[n, 1+m] of the reward and the margins: each abandoned episode may have had any sums in their ranges."""
        seen, missing = np.column_stack([self.reward, self.cost]), self.abandoned[:, None]
        low, high = ((seen + missing * end) / self.count[:, None] for end in units.reachable.T)
        return Mean(
            np.column_stack([low[:, 0], units.budget - high[:, 1:]]),
            np.column_stack([high[:, 0], units.budget - low[:, 1:]]),
        )


@dataclass(frozen=True, eq=False)
class Mean:
    """Means [n, 1+m] known to lie between `low` and `high`; the two are equal if every episode has an outcome."""

    low: Floats
    high: Floats

    def certainly_differs(self, promised: Floats, radius: Floats) -> Mask:
        """[n] whether one of them is farther than `radius` [n, 1+m] from what was promised [1+m], wherever it lies."""
        nearest = np.maximum(np.maximum(self.low - promised, promised - self.high), 0.0)
        differs: Mask = np.any(nearest > radius, axis=1)
        return differs

    def certainly_agrees(self, promised: Floats, radius: Floats) -> Mask:
        """[n] whether all of them are within `radius` [n, 1+m] of what was promised [1+m], wherever they lie."""
        farthest = np.maximum(self.high - promised, promised - self.low)
        agrees: Mask = ~np.any(farthest > radius, axis=1)
        return agrees


def first(happens: Mask) -> int | None:
    """The first of n episodes at which something happens; None if it does not."""
    return int(np.argmax(happens)) if happens.any() else None

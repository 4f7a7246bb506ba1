"""What one episode, or a block of them, tells a learner. Two sums are enough; the rest is optional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units

Integers = NDArray[np.integer]


# A discounted sum may leave its range by rounding only.
RANGE_TOLERANCE = 1e-9


# What is told of an episode: its discounted sums, also its first state, also all its states and actions.
Observes: TypeAlias = Literal["sums", "first-state", "transitions"]
LEVELS: tuple[Observes, ...] = get_args(Observes)


def includes(observed: Observes, needed: Observes) -> bool:
    """Whether one level holds all that the other one does."""
    return LEVELS.index(observed) >= LEVELS.index(needed)


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished episode, in the user's units.

    Attributes:
        reward: Σ γ^t reward_t.
        cost: [m] Σ γ^t cost_t.
        states: [H+1] visited states, where they were observed.
        actions: [H] actions taken, where they were observed.
    """

    reward: float
    cost: Floats
    states: Integers | None = None
    actions: Integers | None = None


@dataclass(frozen=True, eq=False)
class Outcomes:
    """n finished episodes: reward [n], cost [n, m], and where observed states [n, H+1] and actions [n, H]."""

    reward: Floats
    cost: Floats
    states: Integers | None = None
    actions: Integers | None = None

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, part: slice | Integers) -> Outcomes:
        return Outcomes(
            self.reward[part],
            self.cost[part],
            None if self.states is None else self.states[part],
            None if self.actions is None else self.actions[part],
        )

    @classmethod
    def single(cls, outcome: Outcome) -> Outcomes:
        return cls(
            np.array([outcome.reward]),
            np.asarray(outcome.cost, dtype=np.float64)[None],
            None if outcome.states is None else np.asarray(outcome.states)[None],
            None if outcome.actions is None else np.asarray(outcome.actions)[None],
        )


def first_breach(outcomes: Outcomes, units: Units) -> int:
    """Index of the first outcome outside the declared ranges; n when there is none."""
    low, high = units.reachable.T  # a truncated episode lacks its tail, so 0 always counts as reachable
    ranges = np.stack([np.array(units.reward_value_range), *units.cost_value_range])
    slack = RANGE_TOLERANCE * np.ptp(ranges, axis=1)
    sums = np.column_stack([outcomes.reward, outcomes.cost])
    outside = ((sums < low - slack) | (sums > high + slack)).any(axis=1)
    return int(np.argmax(outside)) if outside.any() else len(outcomes)


def discounted_sum(values: Floats, discount: float) -> Floats:
    """Σ_{t≥0} γ^t values[t] along the first axis, from t = 0 on (the paper's sum starts at 1, erratum E3)."""
    total: Floats = np.tensordot(discount ** np.arange(len(values)), values, axes=(0, 0))
    return total


def add_in_order(start: Floats, rows: Floats) -> Floats:
    """start + rows[0] + rows[1] + …, in that order, so that blocks and single episodes round alike."""
    total: Floats = np.cumsum(np.concatenate([start[None], rows]), axis=0)[-1]
    return total

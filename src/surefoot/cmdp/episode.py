"""What one episode, or a block of them, tells a learner. Two sums are enough; the rest is optional."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput

Integers = NDArray[np.integer]


# What is told may leave its declared range by rounding only, relative to that very range; RESOLUTION is what float64
# leaves open about a sum, relative to its size.
RANGE_TOLERANCE, RESOLUTION = 1e-9, 1e-14


# What is told of an episode: its discounted sums; also its first state; or also the signals that a policy set has
# learned to read from it; or all its states, or observations, and actions, from which the rest follows; or, for those
# who learn networks, its observations and actions with the reward and costs of every step.
Observes: TypeAlias = Literal["sums", "first-state", "signals", "transitions", "steps"]
LEVELS: tuple[Observes, ...] = get_args(Observes)

_INCLUDED = MappingProxyType(
    {
        "sums": ("sums",),
        "first-state": ("sums", "first-state"),
        "signals": ("sums", "signals"),
        "transitions": ("sums", "first-state", "signals", "transitions"),
        "steps": ("sums", "signals", "steps"),
    }
)


def includes(observed: Observes, needed: Observes) -> bool:
    """Whether one level holds all that the other one does."""
    return needed in _INCLUDED[observed]


@dataclass(frozen=True, eq=False)
class Observed:
    """What n episodes showed step by step.

    Attributes:
        observations: [n, H+1, ...] before every step and after the last one; whole numbers [n, H+1] are states.
        actions: [n, H, ...] that were taken: as they were executed.
        steps: [n] how many each episode took; what its rows hold after them means nothing.
        paid: [n, H, 1+m] reward and costs of each step, undiscounted, where that was told: those who learn policies by
            gradients want to know.
        drawn: [n, H, ...] actions as the policy drew them, where others were taken, as in a box that it left; None
            where these are the same, or where that is unknown. Probabilities under a policy are those of what it drew.
    """

    observations: NDArray[Any]
    actions: NDArray[Any]
    steps: Integers
    paid: Floats | None = None
    drawn: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, part: slice | Integers) -> Observed:
        paid, drawn = (None if each is None else each[part] for each in (self.paid, self.drawn))
        return Observed(self.observations[part], self.actions[part], self.steps[part], paid, drawn)

    @property
    def as_drawn(self) -> NDArray[Any]:
        """[n, H, ...] actions as the policy drew them, as far as that is known."""
        return self.actions if self.drawn is None else self.drawn

    @classmethod
    def joined(cls, parts: Sequence[Observed]) -> Observed:
        """One after the other; rows are filled up with zeros to the length of the longest."""
        longest = max(part.actions.shape[1] for part in parts)
        paid = [_zero_pad(part.paid, longest) for part in parts if part.paid is not None]
        differ = any(part.drawn is not None for part in parts)
        return cls(
            np.concatenate([_zero_pad(part.observations, longest + 1) for part in parts]),
            np.concatenate([_zero_pad(part.actions, longest) for part in parts]),
            np.concatenate([part.steps for part in parts]),
            np.concatenate(paid) if len(paid) == len(parts) else None,
            np.concatenate([_zero_pad(part.as_drawn, longest) for part in parts]) if differ else None,
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished episode, in the user's units.

    Attributes:
        reward: Σ γ^t reward_t.
        cost: [m] Σ γ^t cost_t.
        states: [H+1] visited states, where they were observed.
        actions: [H] actions taken, where they were observed.
        observed: the same of a system without states, as one episode.
        signals: [q] of the policy set, where they were told instead of what they are made of.
    """

    reward: float
    cost: Floats
    states: Integers | None = None
    actions: Integers | None = None
    observed: Observed | None = None
    signals: Floats | None = None


@dataclass(frozen=True, eq=False)
class Outcomes:
    """n finished episodes: reward [n], cost [n, m], and where observed states [n, H+1] and actions [n, H]; or, of a
    system without states, what was observed; or signals [n, q]."""

    reward: Floats
    cost: Floats
    states: Integers | None = None
    actions: Integers | None = None
    observed: Observed | None = None
    signals: Floats | None = None

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def sums(self) -> Floats:
        """[n, 1+m] reward, then costs."""
        return np.concatenate([self.reward[:, None], self.cost], axis=1)

    def __getitem__(self, part: slice | Integers) -> Outcomes:
        others = (self.states, self.actions, self.observed, self.signals)
        return Outcomes(
            self.reward[part],
            self.cost[part],
            *(None if each is None else each[part] for each in others),  # type: ignore[arg-type]
        )

    def first(self, count: int) -> Outcomes:
        return self if count == len(self) else self[:count]

    @classmethod
    def single(cls, outcome: Outcome) -> Outcomes:
        return cls(
            np.array([outcome.reward]),
            np.asarray(outcome.cost, dtype=np.float64)[None],
            None if outcome.states is None else np.asarray(outcome.states)[None],
            None if outcome.actions is None else np.asarray(outcome.actions)[None],
            outcome.observed,
            None if outcome.signals is None else np.asarray(outcome.signals, dtype=np.float64)[None],
        )

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """One after the other; what one of them does not tell is told of none."""
        columns = {name: [getattr(part, name) for part in parts] for name in ("states", "actions", "signals")}
        observed = [part.observed for part in parts if part.observed is not None]
        return cls(
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.cost for part in parts]),
            observed=Observed.joined(observed) if len(observed) == len(parts) else None,
            **{n: None if any(c is None for c in column) else np.concatenate(column) for n, column in columns.items()},
        )

    def watched(self) -> Observed:
        """Step by step, states being observations too; refused where that was not told."""
        if self.observed is not None:
            return self.observed
        if self.states is None or self.actions is None:
            raise InvalidInput("outcomes must hold what was observed step by step (states and actions), got none")
        return Observed(self.states, self.actions, np.full(len(self), self.actions.shape[1]))


def first_breach(outcomes: Outcomes, units: Units) -> int:
    """Index of the first outcome outside the declared ranges; n when there is none."""
    low, high = units.reachable.T  # with 0, since an episode may end early, where nothing more is declared
    slack = RANGE_TOLERANCE * (high - low) + RESOLUTION * np.abs(units.reachable).max(axis=1)
    sums = np.column_stack([outcomes.reward, outcomes.cost])
    outside = ((sums < low - slack) | (sums > high + slack)).any(axis=1)
    return int(np.argmax(outside)) if outside.any() else len(outcomes)


def discounted_sum(values: Floats, discount: float) -> Floats:
    """Σ_{t≥0} γ^t values[t] along the first axis, from t = 0 on (the paper's sum starts at 1, erratum E3)."""
    total: Floats = np.tensordot(discount ** np.arange(len(values)), values, axes=(0, 0))
    return total


def add_in_order(start: Floats, rows: Floats) -> Floats:
    """start + rows[0] + rows[1] + …, in that order, so that blocks and single episodes round alike."""
    if len(rows) == 1:
        return np.asarray(start + rows[0])
    total: Floats = np.cumsum(np.concatenate([start[None], rows]), axis=0)[-1]
    return total


def drawn_unless_taken(drawn: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any] | None:
    """For `Observed.drawn`: None where actions are what was drawn, perhaps in a shorter type."""
    return None if np.array_equal(drawn.astype(actions.dtype), actions) else drawn


def _zero_pad(rows: NDArray[Any], length: int) -> NDArray[Any]:
    """[n, length, ...] with zeros behind."""
    missing = length - rows.shape[1]
    return np.pad(rows, [(0, 0), (0, missing), *[(0, 0)] * (rows.ndim - 2)]) if missing else rows

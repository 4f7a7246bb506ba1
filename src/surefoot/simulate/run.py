"""The record of a run: what each deployed policy is worth and regret and margin in every episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import AnyArray, Floats, Integers, Mask, make_readonly
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.learning.event import Event

# Columns of the rows of a run.
REWARD, MARGIN, REWARD_ERROR, MARGIN_ERROR, WEIGHT = range(5)
SHOWN = (  # of a run, in words
    *("method", "certified", "regret", "margin", "weight", "optimal_reward", "output"),
    *("events", "settings", "risk_split", "rounding", "reward", "error"),
)


@dataclass(frozen=True, eq=False)
class Spans:
    """A row of numbers per episode, stored once for each span of episodes in which it does not change.

    Attributes:
        begins: [s] number of episodes before each span, 0 first.
        rows: [s, ...] in each of its episodes.
        episodes: K, in all spans together.
    """

    begins: Integers
    rows: Floats
    episodes: int

    @classmethod
    def of(cls, begins: Sequence[int], rows: ArrayLike, episodes: int) -> Spans:
        """Rows [b, n] that hold from `begins` [b] on; neighbours that are equal become one span."""
        first, values = np.array(begins, dtype=np.int64), np.array(rows, dtype=np.float64)
        starts = (first < episodes) & np.append(True, (values[1:] != values[:-1]).any(axis=1))[: len(first)]
        return cls(make_readonly(first[starts]), make_readonly(values[starts]), episodes)

    @property
    def lengths(self) -> Integers:
        """[s] episodes of each span."""
        return np.diff(self.begins, append=self.episodes)

    def at(self, episodes: Integers) -> Floats:
        """[n, ...] in episodes [n], counted from 0."""
        found: Floats = self.rows[np.searchsorted(self.begins, episodes, side="right") - 1]
        return found

    def by_episode(self, rows: AnyArray) -> AnyArray:
        """[K, ...] from rows [s, ...], read-only."""
        repeated: AnyArray = np.repeat(rows, self.lengths, axis=0)  # type: ignore[assignment]
        return make_readonly(repeated)


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One learner on one task for K episodes, in the user's units. Values are exact unless `exact` says otherwise.

    Attributes:
        spans: rows [s, 5] of what was deployed: reward, smallest margin (budget - cost) over the constraints, by how
            much either may be off, and weight, the probability with which the mixture leaves the safe policy.
        output: the mixture of everything deployed, the paper's π_out.
        risk_split: how the risk was spent, see `Learner.risk_split`.
        rounding: by how much an exactly computed margin may miss 0 and count as 0.
        exact: whether rewards and margins are exact; otherwise they are estimates with an `error`.
    """

    method: str
    certified: bool
    spans: Spans
    optimal_reward: float
    output: EpisodeMixture
    events: tuple[Event, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    risk_split: Mapping[str, float] = field(default_factory=dict)
    rounding: float = 1e-9
    exact: bool = True

    # ------------------------------------------------------------------------------------------------ in every episode

    @cached_property
    def regret(self) -> Floats:
        """[K] cumulative Σ |V* - V(π_k)|. For feasible policies this is the paper's Σ [V* - V(π_k)]₊. A policy that
        breaks a budget can beat V*; counting that as no regret would flatter it, so the excess counts too, as in the
        paper's figure. NaN where nobody knows V*."""
        return make_readonly(self._regret())

    @cached_property
    def margin(self) -> Floats:
        """[K] smallest margin (budget - cost) over the constraints, of the policy deployed in each episode."""
        return self.spans.by_episode(self._column(MARGIN))

    @cached_property
    def weight(self) -> Floats:
        """[K] probability with which the deployed mixture leaves the safe policy."""
        return self.spans.by_episode(self._column(WEIGHT))

    @cached_property
    def reward(self) -> Floats:
        """[K] value of the policy deployed in each episode."""
        return self.spans.by_episode(self._column(REWARD))

    @cached_property
    def error(self) -> Floats | None:
        """[K, 2] by how much its reward and its margin may be off, in both directions; None where both are exact."""
        return None if self.exact else self.spans.by_episode(self.spans.rows[:, REWARD_ERROR : MARGIN_ERROR + 1])

    @property
    def margin_bounds(self) -> tuple[Floats, Floats]:
        """[K] each: between which values the margin lies; both are the margin itself where that is exact."""
        low, high = (self.spans.by_episode(bound) for bound in self._margin_bounds)
        return low, high

    @property
    def unsafe(self) -> Mask:
        """[K] whether the policy deployed in each episode exceeds a budget, whatever its margin is within its error."""
        return self.spans.by_episode(self._unsafe)

    @property
    def undecided(self) -> Mask:
        """[K] whether that cannot be told, since the interval of the margin holds 0 inside; never where it is exact."""
        return self.spans.by_episode(self._undecided)

    # --------------------------------------------------------------------------- of the whole run, however long that is

    @property
    def episodes(self) -> int:
        return self.spans.episodes

    @property
    def regret_known(self) -> bool:
        return not math.isnan(self.optimal_reward)

    @property
    def total_regret(self) -> float:
        return float(self._regret()[-1])

    @property
    def mean_reward(self) -> float:
        """Per episode; it may be off by `mean_reward_error`."""
        return self._mean(REWARD)

    @property
    def mean_reward_error(self) -> float:
        return self._mean(REWARD_ERROR)

    @property
    def min_margin(self) -> float:
        return float(self._column(MARGIN).min())

    @property
    def min_margin_bounds(self) -> tuple[float, float]:
        """Between which values the smallest margin lies."""
        low, high = self._margin_bounds
        return float(low.min()), float(high.min())

    @property
    def moved(self) -> bool:
        """Whether anything but the safe policy was ever deployed."""
        return bool((self._column(WEIGHT) > 0).any())

    @property
    def unsafe_episodes(self) -> int:
        return int(self.spans.lengths[self._unsafe].sum())

    @property
    def undecided_episodes(self) -> int:
        return int(self.spans.lengths[self._undecided].sum())

    def __repr__(self) -> str:
        return f"Run({', '.join(f'{name}={getattr(self, name)!r}' for name in SHOWN)})"

    # --------------------------------------------------------------------------------------------------------- in parts

    def _column(self, number: int) -> Floats:
        """[s]"""
        return self.spans.rows[:, number]

    @property
    def _margin_bounds(self) -> tuple[Floats, Floats]:
        """[s] each."""
        margin, error = self._column(MARGIN), self._column(MARGIN_ERROR)
        return (margin, margin) if self.exact else (margin - error, margin + error)

    @property
    def _unsafe(self) -> Mask:
        """[s]"""
        return self._margin_bounds[1] < -self.rounding

    @property
    def _undecided(self) -> Mask:
        """[s]"""
        return (self._margin_bounds[0] < -self.rounding) & ~self._unsafe

    def _regret(self) -> Floats:
        """[K] added up episode by episode."""
        return np.cumsum(np.abs(self.optimal_reward - self.spans.by_episode(self._column(REWARD))))

    def _mean(self, column: int) -> float:
        return float(self.spans.by_episode(self._column(column)).mean())

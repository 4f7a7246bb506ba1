"""What a run leaves behind: regret and margin of every deployed policy, and the events on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.learning.event import Event


@dataclass(frozen=True, eq=False)
class Run:
    """One learner on one task for K episodes, in the user's units. Values are exact unless `error` says otherwise.

    Attributes:
        regret: [K] cumulative Σ |V* - V(π_k)|. For feasible policies this is the paper's Σ [V* - V(π_k)]₊. A policy
            that breaks a budget can beat V*; counting that as no regret would flatter it, so the excess counts too,
            as in the paper's figure. NaN where nobody knows V*.
        margin: [K] smallest margin (budget - cost) over the constraints, of the policy deployed in each episode.
        weight: [K] probability with which the deployed mixture leaves the safe policy.
        output: the mixture of everything deployed, the paper's π_out.
        risk_split: how the risk was spent, see `Learner.risk_split`.
        rounding: by how much an exactly computed margin may miss 0 and count as 0.
        reward: [K] value of the policy deployed in each episode.
        error: [K, 2] by how much its reward and its margin may be off, in both directions; None where both are exact.
    """

    method: str
    certified: bool
    regret: Floats
    margin: Floats
    weight: Floats
    optimal_reward: float
    output: EpisodeMixture
    events: tuple[Event, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    risk_split: Mapping[str, float] = field(default_factory=dict)
    rounding: float = 1e-9
    reward: Floats | None = None
    error: Floats | None = None

    @property
    def episodes(self) -> int:
        return len(self.regret)

    @property
    def exact(self) -> bool:
        return self.error is None

    @property
    def regret_known(self) -> bool:
        return not math.isnan(self.optimal_reward)

    @property
    def margin_bounds(self) -> tuple[Floats, Floats]:
        """[K] each: between which values the margin lies; both are the margin itself where that is exact."""
        if self.error is None:
            return self.margin, self.margin
        return self.margin - self.error[:, 1], self.margin + self.error[:, 1]

    @property
    def unsafe(self) -> Mask:
        """[K] whether the policy deployed in each episode exceeds a budget, whatever its margin is within its error."""
        return self.margin_bounds[1] < -self.rounding

    @property
    def undecided(self) -> Mask:
        """[K] whether that cannot be told, since the interval of the margin holds 0 inside; never where it is exact."""
        return (self.margin_bounds[0] < -self.rounding) & ~self.unsafe

    @property
    def unsafe_episodes(self) -> int:
        return int(np.count_nonzero(self.unsafe))

    @property
    def undecided_episodes(self) -> int:
        return int(np.count_nonzero(self.undecided))

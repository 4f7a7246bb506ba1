"""What a run leaves behind: exact regret and margin of every deployed policy, and the events on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.cmdp.model import Floats
from surefoot.cmdp.policy import EpisodeMixture


@dataclass(frozen=True)
class Event:
    """Something a reader of the record should know: a decision, an elimination, an alarm.

    Attributes:
        episode: number of episodes told before it happened.
        kind: "eliminated", "weight", "exhausted", "alarm", ...
        message: one sentence.
        data: the numbers behind it, plain JSON values.
    """

    episode: int
    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Run:
    """One learner on one task for K episodes. Values are exact, in the user's units.

    Attributes:
        regret: [K] cumulative Σ |V* - V(π_k)|. For feasible policies this is the paper's Σ [V* - V(π_k)]₊. A policy
            that breaks a budget can beat V*; counting that as no regret would flatter it, so the excess counts too,
            as in the paper's figure.
        margin: [K] smallest margin (budget - cost) over the constraints, of the policy deployed in each episode.
        weight: [K] probability with which the deployed mixture leaves the safe policy.
        output: the mixture of everything deployed, the paper's π_out.
        risk_split: how the risk was spent, see `Learner.risk_split`.
        rounding: by how much an exactly computed margin may miss 0 and count as 0.
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

    @property
    def episodes(self) -> int:
        return len(self.regret)

    @property
    def unsafe(self) -> NDArray[np.bool_]:
        """[K] whether the policy deployed in each episode exceeds a budget by more than rounding."""
        return self.margin < -self.rounding

    @property
    def unsafe_episodes(self) -> int:
        return int(np.count_nonzero(self.unsafe))

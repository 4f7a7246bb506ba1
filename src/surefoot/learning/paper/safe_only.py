"""Never adapt: the safe policy for ever. The line every other method has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.learning.method import SAFE_ONLY, Account, Deployed, Step
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class SafeOnly:
    """Attributes:
    failing: bound on the probability that the safe policy is infeasible on the task; None where nothing is known.
    """

    policies: PolicyValueSet
    risk: float = 0.0
    failing: float | None = None
    name: ClassVar[str] = "safe-only"
    needs_transitions: ClassVar[bool] = False
    needs_first_state: ClassVar[bool] = False

    @property
    def certified(self) -> bool:
        return self.failing is not None and self.failing <= self.risk

    @property
    def risk_split(self) -> Mapping[str, float]:
        return {} if self.failing is None else {"coverage": self.failing, "elimination": 0.0, "values": 0.0}

    @property
    def units(self) -> Units:
        return self.policies.units

    def start(self) -> None:
        return None

    def deployed(self, state: None) -> Deployed:
        return SAFE_ONLY

    def policy(self, state: None, index: int) -> Policy:
        return self.policies.policies[index]

    def absorb(self, state: None, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return Step(None, len(outcomes))

    def abandon(self, state: None, episode: int, drawn: int) -> Step:
        return Step(None, 1)

    def account(self, state: None) -> Account:
        """The least margin that training found for the safe policy."""
        return Account(0, 0, np.min([entry.safe_margin for entry in self.policies.entries], axis=0))

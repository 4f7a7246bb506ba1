"""Never adapt: the safe policy for ever. The line every other method has to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from surefoot.arrays import Integers, flag
from surefoot.cmdp.episode import Outcomes
from surefoot.learning.method import SAFE_MIXTURE, Certificate, Method, Mixture, RiskSplit, Step
from surefoot.learning.spec import MethodArgs, MethodSpec, PlanLine
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class SafeOnly(Method):
    """Attributes:
    failing: bound on the probability that the safe policy is infeasible on the task; None where nothing is known.
    """

    policies: PolicyValueSet
    risk: float = 0.0
    failing: float | None = None
    name: ClassVar[str] = "safe-only"

    @property
    def certified(self) -> bool:
        return self.failing is not None and self.failing <= self.risk

    @property
    def risk_split(self) -> RiskSplit | None:
        return None if self.failing is None else RiskSplit(coverage=self.failing)

    def start(self) -> None:
        return None

    def mixture(self, state: None) -> Mixture:
        return SAFE_MIXTURE

    def update(self, state: None, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return Step(None, len(outcomes))

    def abandon(self, state: None, episode: int, drawn: int) -> Step:
        return Step(None, 1)

    def certificate(self, state: None) -> Certificate:
        """The least margin of the safe policy over the cover; without one over the cells, or nothing."""
        if self.policies.epsilon is not None:
            return Certificate(0, 0, np.min([entry.safe_margin for entry in self.policies.entries], axis=0))
        cells = self.policies.cells
        return Certificate(0, 0, None if cells is None else cells.lower[:, 0, 1:].min(axis=0))


def _safe_only(policies: PolicyValueSet, terms: MethodArgs, assume_safe: bool = False) -> SafeOnly:
    return SafeOnly(policies, terms.risk, 0.0 if flag("assume_safe", assume_safe) else policies.safe_risk)


def _plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    failing = policies.safe_risk
    known = "no bound is known" if failing is None else f"at most {failing:.2g}"
    reason = f"never leaves the safe policy; the probability that this breaks a budget on a fresh task: {known}"
    return PlanLine(terms.name, _safe_only(policies, terms).certified, math.inf, reason)


SPECS = (
    MethodSpec(
        "safe-only",
        _safe_only,
        certified=True,
        why="safe wherever the safe policy is, which training bounds; nothing is claimed where it could not",
        proof=("section 2.5",),
        costs="nothing: it never adapts",
        options=("assume_safe",),
        plan=_plan,
    ),
)

"""Policy collection-elimination (the paper's Algorithm 4, after Ye et al. 2023): candidates deployed outright.

It is Algorithm 2 with weight 1 from the start, so it explores without regard to the constraint. UNCERTIFIED for safety
with either set of constants; it bounds regret only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.learning.paper.algorithm_2 import SafeCandidates, Trial
from surefoot.learning.paper.constants import PaperRules, paper_rules
from surefoot.learning.paper.sums import Sums
from surefoot.learning.spec import MethodSpec, PlanLine, Terms
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


class Outright:
    """What both sets of constants share: a candidate has weight 1 until it is eliminated."""

    certified: ClassVar[bool] = False
    last_count: ClassVar[float] = math.inf

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        return math.inf

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        return weight

    def first_weight(self) -> float:
        return 1.0


@dataclass(frozen=True, eq=False)
class EliminationRules(Outright):
    """Algorithm 4 with the paper's radii."""

    paper: PaperRules
    name: ClassVar[str] = "pce-theory"
    least_count: ClassVar[int] = 1

    def reward_radius(self, count: Integers) -> Floats:
        return self.paper.reward_radius(count)

    def margin_radius(self, count: Integers) -> Floats:
        return self.paper.margin_radius(count)


@dataclass(frozen=True, eq=False)
class PublishedEliminationRules(Outright):
    """Algorithm 4 with the constants behind the paper's figure, in the gridworld's own units."""

    policies: PolicyValueSet
    name: ClassVar[str] = "pce"
    least_count: ClassVar[int] = 100
    epsilon: ClassVar[float] = 0.1

    def reward_radius(self, count: Integers) -> Floats:
        return np.sqrt(3000 / count) + 8 * self.epsilon

    def margin_radius(self, count: Integers) -> Floats:
        return (np.sqrt(600 / count) + self.epsilon)[:, None]


def _pce(policies: PolicyValueSet, terms: Terms) -> SafeCandidates:
    return SafeCandidates(policies, PublishedEliminationRules(policies))


def _pce_theory(policies: PolicyValueSet, terms: Terms) -> SafeCandidates:
    return SafeCandidates(policies, EliminationRules(paper_rules(policies, terms, terms.risk)))


def _plan(policies: PolicyValueSet, terms: Terms) -> PlanLine:
    reason = "deploys candidates outright from the first episode; does not keep the constraint"
    return PlanLine(terms.name, False, 0, reason)


SPECS = (
    MethodSpec(
        "pce",
        _pce,
        certified=False,
        why="explores without regard to the constraint, with constants tuned to the paper's gridworld",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(Trial, Sums),
        needs_cover=True,
        plan=_plan,
        takes_risk=False,
        colour=3,
    ),
    MethodSpec(
        "pce-theory",
        _pce_theory,
        certified=False,
        why="explores without regard to the constraint; it bounds regret only",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(Trial, Sums),
        needs_cover=True,
        needs_episodes=True,
        colour=18,
    ),
)

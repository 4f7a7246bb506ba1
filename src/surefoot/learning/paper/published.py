"""Algorithm 2 as its authors ran it for the paper's Figures 2 and 4. UNCERTIFIED: no proof is known for it.

Besides constants of their own, their code for the gridworld tests every candidate but the first, while it has no weight
yet, on all episodes of the safe policy so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers
from surefoot.learning.paper.algorithm_2 import SafeCandidates, Trial, radii
from surefoot.learning.paper.sums import Sums
from surefoot.learning.spec import MethodSpec, PlanLine, Terms
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


@dataclass(frozen=True, eq=False)
class PublishedRules:
    """The constants, tuned by the authors to their gridworld.

    They are numbers in that task's own units (budget 1.5, costs of 10, reward sums up to 100).
    """

    policies: PolicyValueSet
    name: ClassVar[str] = "published"
    certified: ClassVar[bool] = False
    least_count: ClassVar[int] = 1000
    epsilon: ClassVar[float] = 0.01
    last_count: ClassVar[float] = math.inf

    def reward_radius(self, count: Integers) -> Floats:
        return np.sqrt(4000 / count) + 8 * self.epsilon

    def margin_radius(self, count: Integers) -> Floats:
        return (np.sqrt(300 / count) + self.epsilon)[:, None]

    def pooled_margin_radius(self, count: Integers) -> Floats:
        return (np.sqrt(150 / count) + self.epsilon)[:, None]

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        if step > math.log(self.epsilon, 2 / 3):
            return math.inf
        margin = float(np.min(theory.mixture_value(entry.margin, entry.safe_margin, weight)))
        # The authors compare k - k₀ - 1, two less than the number of episodes in the phase.
        return float(np.clip(100 / max(margin, 1e-12) ** 2, 1000, 5200)) + 2

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        margin = float(entry.safe_margin.min())
        if step == 0:
            gain = max(0.0, margin - 2 * self.epsilon)
            return gain / (gain + 2)
        return min(1.0, 3 * margin * weight / ((2 + weight) * margin + 3 * self.epsilon))

    def first_weight(self) -> float:
        return 0.0


class LocomotionRules:
    """The constants for robots, tuned by the authors to Hopper.

    They are numbers in that task's own units: rewards of an episode between 100 and 200, budget 5.
    """

    name: ClassVar[str] = "published-locomotion"
    certified: ClassVar[bool] = False
    least_count: ClassVar[int] = 301
    epsilon: ClassVar[float] = 0.1
    last_count: ClassVar[float] = math.inf
    phase: ClassVar[int] = 350
    most_steps: ClassVar[int] = 15

    def reward_radius(self, count: Integers) -> Floats:
        return np.sqrt(60_000 / count) + 280 * self.epsilon

    def margin_radius(self, count: Integers) -> Floats:
        return (np.sqrt(600 / count) + 10 * self.epsilon)[:, None]

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        return self.phase if step < self.most_steps else math.inf

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        if step == 0:
            margin = max(0.0, float(entry.safe_margin.min()))
            return margin / (margin + 2)
        return 3 * weight / (2 + weight)

    def first_weight(self) -> float:
        return 0.0


@dataclass(frozen=True, eq=False)
class PooledTrial(Trial):
    """`pool` [1] sums over earlier phases of the safe policy; empty while the first candidate is on trial."""

    pool: Sums


@dataclass(frozen=True, eq=False)
class PooledCandidates(SafeCandidates):
    """Algorithm 2 with the authors' pool."""

    rules: PublishedRules

    def start(self) -> Any:
        trial = super().start()
        return PooledTrial(trial.alive, trial.weight, trial.step, trial.sums, pool=trial.sums)

    def _evidence(self, state: Any, seen: Sums) -> tuple[Sums, Floats]:
        if state.step or not state.pool.count[0]:
            return super()._evidence(state, seen)
        pooled = seen.joined(state.pool)
        margin = self.rules.pooled_margin_radius(pooled.count)
        return pooled, radii(self.rules.reward_radius(pooled.count), margin, self.units)

    def _next_phase(self, state: Any) -> Any:
        following = super()._next_phase(state)
        return following if state.step else replace(following, pool=state.sums.joined(state.pool))


def _published(policies: PolicyValueSet, terms: Terms) -> PooledCandidates:
    return PooledCandidates(policies, PublishedRules(policies))


def _published_locomotion(policies: PolicyValueSet, terms: Terms) -> SafeCandidates:
    return SafeCandidates(policies, LocomotionRules())


def _plan(policies: PolicyValueSet, terms: Terms) -> PlanLine:
    first = max(policies.entries, key=lambda entry: entry.reward)
    length = PublishedRules(policies).phase_length(first, 0, 0.0)
    return PlanLine(terms.name, False, math.ceil(length), "constants tuned to the gridworld's units; no proof")


def _locomotion_plan(policies: PolicyValueSet, terms: Terms) -> PlanLine:
    return PlanLine(terms.name, False, LocomotionRules.phase, "constants tuned to Hopper's units; no proof")


SPECS = (
    MethodSpec(
        "published",
        _published,
        certified=False,
        why="the constants behind the paper's figure, tuned to its gridworld: no proof",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(PooledTrial, Sums),
        needs_cover=True,
        takes_risk=False,
        plan=_plan,
        colour=1,
    ),
)

# For the experiment on robots: its numbers mean nothing elsewhere, so it is not among the methods for every task.
ON_ROBOTS = MethodSpec(
    LocomotionRules.name,
    _published_locomotion,
    certified=False,
    why="the constants behind the paper's figure on robots, tuned to Hopper: no proof",
    state=(Trial, Sums),
    needs_cover=True,
    plan=_locomotion_plan,
)

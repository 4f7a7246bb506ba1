"""Variants of Algorithm 2 without a proof of safety, *uncertified* all of them.

`published` is Algorithm 2 as its authors ran it for the paper's Figures 2 and 4. Besides constants of their own, their
code for the gridworld tests every candidate but the first, while it has no weight yet, on all episodes of the safe
policy so far. `pce` and `pce-theory` are policy collection-elimination (Algorithm 4, after Ye et al. 2023): Algorithm 2
with weight 1 from the start, which explores without regard to the constraint and bounds regret only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers, number
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Setting
from surefoot.learning.paper.algorithm_2 import Algorithm2State, SafeCandidates, Sums, radii
from surefoot.learning.paper.constants import PaperRules, paper_rules
from surefoot.learning.spec import MethodArgs, MethodSpec, PlanLine
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet

# -------------------------------------------------------------------------------------------------------- the constants


def _never(entry: Entry, step: int, weight: float) -> float:
    return math.inf


def _same_weight(entry: Entry, step: int, weight: float) -> float:
    return weight


@dataclass(frozen=True)
class TunedRules:
    """Constants of Algorithm 2 (see `Rules`) that somebody tuned to a task, in its own units. By default candidates are
    deployed outright: they have weight 1 until they are eliminated."""

    name: str
    least_count: int
    reward_radius: Callable[[Integers], Floats]
    margin_radius: Callable[[Integers], Floats]
    first_weight: float = 1.0
    phase_length: Callable[[Entry, int, float], float] = _never
    next_weight: Callable[[Entry, int, float], float] = _same_weight
    certified: ClassVar[bool] = False
    last_count: ClassVar[float] = math.inf


def radius(count: Integers, numerator: float, slack: float) -> Floats:
    """[n] √(numerator/n) + slack."""
    found: Floats = np.sqrt(numerator / count) + slack
    return found


# By the authors for their gridworld: budget 1.5, costs of 10, reward sums up to 100.
GRIDWORLD_EPSILON = 0.01
POOLED_MARGIN_RADIUS = partial(radius, numerator=150, slack=GRIDWORLD_EPSILON)


def _gridworld_phase_length(entry: Entry, step: int, weight: float) -> float:
    if step > math.log(GRIDWORLD_EPSILON, 2 / 3):
        return math.inf
    margin = float(np.min(theory.mixture_value(entry.margin, entry.safe_margin, weight)))
    # The authors compare k - k₀ - 1, two less than the number of episodes in the phase.
    return float(np.clip(100 / max(margin, 1e-12) ** 2, 1000, 5200)) + 2


def _gridworld_weight(entry: Entry, step: int, weight: float) -> float:
    margin = float(entry.safe_margin.min())
    if step == 0:
        gain = max(0.0, margin - 2 * GRIDWORLD_EPSILON)
        return gain / (gain + 2)
    return min(1.0, 3 * margin * weight / ((2 + weight) * margin + 3 * GRIDWORLD_EPSILON))


PUBLISHED = TunedRules(
    "published",
    least_count=1000,
    reward_radius=partial(radius, numerator=4000, slack=8 * GRIDWORLD_EPSILON),
    margin_radius=partial(radius, numerator=300, slack=GRIDWORLD_EPSILON),
    first_weight=0.0,
    phase_length=_gridworld_phase_length,
    next_weight=_gridworld_weight,
)
PUBLISHED_ELIMINATION = TunedRules(
    "pce",
    least_count=100,
    reward_radius=partial(radius, numerator=3000, slack=8 * 0.1),
    margin_radius=partial(radius, numerator=600, slack=0.1),
)

# By the authors for Hopper: rewards of an episode between 100 and 200, budget 5.
HOPPER_PHASE, HOPPER_STEPS = 350, 15


def _hopper_phase_length(entry: Entry, step: int, weight: float) -> float:
    return HOPPER_PHASE if step < HOPPER_STEPS else math.inf


def _hopper_weight(entry: Entry, step: int, weight: float) -> float:
    if step == 0:
        margin = max(0.0, float(entry.safe_margin.min()))
        return margin / (margin + 2)
    return 3 * weight / (2 + weight)


HOPPER = TunedRules(
    "published-locomotion",
    least_count=301,
    reward_radius=partial(radius, numerator=60_000, slack=280 * 0.1),
    margin_radius=partial(radius, numerator=600, slack=10 * 0.1),
    first_weight=0.0,
    phase_length=_hopper_phase_length,
    next_weight=_hopper_weight,
)


@dataclass(frozen=True, eq=False)
class EliminationRules(PaperRules):
    """Algorithm 4 with the paper's radii."""

    name: ClassVar[str] = "pce-theory"
    certified: ClassVar[bool] = False
    first_weight: ClassVar[float] = 1.0

    @property
    def last_count(self) -> float:
        return math.inf

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        return math.inf

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        return weight


# ---------------------------------------------------------------------------------------------------- the authors' pool


@dataclass(frozen=True, eq=False)
class PooledState(Algorithm2State):
    """`pool` [1] sums over earlier phases of the safe policy; empty while the first candidate is on trial."""

    pool: Sums


@dataclass(frozen=True, eq=False)
class PooledCandidates(SafeCandidates):
    """Algorithm 2 with the authors' pool."""

    rules: TunedRules = PUBLISHED
    factor: float = 1.0

    def start(self) -> Any:
        trial = super().start()
        return PooledState(trial.alive, trial.weight, trial.step, trial.sums, pool=trial.sums)

    def _evidence(self, state: Any, seen: Sums) -> tuple[Sums, Floats]:
        if state.step or not state.pool.count[0]:
            return super()._evidence(state, seen)
        pooled = seen.joined(state.pool)
        margin = self.factor * POOLED_MARGIN_RADIUS(pooled.count)
        return pooled, radii(self.rules.reward_radius(pooled.count), margin, self.units)

    def _next_phase(self, state: Any) -> Any:
        following = super()._next_phase(state)
        return following if state.step else replace(following, pool=state.sums.joined(state.pool))


# ------------------------------------------------------------------------------------------------------------- by name


def _published(policies: PolicyValueSet, terms: MethodArgs, radius: float = 1.0) -> PooledCandidates:
    """`radius`: by which all radii are multiplied; candidates are given up the sooner the smaller it is."""
    if number("radius", radius) <= 0:
        raise InvalidInput(f"radius must be positive, got {radius!r}")
    return PooledCandidates(policies, _scale_radii(PUBLISHED, radius), factor=radius)


def _scale_radii(rules: TunedRules, factor: float) -> TunedRules:
    def scale(radius: Callable[[Integers], Floats]) -> Callable[[Integers], Floats]:
        return radius if factor == 1 else lambda count: factor * radius(count)

    return replace(rules, reward_radius=scale(rules.reward_radius), margin_radius=scale(rules.margin_radius))


RADII = (0.4, 0.6, 0.7, 0.8, 0.9, 1.0)


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    """Larger radii, with which wrong candidates are kept for longer."""
    return tuple({"radius": radius} for radius in RADII)


def _published_locomotion(policies: PolicyValueSet, terms: MethodArgs) -> SafeCandidates:
    return SafeCandidates(policies, HOPPER)


def _pce(policies: PolicyValueSet, terms: MethodArgs) -> SafeCandidates:
    return SafeCandidates(policies, PUBLISHED_ELIMINATION)


def _pce_theory(policies: PolicyValueSet, terms: MethodArgs) -> SafeCandidates:
    return SafeCandidates(policies, paper_rules(policies, terms, terms.risk, EliminationRules))


def _plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    first = max(policies.entries, key=lambda entry: entry.reward)
    length = PUBLISHED.phase_length(first, 0, 0.0)
    return PlanLine(terms.name, False, math.ceil(length), "constants tuned to the gridworld's units; no proof")


def _locomotion_plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    return PlanLine(terms.name, False, HOPPER_PHASE, "constants tuned to Hopper's units; no proof")


def _elimination_plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    reason = "deploys candidates outright from the first episode; does not keep the constraint"
    return PlanLine(terms.name, False, 0, reason)


SPECS = (
    MethodSpec(
        "published",
        _published,
        certified=False,
        why="the constants behind the paper's figure, tuned to its gridworld: no proof",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(PooledState, Sums),
        needs_cover=True,
        takes_risk=False,
        plan=_plan,
        options=("radius",),
        path=path_to_boldness,
        colour=1,
    ),
    MethodSpec(
        "pce",
        _pce,
        certified=False,
        why="explores without regard to the constraint, with constants tuned to the paper's gridworld",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(Algorithm2State, Sums),
        needs_cover=True,
        plan=_elimination_plan,
        takes_risk=False,
        colour=3,
    ),
    MethodSpec(
        "pce-theory",
        _pce_theory,
        certified=False,
        why="explores without regard to the constraint; it bounds regret only",
        costs="sums of the candidate under test; candidates come one after the other, so their number counts",
        state=(Algorithm2State, Sums),
        needs_cover=True,
        needs_episodes=True,
        colour=18,
    ),
)

# For the experiment on robots: its numbers mean nothing elsewhere, so it is not among the methods for every task.
ON_ROBOTS = MethodSpec(
    HOPPER.name,
    _published_locomotion,
    certified=False,
    why="the constants behind the paper's figure on robots, tuned to Hopper: no proof",
    state=(Algorithm2State, Sums),
    needs_cover=True,
    plan=_locomotion_plan,
)

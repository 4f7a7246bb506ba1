"""The constants of Algorithm 2: the paper's, with their proof mended; and when they let it leave the safe policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.learning.spec import MethodArgs, PlanLine
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


class Rules(Protocol):
    """The constants of Algorithm 2, in the user's units."""

    @property
    def name(self) -> str: ...

    @property
    def certified(self) -> bool: ...

    @property
    def least_count(self) -> int:
        """Episodes of a phase before its first test."""
        ...

    @property
    def last_count(self) -> float:
        """Episodes of a phase up to which its tests are proved."""
        ...

    @property
    def first_weight(self) -> float:
        """Weight of a candidate that has not been tested yet."""
        ...

    def reward_radius(self, count: Integers, /) -> Floats:
        """[n] allowed distance of the mean reward after `count` [n] episodes from its prediction."""
        ...

    def margin_radius(self, count: Integers, /) -> Floats:
        """[n, m] the same for the margins, or [n] for all of them."""
        ...

    def phase_length(self, entry: Entry, step: int, weight: float, /) -> float:
        """Episodes after which a candidate that still stands is given more weight; infinite after the last step."""
        ...

    def next_weight(self, entry: Entry, step: int, weight: float, /) -> float: ...


@dataclass(frozen=True, eq=False)
class PaperRules:
    """The paper's constants with errata E1-E4, E13 mended and the true ranges of reward and cost.

    With several constraints the smallest margin rules: each formula is monotone in it, so every constraint is served.
    """

    policies: PolicyValueSet
    episodes: int
    delta: float
    name: ClassVar[str] = "paper"
    certified: ClassVar[bool] = True
    least_count: ClassVar[int] = 1
    first_weight: ClassVar[float] = 0.0

    @property
    def last_count(self) -> float:
        return self.episodes

    @property
    def _discount(self) -> float:
        return self.policies.units.effective_discount

    @cached_property
    def log_term(self) -> float:
        """ln(2(1+m)KΦ/δ), union over all phases that can occur (E4)."""
        phases = sum(self.steps(entry) + 1 for entry in self.policies.entries)
        return theory.log_term(self.episodes, phases, self.delta, 1 + len(self.policies.units.budget))

    def safe_margin(self, entry: Entry) -> float:
        return float(self.policies.units.unit_margin(entry.safe_margin).min())

    def steps(self, entry: Entry) -> int:
        """How often the weight may be raised: none where the precondition on ε fails (E13)."""
        margin = self.safe_margin(entry)
        usable = margin > 0 and self._first_step(entry) > 0 and float(self._unit_margin(entry).min()) >= -self._epsilon
        return theory.weight_steps(margin, self._epsilon, self._discount) if usable else 0

    def reward_radius(self, count: Integers) -> Floats:
        units, slack = self.policies.units, theory.elimination_slack(self._epsilon, self._discount)
        return units.reward_scale * (self._deviation(count, units.reward_width(ends=self.policies.may_end)) + slack)

    def margin_radius(self, count: Integers) -> Floats:
        units = self.policies.units
        slack = theory.elimination_slack(self._epsilon, self._discount)
        return units.cost_scale * (self._deviation(count, 1.0)[:, None] * self._constraint_width + slack)

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        if step >= self.steps(entry):
            return math.inf
        units = self.policies.units
        mixed = units.unit_margin(theory.mixture_value(entry.margin, entry.safe_margin, weight))
        lengths = [
            theory.phase_length(float(margin), self.log_term, self._discount, float(width))
            for margin, width in zip(mixed, self._constraint_width, strict=True)
        ]
        return max(lengths)

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        if step == 0:
            return self._first_step(entry)
        # With the true V₋ the first weight may already exceed the limit of the recursion, which would then lower it.
        return max(weight, theory.next_weight(weight, self.safe_margin(entry), self._epsilon, self._discount))

    @property
    def _epsilon(self) -> float:
        return self.policies.radius

    def _first_step(self, entry: Entry) -> float:
        worst = float(self.policies.units.worst_value(ends=self.policies.may_end).max())
        return theory.first_weight(self.safe_margin(entry), self._epsilon, self._discount, worst)

    @property
    def _constraint_width(self) -> Floats:
        return self.policies.units.constraint_width(ends=self.policies.may_end)

    def _unit_margin(self, entry: Entry) -> Floats:
        return self.policies.units.unit_margin(entry.margin)

    def _deviation(self, count: Integers, width: float) -> Floats:
        return theory.deviation(1, self.log_term, self._discount, width) / np.sqrt(count)


def paper_rules(
    policies: PolicyValueSet, terms: MethodArgs, delta: float, kind: type[PaperRules] = PaperRules
) -> PaperRules:
    """The paper's constants at error `delta`, if the cut-off tail of episodes is small enough for the proof."""
    bias = policies.units.truncation_bias(terms.horizon)
    if bias > policies.radius:
        raise InvalidInput(
            f"horizon must be long enough that the cut-off tail, {bias:.2g} (unit scale), is at most "
            f"epsilon = {policies.radius:g} of the policy set, got {terms.horizon}"
        )
    return kind(policies, terms.planned(), delta)


# ------------------------------------------------------------------------- when the safe policy may be left


def paper_plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    episodes, failing = terms.planned(), policies.safe_risk or 0.0
    if terms.risk <= failing:
        reason = f"not possible: risk must exceed {failing:.3g}, got {terms.risk:g}"
        return PlanLine(terms.name, True, math.inf, reason)
    risk = terms.risk - failing
    rules = PaperRules(policies, episodes, risk)
    first = max(policies.entries, key=lambda entry: entry.reward)
    if rules.steps(first):
        length = math.ceil(rules.phase_length(first, 0, 0.0))
        verdict = "more than this run has" if length > episodes else "within this run"
        return PlanLine(terms.name, True, length, f"phase 0 takes {length:.3g} episodes, {verdict}")
    reason = f"never within {episodes} episodes nor later: {_obstacle(rules, risk)}"
    return PlanLine(terms.name, True, math.inf, reason)


def _obstacle(rules: PaperRules, risk: float) -> str:
    """Why the best candidate never gets any weight."""
    policies = rules.policies
    first = max(policies.entries, key=lambda entry: entry.reward)
    margin, own = rules.safe_margin(first), float(policies.units.unit_margin(first.margin).min())
    if margin <= 0:
        return f"the safe policy has no margin on the task of the best candidate, {margin:.3g} (unit scale)"
    if own < -policies.radius:
        return f"the best candidate breaks a budget on its own task, by {-own:.3g} (unit scale)"
    admissible = theory.largest_epsilon(margin, policies.units.effective_discount)
    least = least_episodes_to_leave(replace(policies, epsilon=admissible), risk)
    trained = f"with a set trained at epsilon ≤ {admissible:.2g} it would take {least:.2g} episodes"
    return (
        f"epsilon = {policies.radius:g} leaves no positive weight at margin {margin:.3g} (unit scale)"
        f"{'; ' + trained if math.isfinite(least) else ''}"
    )


def least_episodes_to_leave(policies: PolicyValueSet, risk: float) -> float:
    """The smallest K whose phase 0 ends within K, for the best candidate; the length grows with ln K."""
    first = max(policies.entries, key=lambda entry: entry.reward)
    episodes = 1
    while True:
        rules = PaperRules(policies, episodes, risk)
        if not rules.steps(first):
            return math.inf
        length = math.ceil(rules.phase_length(first, 0, 0.0))
        if length <= episodes:
            return length
        episodes = length

"""The constants of Algorithm 2: the paper's, with their proof mended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.learning.spec import Terms
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


class Rules(Protocol):
    """The constants of Algorithm 2, in the user's units."""

    name: ClassVar[str]
    certified: ClassVar[bool]
    least_count: ClassVar[int]  # episodes of a phase before its first test

    @property
    def last_count(self) -> float:
        """Episodes of a phase up to which its tests are proved."""
        ...

    def reward_radius(self, count: Integers) -> Floats:
        """[n] allowed distance of the mean reward after `count` [n] episodes from its prediction."""
        ...

    def margin_radius(self, count: Integers) -> Floats:
        """[n, m] the same for the margins, or [n, 1] for all of them."""
        ...

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        """Episodes after which a candidate that still stands is given more weight; infinite after the last step."""
        ...

    def next_weight(self, entry: Entry, step: int, weight: float) -> float: ...

    def first_weight(self) -> float:
        """Weight of a candidate that has not been tested yet."""
        ...


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

    def first_weight(self) -> float:
        return 0.0

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


def paper_rules(policies: PolicyValueSet, terms: Terms, delta: float) -> PaperRules:
    """`PaperRules` at error `delta`, if the cut-off tail of episodes is small enough for the proof."""
    bias = policies.units.truncation_bias(terms.horizon)
    if bias > policies.radius:
        raise InvalidInput(
            f"horizon must be long enough that the cut-off tail, {bias:.2g} (unit scale), is at most "
            f"epsilon = {policies.radius:g} of the policy set, got {terms.horizon}"
        )
    return PaperRules(policies, terms.planned(), delta)

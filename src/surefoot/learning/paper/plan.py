"""When `paper` may leave the safe policy, told before it begins: its first phase has a known length."""

from __future__ import annotations

import math
from dataclasses import replace

from surefoot import theory
from surefoot.learning.paper.constants import PaperRules
from surefoot.learning.spec import PlanLine, Terms
from surefoot.policyset.policy_value_set import PolicyValueSet


def paper_plan(policies: PolicyValueSet, terms: Terms) -> PlanLine:
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

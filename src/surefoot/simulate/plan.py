"""How long each method stays on the safe policy, told before the real system is touched."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from surefoot import theory
from surefoot.errors import InvalidInput
from surefoot.learning.certified.choice import CERTIFIED, certified_method
from surefoot.learning.learner import Learner
from surefoot.learning.paper.constants import PaperRules, PublishedRules
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner

# Certified methods are tried on simulated training tasks, for so many episodes of so many steps.
TRIAL_TASKS, TRIAL_EPISODES, TRIAL_TAIL = 3, 2000, 1e-6


@dataclass(frozen=True)
class PlanLine:
    """One method's answer: `episodes` on π_s before it may leave it (infinite: never), and why."""

    method: str
    certified: bool
    episodes: float
    reason: str


def plan(policies: PolicyValueSet, *, episodes: int, risk: float) -> tuple[PlanLine, ...]:
    """The plan of every method that this policy set supports, for a run of `episodes` episodes."""
    return (
        _safe_only(policies, risk),
        _paper(policies, episodes, risk),
        _published(policies),
        PlanLine("pce", False, 0, "deploys candidates outright from the first episode; does not keep the constraint"),
        *(_certified(policies, name, risk) for name in CERTIFIED if name != "certified"),
    )


def _safe_only(policies: PolicyValueSet, risk: float) -> PlanLine:
    failing = policies.safe_risk
    known = "no bound is known" if failing is None else f"at most {failing:.2g}"
    reason = f"never leaves the safe policy; the probability that this breaks a budget on a fresh task: {known}"
    return PlanLine("safe-only", failing is not None and failing <= risk, math.inf, reason)


def _paper(policies: PolicyValueSet, episodes: int, risk: float) -> PlanLine:
    failing = policies.safe_risk or 0.0
    if risk <= failing:
        return PlanLine("paper", True, math.inf, f"not possible: risk must exceed {failing:.3g}, got {risk:g}")
    risk -= failing
    rules = PaperRules(policies, episodes, risk)
    first = max(policies.entries, key=lambda entry: entry.reward)
    if rules.steps(first):
        length = math.ceil(rules.phase_length(first, 0, 0.0))
        verdict = "more than this run has" if length > episodes else "within this run"
        return PlanLine("paper", True, length, f"phase 0 takes {length:.3g} episodes, {verdict}")
    return PlanLine("paper", True, math.inf, f"never within {episodes} episodes nor later: {_obstacle(rules, risk)}")


def _obstacle(rules: PaperRules, risk: float) -> str:
    """Why the best candidate never gets any weight."""
    policies = rules.policies
    first = max(policies.entries, key=lambda entry: entry.reward)
    margin, own = rules.safe_margin(first), float(policies.units.unit_margin(first.margin).min())
    if margin <= 0:
        return f"the safe policy has no margin on the task of the best candidate, {margin:.3g} (unit scale)"
    if own < -policies.epsilon:
        return f"the best candidate breaks a budget on its own task, by {-own:.3g} (unit scale)"
    admissible = theory.largest_epsilon(margin, policies.units.discount)
    least = least_episodes_to_leave(replace(policies, epsilon=admissible), risk)
    trained = f"with a set trained at epsilon ≤ {admissible:.2g} it would take {least:.2g} episodes"
    return (
        f"epsilon = {policies.epsilon:g} leaves no positive weight at margin {margin:.3g} (unit scale)"
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


def _published(policies: PolicyValueSet) -> PlanLine:
    first = max(policies.entries, key=lambda entry: entry.reward)
    length = PublishedRules(policies).phase_length(first, 0, 0.0)
    return PlanLine("published", False, math.ceil(length), "constants tuned to the gridworld's units; no proof")


def _certified(policies: PolicyValueSet, name: str, risk: float) -> PlanLine:
    """How soon the method moves on training tasks, simulated with the model in the policy set where it has one."""
    try:
        method = certified_method(policies, name, risk, truncation=TRIAL_TAIL)
    except InvalidInput as error:
        return PlanLine(name, True, math.inf, f"not possible: {error}")
    first = method.deployed(method.start()).weight
    cells = policies.cells
    if cells is None or cells.model is None or cells.model.affine is None:
        return PlanLine(name, True, 0 if first else math.inf, f"starts at weight {first:.3g}")
    rng = np.random.default_rng(0)
    leaves, halves = [], []
    for seed, cell in enumerate(rng.choice(len(cells), TRIAL_TASKS, p=cells.prior / cells.prior.sum())):
        task = cells.model.task(cells.centre[cell], policies.units)
        run = run_learner(Learner(method, seed=seed), task, episodes=TRIAL_EPISODES, seed=seed, optimal_reward=0.0)
        leaves.append(_first(run.weight > 0))
        halves.append(_first(run.weight >= 0.5))
    half = float(np.median(halves))
    when = f"after about {half:,.0f} episodes" if math.isfinite(half) else f"not within {TRIAL_EPISODES} episodes"
    reason = f"first weight {first:.3g}; weight 1/2 {when} (median of {TRIAL_TASKS} simulated training tasks)"
    return PlanLine(name, True, float(np.median(leaves)), reason)


def _first(reached: np.ndarray) -> float:
    """Number of episodes before the first one marked; infinite when none is."""
    return float(np.argmax(reached)) if reached.any() else math.inf

"""The plans of DOPE, DOPE+ and OptPess-LP as their authors define them: bonuses, widths and constants over H steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.baselines import empirical_model as empirical
from surefoot.lab.baselines.empirical_model import Counts, Support, within_reach
from surefoot.lab.baselines.extended_planning import PlanningProblem, plan_extended, policy_values
from surefoot.lab.baselines.known import KnownModel
from surefoot.policyset.policy_value_set import PolicyValueSet

Algorithm: TypeAlias = Literal["dope", "dope-plus", "optpess-lp"]
Preset: TypeAlias = Literal["theory", "published"]
Widths: TypeAlias = Literal["bernstein", "factored", "inventory"]

# A discounted task is planned until the tail is below this fraction of the whole: 100 steps at a discount of 0.9.
TOLERANCE = 5e-5


@dataclass(frozen=True)
class Constants:
    """What the formulas need besides the counts.

    Attributes:
        steps: H in the logarithmic terms, the most steps of an episode.
        margin: C̄ - C̄_b, the least margin that training found for the safe policy, in units of one step's cost. The
            authors have that of their one task: 4.0 on media streaming, where the least of our family is 3.787, 2.8
            on the inventory instead of 2.755, and 2.4 on the factored task as here.
        value_range: H where it bounds a value, Σ γ^h.
    """

    algorithm: Algorithm
    preset: Preset
    episodes: int
    risk: float
    steps: int
    margin: float
    value_range: float
    scale: float
    widths: Widths = "bernstein"

    def log_term(self, states: int, actions: int) -> float:
        K, risk = self.episodes, self.risk
        if self.algorithm == "optpess-lp":
            return empirical.optpess_log_term(states, self.steps, K, risk)
        if self.preset == "published":
            return empirical.dope_code_log_term(states, self.steps, K, risk)
        if self.algorithm == "dope-plus":
            return empirical.dope_plus_log_term(states, actions, self.steps, K, risk)
        return empirical.dope_log_term(states, actions, self.steps, K, risk)

    def warm_up(self, states: int, actions: int) -> int:
        """K₀ of DOPE, also for DOPE+, whose own is not known to us; OptPess-LP has none."""
        if self.algorithm == "optpess-lp":
            return 0
        return empirical.warm_up_episodes(states, actions, self.value_range, self.margin)


@dataclass(frozen=True, eq=False)
class FiniteHorizonPlanner:
    """The three algorithms as their authors define them; `safe` holds the safe policy's tables, [S, A] or [H, S, A]."""

    problem: PlanningProblem
    constants: Constants
    safe: Floats

    def __call__(self, counts: Counts) -> tuple[NDArray[Any], Floats] | None:
        probability = empirical.estimate(counts, self.problem.possible)
        reward, cost, widths = self.bonuses(counts, probability)
        problem = replace(self.problem, reward=self.problem.reward + reward, cost=self.problem.cost + cost)
        if self.constants.algorithm == "dope-plus":
            cap = 1 + math.sqrt(self.constants.log_term(*problem.reward.shape))
            problem = replace(problem, reward=np.minimum(problem.reward, cap))
        if self.constants.algorithm == "optpess-lp":
            # Until the safe policy itself is known to be well within the budget.
            known_cost = policy_values(problem, probability, self.safe)[1]
            if known_cost >= problem.budget - self.constants.margin / 2:
                return None
        plan = plan_extended(problem, probability, widths)
        return None if plan is None else (plan.actions, plan.weights)

    def bonuses(self, counts: Counts, probability: Floats) -> tuple[Floats, Floats, Floats]:
        """(added to r [S, A], added to c [S, A], widths of the box [S, A, D]).

        DOPE: H²/(C̄-C̄_b) β̄ and H β̄. DOPE+ (reconstructed): H/(C̄-C̄_b) β⁺ and β⁺, the reward capped at 1 + √L.
        OptPess-LP: α_r β and (1+SH) β with α_r = 1 + SH + 4H(1+SH)/(C̄-C̄_b), and P̂ itself. In `published`, 1 + SH
        is SH (the 1 is for unknown costs) as in the authors' inventory script; their factored script leaves the second
        one of α_r as it is, 5 % more there, and their media script both. β⁺ lacks its last term as in the paper's
        figure. The authors' inventory script has other widths, and no bonus for reward; their factored script sums
        widths that may exceed 1 over all states, possible or not.
        """
        visits, possible = counts.sum(axis=2), self.problem.possible
        states, actions = visits.shape
        k, H = self.constants, self.constants.value_range
        L = k.log_term(states, actions)
        if k.widths == "inventory":
            widths = k.scale * within_reach(empirical.script_widths(probability, visits, L), visits, possible)
            return np.zeros(visits.shape), H * empirical.total_width(widths), widths
        if k.algorithm == "dope":
            free = empirical.bernstein_widths(probability, visits, L)
            widths = k.scale * within_reach(free, visits, possible)
            total = empirical.total_width(widths)
            if k.widths == "factored":
                total = k.scale * empirical.script_total_width(free, visits, possible, L)
            return H**2 / k.margin * total, H * total, widths
        if k.algorithm == "dope-plus":
            last = k.preset == "theory"
            widths = k.scale * within_reach(empirical.dope_plus_widths(probability, visits, L), visits, possible)
            bonus = k.scale * empirical.dope_plus_bonus(visits, L, states, actions, H, k.episodes, last_term=last)
            return H / k.margin * bonus, bonus, widths
        width = k.scale * empirical.hoeffding_width(visits, L)
        unknown = 1.0 if k.preset == "theory" else 0.0
        pessimism = unknown + states * H
        return (pessimism + 4 * H * pessimism / k.margin) * width, pessimism * width, np.zeros(possible.shape)


def planning_problem(
    policies: PolicyValueSet, model: KnownModel, support: Support, horizon: int | None = None
) -> tuple[PlanningProblem, float]:
    """The task with rewards and costs in [0, 1], without bonuses, and the safe policy's least margin in that scale.

    A layered task's ranges are those of its base tables and of 0; a discounted one's are the declared ones.

    A layered task's last step leads to the end for sure. Bonuses are for not knowing what follows a step (the sums
    Σ_s' (P - P̂)(s'|s,a) V_{h+1}(s') that they bound are 0 there), so none is paid in it.
    """
    units, states = policies.units, len(support.possible)
    reward, cost, start = model.reward[:states], model.cost[0, :states], model.start[:states]
    if support.layers is None:
        discount = units.discount
        steps = horizon or math.ceil(math.log(1 / TOLERANCE) / (1 - discount))
        (reward_low, reward_high), (low, high) = units.reward_range, units.cost_range[0].tolist()
        tail = discount**steps * high / (1 - discount)
    else:
        discount, steps, tail = 1.0, support.layers, 0.0
        reward_low, reward_high = min(0.0, float(reward.min())), max(0.0, float(reward.max()))
        low, high = min(0.0, float(cost.min())), max(0.0, float(cost.max()))
    width = high - low or 1.0
    reward, cost = (reward - reward_low) / (reward_high - reward_low or 1.0), (cost - low) / width
    last = None if support.layers is None else (reward, cost)
    tables = (start, support.successors, support.possible, discount, steps)
    problem = PlanningProblem(reward, cost[None], 0.0, *tables, last)
    budget = (float(units.budget[0]) - tail - low * total_weight(problem)) / width
    margin = min(float(entry.safe_margin[0]) for entry in policies.entries) / width
    if margin <= 0:
        raise InvalidInput(f"policies must hold a strictly safe policy, got a least safe margin of {margin * width:g}")
    return replace(problem, budget=budget), margin


def total_weight(problem: PlanningProblem) -> float:
    """Σ_{h<H} γ^h."""
    return float((problem.discount ** np.arange(problem.horizon)).sum())

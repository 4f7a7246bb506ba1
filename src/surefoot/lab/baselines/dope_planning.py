"""The planners of DOPE, DOPE+ and OptPess-LP: as their authors define them, with bonuses, widths and constants over H
steps, and as the paper's Figure 2 has them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.baselines import empirical_model as empirical
from surefoot.lab.baselines.empirical_model import Counts, Support, within_reach
from surefoot.lab.baselines.extended_planning import PlanningProblem, plan_extended, policy_values
from surefoot.lab.baselines.known import KnownModel
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.linear_program import INFINITY, maximise

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
        """L = log(x·HK/δ): for DOPE x = 2SA by its theorem and 6S² in its authors' code, for DOPE+ x = SA
        (reconstructed), for OptPess-LP x = 32S² as in the factored script of DOPE's authors.

        DOPE's has no factor S for the successors. It need not: the width at L is, for n ≥ 4, the Maurer-Pontil width
        that either side leaves with probability 2 e^{-1.5 L}, and it exceeds 1 before. Over both sides, s, a, s' and
        n ≤ HK that is 4 S²A HK e^{-1.5 L} = √2 δ^1.5 √(S/(AHK)), less than δ unless S > AHK/(2δ). OptPess-LP's is from
        no theorem, but enough for one: some |P̂ - P| exceeds √(L/n) for some s, a, s' and n ≤ HK with probability at
        most 2 S²A HK e^{-2L} = A δ²/(512 S² HK), less than δ.
        """
        if self.algorithm == "optpess-lp":
            factor = 32 * states**2
        elif self.preset == "published":
            factor = 6 * states**2
        else:
            factor = (1 if self.algorithm == "dope-plus" else 2) * states * actions
        return math.log(factor * self.steps * self.episodes / self.risk)

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
            return np.zeros(visits.shape), H * widths.sum(axis=2), widths
        if k.algorithm == "dope":
            free = empirical.bernstein_widths(probability, visits, L)
            widths = k.scale * within_reach(free, visits, possible)
            total = widths.sum(axis=2)  # β̄, over the known support only
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


# --------------------------------------------------------------------------------------------- as in the paper's figure

# The authors' numbers: L in the widths of P̂, L in the bonus, C̄-C̄_b, the reward cap, episodes of warm-up.
WIDTH_LOG_TERM, BONUS_LOG_TERM, SLACK, REWARD_CAP = 1e-8, 1e-4, 0.1, 1 + 5e-4**0.5
WARM_UP = 14_000
# A discounted number of visits below which a state counts as never visited.
UNVISITED = 1e-10


@dataclass(frozen=True, eq=False)
class RelaxedOccupancy:
    """The planner that stands for DOPE+ in the paper's Figure 2: a relaxed occupancy linear program, in the user's
    units.

    The paper's authors did not solve the extended program. Theirs is, with H = 1/(1-γ) and d ≥ 0 of total mass about 1,

    maximise Σ d·r̄ H   subject to   Σ d·c̲ H ≤ budget   and   |Σ_a d(s,a) - γ Σ P̂(s|s',a') d(s',a') - (1-γ)ρ(s)| ≤ w(s),
    w(s) = Σ_{a,s'} ε(s'|s,a),   c̲ = c + β⁺,   r̄ = min{r + β⁺ H/0.1, 1 + √0.0005}.

    Rewards and costs enter as the task has them, although the bonuses and the cap are made for numbers in [0, 1]. On
    the gridworld the cap therefore turns the reward 10 of the goal into 1.02, as much as an ordinary cell gets from its
    bonus, and hardly any objective is left; this is their experiment, so it is kept.

    Attributes:
        bonus: "dope-plus" as in their notebook. "dope" puts DOPE's H β̄ in the place of β⁺, with the same numbers
            (reconstructed: their notebook of DOPE is not public).
        episodes: K in β⁺.
        scale: multiplies widths and bonuses.
    """

    units: Units
    model: KnownModel
    support: Support
    bonus: str
    episodes: int
    scale: float = 1.0

    def __call__(self, counts: Counts) -> tuple[Floats, Floats] | None:
        """One stationary policy, probabilities [1, S, A], and its weight [1]; None if the program has no solution."""
        transitions = _transitions(counts, self.support)
        reward, cost, slack = self.bonuses(transitions, counts.sum(axis=2))
        budget, start, discount = float(self.units.budget[0]), self.model.start, self.units.discount
        visits = _solve(transitions, reward, cost, budget, start, discount, slack)
        return None if visits is None else (_shares(visits)[None], np.ones(1))

    def bonuses(self, transitions: Floats, visits: Counts) -> tuple[Floats, Floats, Floats]:
        """(r̄ [S, A], c̲ [S, A], w [S]).

        As in their code, nothing is known of the support, and widths are not 1 where nothing was seen; with that, the
        flow constraints would not mean anything. DOPE's bonus is as DOPE defines it.
        """
        horizon = 1 / (1 - self.units.discount)
        states, actions = visits.shape
        if self.bonus == "dope-plus":
            widths = empirical.dope_plus_widths(transitions, visits, WIDTH_LOG_TERM)
            bonus = empirical.dope_plus_bonus(
                visits, BONUS_LOG_TERM, states, actions, horizon, self.episodes, last_term=False
            )
        else:
            widths = empirical.bernstein_widths(transitions, visits, WIDTH_LOG_TERM)
            bonus = empirical.bernstein_widths(transitions, visits, BONUS_LOG_TERM)
            bonus = horizon * within_reach(bonus, visits, np.ones_like(bonus, dtype=np.bool_)).sum(axis=2)
        bonus = self.scale * bonus
        reward = np.minimum(self.model.reward + horizon / SLACK * bonus, REWARD_CAP)
        return reward, self.model.cost[0] + bonus, self.scale * widths.sum(axis=(1, 2))


def _transitions(counts: Counts, support: Support) -> Floats:
    """P̂ [S, A, S], uniform over all states where nothing was seen, as in their code."""
    states, actions, width = counts.shape
    visits = counts.sum(axis=2).reshape(-1, 1)
    dense = np.zeros((states * actions, states))
    rows, slots = np.nonzero(support.possible.reshape(-1, width))
    dense[rows, support.successors.reshape(-1, width)[rows, slots]] = counts.reshape(-1, width)[rows, slots]
    found: Floats = np.where(visits > 0, dense / np.maximum(visits, 1), 1 / states).reshape(states, actions, states)
    return found


def _solve(
    transitions: Floats, reward: Floats, cost: Floats, budget: float, start: Floats, discount: float, slack: Floats
) -> Floats | None:
    """d [S, A], or None if HiGHS finds no optimum."""
    states, actions = reward.shape
    pairs = states * actions
    matrix = np.repeat(np.eye(states), actions, axis=1) - discount * transitions.reshape(pairs, states).T
    matrix = np.vstack([matrix, cost.reshape(1, pairs) / (1 - discount)])
    lower = np.append((1 - discount) * start - slack, -INFINITY)
    upper = np.append((1 - discount) * start + slack, budget)
    optimum = maximise(reward.ravel() / (1 - discount), sp.csc_array(matrix), lower, upper)
    return None if optimum is None else optimum[0].reshape(states, actions)


def _shares(visits: Floats) -> Floats:
    """[S, A] probabilities in proportion to d; uniform where it never goes."""
    visits = np.maximum(visits, 0.0)
    total = visits.sum(axis=1, keepdims=True)
    weights = np.where(total > UNVISITED, visits, 1.0)
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares

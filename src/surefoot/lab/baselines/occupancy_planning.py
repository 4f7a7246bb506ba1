"""The planner that stands for DOPE+ in the paper's Figure 2: a relaxed occupancy linear program, hand-set constants.

The paper's authors did not solve the extended program. Theirs is, with H = 1/(1-γ) and d ≥ 0 of total mass about 1,

maximise Σ d·r̄ H   subject to   Σ d·c̲ H ≤ budget   and   |Σ_a d(s,a) - γ Σ P̂(s|s',a') d(s',a') - (1-γ)ρ(s)| ≤ w(s),
w(s) = Σ_{a,s'} ε(s'|s,a),   c̲ = c + β⁺,   r̄ = min{r + β⁺ H/0.1, 1 + √0.0005}.

Rewards and costs enter as the task has them, although the bonuses and the cap are made for numbers in [0, 1]. On the
gridworld the cap therefore turns the reward 10 of the goal into 1.02, as much as an ordinary cell gets from its bonus,
and hardly any objective is left; this is their experiment, so it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.lab.baselines.empirical_model import (
    Counts,
    Support,
    bernstein_widths,
    dope_plus_bonus,
    dope_plus_widths,
    total_width,
    within_reach,
)
from surefoot.lab.baselines.known import KnownModel
from surefoot.tabular.linear_program import INFINITY, maximise

# The authors' numbers: L in the widths of P̂, L in the bonus, C̄-C̄_b, the reward cap, episodes of warm-up.
WIDTH_LOG_TERM, BONUS_LOG_TERM, SLACK, REWARD_CAP = 1e-8, 1e-4, 0.1, 1 + 5e-4**0.5
WARM_UP = 14_000
# A discounted number of visits below which a state counts as never visited.
UNVISITED = 1e-10


@dataclass(frozen=True, eq=False)
class RelaxedOccupancy:
    """The planner of one task; rewards and costs in the user's units.

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
            widths = dope_plus_widths(transitions, visits, WIDTH_LOG_TERM)
            bonus = dope_plus_bonus(visits, BONUS_LOG_TERM, states, actions, horizon, self.episodes, last_term=False)
        else:
            widths = bernstein_widths(transitions, visits, WIDTH_LOG_TERM)
            bonus = bernstein_widths(transitions, visits, BONUS_LOG_TERM)
            bonus = horizon * total_width(within_reach(bonus, visits, np.ones_like(bonus, dtype=np.bool_)))
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

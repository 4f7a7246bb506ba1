"""Optimal policies of tasks with a horizon: the occupancy linear program over steps t = 0, ..., H-1.

maximise Σ_t γ^t Σ d_t·r   over d_t(s, a) ≥ 0, the probability of s and a at step t
subject to Σ_a d_0(s, a) = ρ(s),   Σ_a d_t+1(s, a) = Σ P(s | s', a') d_t(s', a')
and Σ_t γ^t Σ d_t·cost_i ≤ budget_i - tighten_i
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, Mask
from surefoot.errors import SurefootError
from surefoot.tabular.evaluate import evaluate, occupancy
from surefoot.tabular.lagrangian import Solution, action_shares, infeasible, rounding, spending_limit
from surefoot.tabular.linear_program import INFINITY, Optimum, maximise
from surefoot.tabular.policy import TimedPolicy
from surefoot.tabular.tables import Tables

TOLERANCE = 1e-10


def solve_horizon(cmdp: Tables, tighten: ArrayLike = 0.0) -> Solution:
    """The timed policy of largest reward among those with cost ≤ budget - tighten.

    Raises:
        Infeasible: no policy does; names the least achievable cost.
    """
    limit = spending_limit(cmdp, tighten)
    program = _StepProgram(cmdp)
    found = program.most_reward(limit)
    if found is None:
        # No verdict of the solver is trusted here: the least excess over the limit, exactly evaluated, decides.
        least = program.least_excess(limit)
        achievable = evaluate(cmdp, least).cost
        if np.any(achievable > limit + rounding(cmdp)):
            raise infeasible(cmdp, least, tighten)
        found = program.most_reward(np.maximum(limit, achievable))
    if found is None:
        raise SurefootError(f"HiGHS could not solve the occupancy linear program of {cmdp}")
    excess = np.maximum(found.values.cost - limit, 0.0)
    if np.any(excess > rounding(cmdp)):  # the solver's tolerance adds up over the steps: aim lower, once
        found = program.most_reward(limit - 2 * excess) or found
    return found


class _StepProgram:
    """The program of one task, with rewards and costs scaled to at most 1."""

    def __init__(self, cmdp: Tables) -> None:
        self.cmdp, self.steps = cmdp, cmdp.units.episode_length
        S, A, H = cmdp.n_states, cmdp.n_actions, self.steps
        self.weights = cmdp.discount ** np.arange(H)
        self.reward_unit = float(np.abs(cmdp.reward).max()) or 1.0
        self.cost_unit = np.abs(cmdp.cost).max(axis=(1, 2))
        self.cost_unit[self.cost_unit == 0] = 1.0
        leaving = sp.kron(sp.eye_array(H), sp.kron(sp.eye_array(S), np.ones((1, A))))
        arriving = sp.kron(sp.eye_array(H, k=-1), cmdp.rows.T)
        costs = np.kron(self.weights, cmdp.cost.reshape(cmdp.n_constraints, -1) / self.cost_unit[:, None])
        self.matrix = sp.csc_array(sp.vstack([leaving - arriving, sp.csr_array(costs)]))
        self.start = np.concatenate([cmdp.start, np.zeros((H - 1) * S)])

    def most_reward(self, limit: Floats) -> Solution | None:
        objective = np.kron(self.weights, self.cmdp.reward.ravel() / self.reward_unit)
        found = self._maximise(objective, np.zeros(len(objective)), self.matrix, limit)
        return None if found is None else self._solution(*found)

    def least_excess(self, limit: Floats) -> TimedPolicy:
        """The policy that minimises t where cost_i ≤ limit_i + t for every i: one more column, free."""
        columns = self.matrix.shape[1]
        relief = np.concatenate([np.zeros(len(self.start)), -self.cost_unit.min() / self.cost_unit])
        found = self._maximise(
            np.append(np.zeros(columns), -1.0),
            np.append(np.zeros(columns), -INFINITY),
            sp.csc_array(sp.hstack([self.matrix, sp.csc_array(relief[:, None])])),
            limit,
        )
        if found is None:
            raise SurefootError(f"HiGHS could not find the least cost of {self.cmdp}")
        return TimedPolicy(self._shares(found[0][:-1])[0])

    def _maximise(self, objective: Floats, lower: Floats, matrix: sp.csc_array, limit: Floats) -> Optimum | None:
        return maximise(
            objective,
            matrix,
            np.concatenate([self.start, np.full(len(limit), -INFINITY)]),
            np.concatenate([self.start, limit / self.cost_unit]),
            column_lower=lower,
            primal_feasibility_tolerance=TOLERANCE,
            dual_feasibility_tolerance=TOLERANCE,
        )

    def _solution(self, visits: Floats, multipliers: Floats) -> Solution:
        dual = np.maximum(multipliers[len(self.start) :] * self.reward_unit / self.cost_unit, 0.0)
        policy = self._policy(visits, dual)
        return Solution(policy, evaluate(self.cmdp, policy), dual, occupancy(self.cmdp, policy))

    def _policy(self, visits: Floats, dual: Floats) -> TimedPolicy:
        """The policy with occupancy `visits` [H·S·A]; where it never goes, greedy for r - dual·c from there on."""
        cmdp = self.cmdp
        probabilities, unvisited = self._shares(visits)
        signal = cmdp.reward - np.tensordot(dual, cmdp.cost, 1)
        onwards = np.zeros(cmdp.n_states)
        for table, never in zip(probabilities[::-1], unvisited[::-1], strict=True):
            ahead = signal + cmdp.discount * (cmdp.matrix @ onwards).reshape(signal.shape)
            table[never] = np.eye(cmdp.n_actions)[ahead[never].argmax(axis=1)]
            onwards = (table * ahead).sum(axis=1)
        return TimedPolicy(probabilities)

    def _shares(self, visits: Floats) -> tuple[Floats, Mask]:
        """Action probabilities [H, S, A], and which states [H, S] are never visited at each step."""
        shape = (self.steps, *self.cmdp.reward.shape)
        return action_shares(visits.reshape(shape))

"""Tabular softmax policies: where to start, and what episodes tell about values, gradients and curvature.

A policy is π(a|s) ∝ exp θ[s, a]. All estimates come from a few sums over episodes of one policy, and the sums are
formed in the order of the steps, so that blocks and single episodes give the same ones, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from surefoot.arrays import Floats, Integers, check_indices
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.errors import Infeasible, InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.evaluate import evaluate, solve_discounted
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, as_tabular
from surefoot.tabular.tables import endless
from surefoot.tasks.gridworld_tasks import Kernel, gridworld

# Soft policy iteration is Newton's method: it ends within a few steps or not at all.
SOFT_STEPS, SOFT_ACCURACY = 200, 1e-13
# A bound on all values that is below what every policy has by more than rounding proves that no policy is feasible.
MISSED = 1e-6
# Pairs of steps looked at together when the curvature is estimated; keeps the arrays in cache.
PAIRS = 2**16


def softmax(logits: Floats) -> Floats:
    """[S, A] the policy of θ [S, A]."""
    weights = np.exp(log_softmax(logits, axis=1))
    policy: Floats = weights / weights.sum(axis=1, keepdims=True)
    return policy


# --------------------------------------------------------------------------------------------------- starting policies


def entropy_regularised(task: TabularCMDP, weight: float, tighten: ArrayLike = 0.0) -> TabularPolicy:
    """The policy of largest V_r + weight · (discounted sum of entropies) with cost ≤ budget - tighten; of full support.

    For multipliers λ the best policy is that of soft value iteration on r - λ·c. The dual function is convex and smooth
    with gradient budget - cost, so the multipliers are found by a quasi-Newton method under λ ≥ 0.
    """
    if not weight > 0:
        raise InvalidInput(f"weight must be positive, got {weight!r}")
    scale = task.units.cost_scale
    limit = task.budget - np.asarray(tighten, dtype=np.float64)
    policy = np.full(task.reward.shape, -np.log(task.n_actions))

    least = task.units.reward_value_range[0]  # of V_r plus entropy, for any policy

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        nonlocal policy
        value, policy = _soft_optimum(task, multipliers / scale, weight, policy)
        values = evaluate(task, np.exp(policy))
        bound = value + float(multipliers / scale @ limit)
        if bound < least - MISSED * (1 + abs(least)):  # no feasible policy has a value above the bound
            raise Infeasible(
                f"no policy keeps the cost within budget - tighten = {limit.tolist()}; the search for multipliers "
                f"ended at cost {values.cost.tolist()}",
                values.cost,
            )
        return bound / weight, (limit - values.cost) / scale / weight

    bounds = [(0.0, None)] * task.n_constraints
    options = {"maxiter": 500, "ftol": 1e-16, "gtol": 1e-11}
    found = minimize(dual, np.zeros(task.n_constraints), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    dual(found.x)
    return TabularPolicy(np.exp(policy))


def _soft_optimum(task: TabularCMDP, multipliers: Floats, weight: float, log_policy: Floats) -> tuple[float, Floats]:
    """(V, log π [S, A]) of the largest discounted sum of r - λ·c + weight·entropy; `log_policy` is a first guess."""
    endless(task, "an entropy-regularised optimum")
    signal = task.reward - np.tensordot(multipliers, task.cost, 1)
    for _ in range(SOFT_STEPS):
        policy = np.exp(log_policy)
        right = (policy * (signal - weight * log_policy)).sum(axis=1)
        values = solve_discounted(task.kernel(policy), right[:, None], task.discount)[:, 0]
        q = (signal + task.discount * (task.rows @ values).reshape(signal.shape)) / weight
        log_policy = log_softmax(q, axis=1)
        if np.abs(weight * logsumexp(q, axis=1) - values).max() <= SOFT_ACCURACY * (1 + np.abs(values).max()):
            break
    log_policy = log_policy - np.log(np.exp(log_policy).sum(axis=1, keepdims=True))
    return float(values @ task.start), log_policy


def published_start(policies: PolicyValueSet, weight: float) -> TabularPolicy | None:
    """The regularised optimum of the gridworld's safe task, where the authors' code starts; None for other families."""
    match dict(policies.recipe):
        case {"family": "gridworld", "kernel": kernel, "safe_noise": noise}:
            return _regularised_gridworld(kernel, noise, weight)
    return None


@lru_cache(maxsize=16)
def _regularised_gridworld(kernel: Kernel, noise: float, weight: float) -> TabularPolicy:
    return entropy_regularised(gridworld(kernel=kernel).task([noise]), weight)


def smoothed_safe_policy(policies: PolicyValueSet) -> TabularPolicy:
    """The safe policy with just enough chance added to every action: it keeps half of its margin on every entry.

    Mixing a share w of uniform actions into each state changes a discounted cost by at most w·(1-1/A)·range/(1-γ)²
    (performance difference), whatever the transitions are.
    """
    units = policies.units
    margin = np.min([entry.safe_margin for entry in policies.entries], axis=0)
    if (margin <= 0).any():
        raise InvalidInput(f"the safe policy must have a positive margin on every entry, got {margin.tolist()}")
    safe = safe_table(policies)
    actions = safe.shape[1]
    spread = np.ptp(units.cost_range, axis=1) * (1 - 1 / actions) / (1 - units.discount) ** 2
    share = min(1.0, float((margin / 2 / np.maximum(spread, 1e-300)).min()))
    return TabularPolicy((1 - share) * safe + share / actions)


def as_start_policy(policies: PolicyValueSet, start: TabularPolicy | ArrayLike) -> TabularPolicy:
    """A policy handed in by the user, as a table of the safe policy's shape."""
    shape = safe_table(policies).shape
    return as_tabular(start, (shape[0], shape[1]))


def safe_table(policies: PolicyValueSet) -> Floats:
    """[S, A] probabilities of the safe policy."""
    if not isinstance(policies.safe_policy, TabularPolicy):
        raise InvalidInput(f"policies must be tabular, got kind {policies.safe_policy.kind!r}")
    return policies.safe_policy.probabilities


# --------------------------------------------------------------------------------------------- what episodes tell


@dataclass(frozen=True, eq=False)
class GradientSums:
    """Sums over episodes of one policy, for k signals; G_t is the discounted sum of a signal from step t on.

    Attributes:
        count: episodes.
        value: [k] Σ G_0.
        weight: [k, S, A] Σ_t γ^t G_t over the visits to (s, a).
        pairs: [k, S·A, S·A] Σ_{t<u} γ^u G_u over the visits to x at t and y at u; [k, 0, 0] where not wanted.
    """

    count: int
    value: Floats
    weight: Floats
    pairs: Floats

    @classmethod
    def empty(cls, signals: Floats, curvature: bool = False) -> GradientSums:
        size = signals[0].size if curvature else 0
        return cls(0, np.zeros(len(signals)), np.zeros_like(signals), np.zeros((len(signals), size, size)))

    def add(self, signals: Floats, discount: float, outcomes: Outcomes) -> GradientSums:
        """The sums with the episodes of `outcomes` added, for signals [k, S, A]."""
        visited, to_go = visits_and_returns(signals, discount, outcomes)
        weighted = to_go * discount ** np.arange(to_go.shape[2])
        return GradientSums(
            self.count + len(outcomes),
            add_in_order(self.value, to_go[:, :, 0].T),
            np.stack([add_by_place(*each, visited) for each in zip(self.weight, weighted, strict=True)]),
            _add_pairs(self.pairs, visited, weighted),
        )

    def gradient(self, policy: Floats) -> Floats:
        """[k, S, A] GPOMDP estimate of the gradients of the values with respect to θ.

        Σ_t γ^t r_t Σ_{u≤t} ∇log π(a_u|s_u) = Σ_u γ^u G_u ∇log π(a_u|s_u), and ∇log π(a|s) is 1_a - π(·|s) in row s.
        """
        gradient: Floats = (self.weight - policy * self.weight.sum(axis=2, keepdims=True)) / self.count
        return gradient

    def curvature(self, policy: Floats) -> Floats:
        """[k, S·A, S·A] the matching estimate of the Hessians (Ni and Kamgarpour 2025, Appendix F).

        Σ_t γ^t r_t (Σ_{u≤t} ∇²log π + g_t g_tᵀ) with g_t = Σ_{u≤t} ∇log π. Both are linear in sums over (pairs of)
        visits: g_t = L n_t for the counts n_t of visits up to t, where L is 1 - π(·|s) within each state.
        """
        k, states, actions = self.weight.shape
        flat = self.weight.reshape(k, -1)
        within = np.kron(np.eye(states), np.ones((actions, actions)))  # 1 where two places share a state
        probability = policy.ravel()
        centring = np.eye(policy.size) - probability[:, None] * within
        visits = self.pairs + self.pairs.transpose(0, 2, 1) + flat[:, :, None] * np.eye(policy.size)
        per_state = np.repeat(self.weight.sum(axis=2), actions, axis=1)
        spread = within * (np.diag(probability) - np.outer(probability, probability))
        hessians: Floats = (centring @ visits @ centring.T - per_state[:, :, None] * spread) / self.count
        return hessians


def visits_and_returns(signals: Floats, discount: float, outcomes: Outcomes) -> tuple[Integers, Floats]:
    """Places s·A + a [n, H] visited, and discounted sums [k, n, H] of each of the signals from every step on."""
    if outcomes.states is None or outcomes.actions is None:
        raise InvalidInput("outcomes must hold states and actions, got none")
    states, actions = signals.shape[1:]
    visited = outcomes.states[:, :-1].astype(np.int64) * actions + outcomes.actions
    for name, values, size in (("states", outcomes.states, states), ("actions", outcomes.actions, actions)):
        check_indices(name, values, size)
    to_go: Floats = signals.reshape(len(signals), -1).T[visited.T].transpose(0, 2, 1).copy()  # [H, k, n]
    for t in range(len(to_go) - 2, -1, -1):
        to_go[t] += discount * to_go[t + 1]
    return visited, np.ascontiguousarray(to_go.transpose(1, 2, 0))


def add_by_place(start: Floats, values: Floats, places: Integers) -> Floats:
    """start [...] with each value added at its place, one after the other in their order."""
    index = np.concatenate([np.arange(start.size), places.ravel()])
    weights = np.concatenate([start.ravel(), values.ravel()])
    total = np.bincount(index, weights, minlength=start.size)
    return total.reshape(start.shape).astype(np.float64, copy=False)


def _add_pairs(pairs: Floats, visited: Integers, weighted: Floats) -> Floats:
    """`pairs` [k, x, y] with γ^u G_u added for all steps t < u of each episode [n, H], at the places of t and u."""
    signals, size = pairs.shape[:2]
    if not size:
        return pairs
    later, earlier = np.tril_indices(visited.shape[1], -1)
    together = max(1, PAIRS // max(1, len(later)))
    for first in range(0, len(visited), together):
        part = visited[first : first + together]
        places = (part.take(earlier, axis=1) * size + part.take(later, axis=1)).ravel()
        values = [each[first : first + together].take(later, axis=1).ravel() for each in weighted]
        counted = [np.flatnonzero(each) for each in values]  # most steps are worth nothing in most constraints
        pairs = np.stack([add_by_place(pairs[k], values[k][counted[k]], places[counted[k]]) for k in range(signals)])
    return pairs

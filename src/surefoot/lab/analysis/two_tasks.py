"""What one policy can do on two tasks at once: earn on one, keep the budgets of the other, and tell tasks apart.

Both tasks share states, actions, start, payments and discount, and whatever can happen on one can happen on the other.
Policies may remember everything, so that no method deploys anything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.tables import endless

NODES = 10  # likelihood ratios on either side of 1 at which values are kept
PER_STEP = 2  # of these nodes, as many as the least likely transition moves the ratio by
ACCURACY = 1e-6  # at which value iteration stops, relative to the largest value; the bound holds anywhere


@dataclass(frozen=True, eq=False)
class Pair:
    """A Markov decision process on (state, L), L being the likelihood ratio of what has been seen, other over task.

    The other task's costs are E[Σ γ^t L_t c_t] on the task itself. Values are convex in L, since each policy's are
    linear, and fall with L: between nodes they lie below the chord, and beyond the last node below its value.

    Attributes:
        paid: [S, A, N] reward minus L times the other's costs at their prices, at the nodes of L.
        due: λ·budget, the prices times the budgets.
        step: [S·A·N, S·N] from an action at a node to states and nodes after it.
    """

    task: TabularCMDP
    paid: Floats
    due: float
    step: sp.csr_array

    @classmethod
    def of(cls, task: TabularCMDP, other: TabularCMDP, prices: Floats) -> Pair:
        """With prices [m] ≥ 0 of the other's costs: any of them give bounds."""
        ratio, cost = likelihood_ratios(task, other), np.tensordot(prices, other.cost, axes=1)
        if prices.min() < 0 or cost.min() < 0:
            raise InvalidInput(f"prices and costs must not be negative, got {min(prices.min(), cost.min()):.3g}")
        apart = np.abs(np.log(ratio)).max() / PER_STEP
        nodes = np.concatenate([[0.0], np.exp(np.arange(-NODES, NODES + 1) * apart)])
        paid = task.reward[..., None] - cost[..., None] * nodes
        return cls(task, paid, float(prices @ other.budget), _step(task, ratio, nodes))

    def best(self, at_once: Floats, values: Floats) -> Floats:
        """[S, N, n] no less than what is paid [S, A, N, n] and the expected values [S, N, n] after a step, for the best
        action in every state at every node."""
        ahead = (self.step @ values.reshape(-1, values.shape[-1])).reshape(*self.paid.shape, -1)
        found: Floats = (at_once + ahead).max(axis=1)
        return found

    def from_start(self, values: Floats) -> Floats:
        """[n] of values [S, N, n] at the first state, where L = 1."""
        found: Floats = np.tensordot(self.task.start, values[:, 1 + NODES], axes=1)
        return found


def most_reward(pair: Pair) -> tuple[float, Floats]:
    """No policy within the budgets of the other task earns more on the task: V_r(π) ≤ V_r(π) - λ·(V'_c(π) - budget).
    And values [S, N, 1] that bound it from every state on.

    V ≥ TV implies that V bounds the values of all policies, and V + e/(1-γ) does this if TV ≤ V + e.
    """
    discount, paid = pair.task.discount, pair.paid[..., None]
    values = paid.max(axis=1)
    while True:
        better = pair.best(paid, discount * values)
        before, change, values = values, better - values, better
        if np.abs(change).max() <= (1 - discount) * ACCURACY * float(np.abs(better).max()):
            bound = before + max(0.0, float(change.max())) / (1 - discount)
            return float(pair.from_start(bound)[0]) + pair.due, bound


def most_information(pair: Pair, told: Floats, rates: Floats, lasting: Floats) -> Floats:
    """[n] for each rate ω, in nats per unit of reward: no policy π within the budgets of the other task has a larger
    E[Σ told over an episode] + ω·V_r(π) on the task.

    Args:
        told: [S, A] expected nats of a transition; what an episode tells is their sum, whatever the policy remembers.
        lasting: [S, N, 1] as of `most_reward`, for what is earned after an episode has been seen.
    """
    steps, discount, paid = pair.task.units.episode_length, pair.task.discount, pair.paid[..., None]
    values = lasting * (rates * discount**steps)
    for step in reversed(range(steps)):
        values = pair.best(told[..., None, None] + paid * (rates * discount**step), values)
    found: Floats = pair.from_start(values) + rates * pair.due
    return found


def _step(task: TabularCMDP, ratio: Floats, nodes: Floats) -> sp.csr_array:
    """After a transition L is its ratio times as large: on the chord between two nodes, or at the last one."""
    rows, count = task.rows, len(nodes)
    after = nodes * ratio[:, None]  # [E, N]
    below = np.clip(np.searchsorted(nodes, after, side="right") - 1, 0, count - 2)
    share = np.minimum((after - nodes[below]) / (nodes[below + 1] - nodes[below]), 1.0)
    row = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    begin = np.broadcast_to(row[:, None] * count + np.arange(count), after.shape)
    end = rows.indices[:, None] * count + below
    parts = (rows.data[:, None] * (1 - share), rows.data[:, None] * share)
    entries, where = np.stack(parts).ravel(), (np.stack([begin, begin]).ravel(), np.stack([end, end + 1]).ravel())
    shape = ((len(rows.indptr) - 1) * count, task.n_states * count)
    return sp.csr_array(sp.coo_array((entries, where), shape=shape))


def divergences(task: TabularCMDP, other: TabularCMDP) -> Floats:
    """[S, A] KL(P(·|s, a) ‖ P'(·|s, a)), the expected nats that a transition tells against the other task."""
    found: Floats = -np.add.reduceat(task.rows.data * np.log(likelihood_ratios(task, other)), task.rows.indptr[:-1])
    return np.maximum(found, 0.0).reshape(task.reward.shape)


def likelihood_ratios(task: TabularCMDP, other: TabularCMDP) -> Floats:
    """[E] how many times as likely each transition is on the other task."""
    endless(task, "the comparison of two tasks")
    here, there = task.rows, other.rows
    if not (np.array_equal(here.indptr, there.indptr) and np.array_equal(here.indices, there.indices)):
        raise InvalidInput("other must have the transitions that task has, with other probabilities, got further ones")
    if not (task.payments.same_as(other.payments) and np.array_equal(task.start, other.start)):
        raise InvalidInput("other must share payments and start with task, got others: a single step tells them apart")
    ratio: Floats = there.data / here.data
    return ratio

"""A lower bound on the regret of every method that keeps its promise (docs, Theorem 11).

A policy that is safe on a more dangerous task earns less. Until a method has ruled that task out it has to deploy what
is safe there; ruling out takes information, and episodes that tell more cost regret of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from scipy.special import rel_entr

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve
from surefoot.tabular.tables import endless

LEVELS = (5, 15, 60)  # of the probability of having left what is safe on an alternative; few for few episodes
RATES = np.geomspace(0.3, 100.0, 6)  # ω: information, in episodes' worth, that a unit of excess regret may buy
PLAIN = np.array([0.0, 0.3, 1.0, 3.0])  # ω': the same for regret that nobody avoids
EXCESSES, ROUNDS = 25, 18  # excess regrets that are told apart, and steps of bisection


@dataclass(frozen=True, eq=False)
class RegretLimits:
    """What is known of alternatives 1 … n, ordered by gap.

    Attributes:
        gap: [n] whoever deploys a policy that is safe on alternative i gives up g_i or more in that episode.
        told: [n] nats against alternative i in a unit of information, at most.
        free: [r, r'] units of information in an episode, at most, beyond ω for each unit of excess regret and ω' for
            each unit of the gap of the most dangerous alternative that its policy is safe on; ω of RATES, ω' of PLAIN.
    """

    gap: Floats
    told: Floats
    free: Floats


def limits(task: TabularCMDP, others: Sequence[TabularCMDP]) -> RegretLimits:
    """Gaps and information by dynamic programming over all policies."""
    best = solve(task)
    here, optimum = np.maximum(best.dual, 0.0), float(best.values.reward)
    nats = np.stack([divergences(task, other) for other in others])
    middle = nats[len(nats) // 2]
    unit = middle / float((middle * best.occupancy).sum())  # an episode of an optimal policy has about one
    gap, free = np.zeros(len(others)), np.full((len(RATES), len(PLAIN)), -np.inf)
    for i, other in enumerate(others):
        there = np.maximum(solve(other).dual, 0.0)
        pairs = [Pair.of(task, other, prices) for prices in (here, (here + there) / 2, there)]
        bounds = [most_reward(pair) for pair in pairs]
        k = int(np.argmin([most for most, _ in bounds]))
        gap[i] = max(0.0, optimum - bounds[k][0])
        found = most_information(pairs[k], unit, RATES, bounds[k][1]) - RATES * (optimum - gap[i])
        free = np.maximum(free, found[:, None] - PLAIN * gap[i])
    order = np.argsort(gap)
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.where(nats > 0, nats / unit, 0.0).max(axis=(1, 2))
    return RegretLimits(gap[order], told[order], free)


def least_regret(known: RegretLimits, episodes: int, risk: float) -> float:
    """No method that is unsafe with probability at most `risk` on each alternative has less expected regret on the task
    in so many episodes.

    The largest R such that nobody can have an excess E and an unavoidable regret N with E + N < R: for every E it
    would be that N < Σ_i (g_i - g_{i-1})·T_i(E, N), which is at most the unavoidable regret.
    """
    low, high = 0.0, float(known.gap[-1]) * episodes
    if not high:
        return 0.0
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        excess = np.concatenate([[0.0], np.geomspace(0.01 * middle, middle, EXCESSES)])
        # T falls with E and N: between two of these, E is at most the second and N at most R less the first.
        out = all(_cautious(known, e, middle - less, episodes, risk) >= middle - less for less, e in pairwise(excess))
        low, high = (middle, high) if out else (low, middle)
    return low


def _cautious(known: RegretLimits, excess: float, unavoidable: float, episodes: int, risk: float) -> float:
    """Σ_i (g_i - g_{i-1})·T_i, each T_i with the rates that make it largest."""
    bought, told = RATES[:, None] * excess + PLAIN * unavoidable, known.told[:, None]
    least = safe_episodes(told * known.free.ravel(), told * bought.ravel(), episodes, risk).max(axis=1)
    return float(np.diff(known.gap, prepend=0.0) @ least)


def safe_episodes(information: Floats, bought: Floats, episodes: int, risk: float) -> Floats:
    """[...] T: the least expected number of episodes, out of `episodes`, before a method first deploys what is unsafe
    on an alternative, if each tells at most `information` nats against it and `bought` [...] come on top of them all.

    With probability p it has by then, kl(p ‖ δ) ≤ information·T + bought, and each episode adds at least 1-p to T.
    """
    found: Floats = np.max(
        [_safe_episodes_on_levels(information, bought, episodes, risk, levels) for levels in LEVELS], axis=0
    )
    return found


def _safe_episodes_on_levels(information: Floats, bought: Floats, episodes: int, risk: float, levels: int) -> Floats:
    """[...] T with p rounded up to one of so many levels: on each T climbs by 1-p an episode, and leaves it within the
    episodes that this takes and one more."""
    p = np.linspace(risk, 1, levels + 1)
    asked = rel_entr(p, risk) + rel_entr(1 - p, 1 - risk)
    level = np.maximum(asked - bought[..., None], 0.0) / np.maximum(information, 1e-200)[..., None]
    climb, rate = np.diff(level, axis=-1), np.maximum(1 - p[1:], 1e-100)
    needed = np.where(climb > 0, np.floor(np.minimum(climb / rate, 1e15)) + 1, 0.0)
    begun = np.cumsum(needed, axis=-1) - needed
    reached = np.minimum(level[..., :-1] + np.maximum(episodes - begun, 0.0) * rate, level[..., 1:])
    found: Floats = np.minimum(np.where(begun <= episodes, reached, 0.0).max(axis=-1), episodes)
    return found


# ---------------------------------------------------------------------------------------------------- two tasks at once
#
# What one policy can do on two tasks: earn on one, keep the budgets of the other, and tell tasks apart. Both share
# states, actions, start, payments and discount, and whatever can happen on one can happen on the other. Policies may
# remember everything, so that no method deploys anything else.


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

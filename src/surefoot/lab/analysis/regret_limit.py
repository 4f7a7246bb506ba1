"""A lower bound on the regret of every method that keeps its promise (docs, Theorem 11).

A policy that is safe on a more dangerous task earns less. Until a method has ruled that task out it has to deploy what
is safe there; ruling out takes information, and episodes that tell more cost regret of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import rel_entr

from surefoot.arrays import Floats
from surefoot.lab.analysis.two_tasks import Pair, divergences, most_information, most_reward
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve

LEVELS = (5, 15, 60)  # of the probability of having left what is safe on an alternative; few for few episodes
RATES = np.geomspace(0.3, 100.0, 6)  # ω: information, in episodes' worth, that a unit of excess regret may buy
PLAIN = np.array([0.0, 0.3, 1.0, 3.0])  # ω': the same for regret that nobody avoids
EXCESSES, ROUNDS = 25, 18  # excess regrets that are told apart, and steps of bisection


@dataclass(frozen=True, eq=False)
class Limits:
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


def limits(task: TabularCMDP, others: Sequence[TabularCMDP]) -> Limits:
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
    return Limits(gap[order], told[order], free)


def least_regret(known: Limits, episodes: int, risk: float) -> float:
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


def _cautious(known: Limits, excess: float, unavoidable: float, episodes: int, risk: float) -> float:
    """Σ_i (g_i - g_{i-1})·T_i, each T_i with the rates that make it largest."""
    bought, told = RATES[:, None] * excess + PLAIN * unavoidable, known.told[:, None]
    least = safe_episodes(told * known.free.ravel(), told * bought.ravel(), episodes, risk).max(axis=1)
    return float(np.diff(known.gap, prepend=0.0) @ least)


def safe_episodes(information: Floats, bought: Floats, episodes: int, risk: float) -> Floats:
    """[...] T: the least expected number of episodes, out of `episodes`, before a method first deploys what is unsafe
    on an alternative, if each tells at most `information` nats against it and `bought` [...] come on top of them all.

    With probability p it has by then, kl(p ‖ δ) ≤ information·T + bought, and each episode adds at least 1-p to T.
    """
    found: Floats = np.max([_climbed(information, bought, episodes, risk, levels) for levels in LEVELS], axis=0)
    return found


def _climbed(information: Floats, bought: Floats, episodes: int, risk: float, levels: int) -> Floats:
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

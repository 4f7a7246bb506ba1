"""The least regret of any method, beside what can be enumerated: all policies of two small tasks, and all tests."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import rel_entr

from surefoot.errors import InvalidInput
from surefoot.lab.analysis.regret_limit import (
    PLAIN,
    RATES,
    Pair,
    divergences,
    least_regret,
    limits,
    most_information,
    most_reward,
    safe_episodes,
)
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve

REST, WORK = 0, 1


def machine(breaks: float, budget: float = 0.3) -> TabularCMDP:
    """A machine that runs or is broken: work pays and breaks it with probability `breaks`, which costs until it is
    repaired; at rest it hardly breaks."""
    runs, broken = [1 - breaks / 10, breaks / 10], [0.5, 0.5]
    transitions = np.array([[runs, [1 - breaks, breaks]], [broken, broken]])
    return TabularCMDP(transitions, [[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]], budget, [1.0, 0.0], 0.6)


# ------------------------------------------------------------------------------------ one policy on two tasks, by trees


def by_tree(task: TabularCMDP, other: TabularCMDP, price: float, told: float, steps: int) -> float:
    """max over policies with memory of E[told·Σ KL] + V_r - price·V'_c within `steps` steps, over every history."""
    nats = divergences(task, other)
    here, there = np.asarray(task.transitions), np.asarray(other.transitions)

    def value(state: int, ratio: float, step: int) -> float:
        if step == steps:
            return 0.0
        worth = []
        for action in range(task.n_actions):
            paid = task.reward[state, action] - price * ratio * other.cost[0, state, action]
            now = told * nats[state, action] + task.discount**step * paid
            then = [
                here[state, action, to]
                * value(to, ratio * there[state, action, to] / here[state, action, to], step + 1)
                for to in range(task.n_states)
            ]
            worth.append(now + sum(then))
        return max(worth)

    return value(0, 1.0, 0)


@pytest.mark.short_for(steps=[8])
@pytest.mark.parametrize(("breaks", "price", "steps"), [(0.5, 1.0, 8), (0.35, 0.5, 9), (0.5, 1.0, 9), (0.35, 2.0, 9)])
def test_rewards_and_information_are_those_of_all_histories(breaks: float, price: float, steps: int) -> None:
    """What a tree of so many steps leaves out is at most what the bounds say of the rest."""
    task, other = machine(0.3), machine(breaks)
    pair = Pair.of(task, other, np.array([price]))
    most, lasting = most_reward(pair)
    tree = by_tree(task, other, price, 0.0, steps) + price * float(other.budget[0])
    rest = task.discount**steps / (1 - task.discount)
    assert tree - price * rest * 3 <= most <= tree + rest + 0.02
    short = TabularCMDP(
        task.transitions, task.reward, task.cost, task.budget, task.start, task.discount, (0.0, 1.0), (0.0, 1.0)
    )
    whole = most_information(pair, divergences(short, other), np.array([0.0, 1.0]), lasting)
    assert whole[1] >= by_tree(task, other, price, 1.0, steps) + price * float(other.budget[0]) - price * rest * 3
    # With no worth of reward it is the policy that works for ever.
    length, work = task.units.episode_length, np.asarray(task.transitions)[:, WORK]
    visits = sum(task.start @ np.linalg.matrix_power(work, t) for t in range(length))
    assert np.isclose(whole[0], visits @ divergences(task, other).max(axis=1))


def test_nobody_earns_more_within_the_budget_of_the_other_task() -> None:
    """Whatever the price: of mixtures of deterministic policies, whose values are linear, by a grid over pairs of them.
    At the best price the bound is nearly reached, where the other task is near; else memory is worth something."""
    task, other = machine(0.3), machine(0.302)
    most = [most_reward(Pair.of(task, other, np.array([price])))[0] for price in np.linspace(0, 6, 61)]
    policies = [TabularPolicy(np.eye(2)[list(choice)]) for choice in product((REST, WORK), repeat=2)]
    earned = np.array([evaluate(task, policy).reward for policy in policies])
    spent = np.array([evaluate(other, policy).cost[0] for policy in policies])
    share = np.linspace(0, 1, 2001)[:, None, None]
    reward = share * earned[:, None] + (1 - share) * earned
    kept = share * spent[:, None] + (1 - share) * spent <= float(other.budget[0])
    best = reward[kept].max()
    assert best <= min(most) <= 1.02 * best


# --------------------------------------------------------------------------------------------------- tests of two coins


def episodes_of_best_test(here: float, there: float, episodes: int, risk: float) -> float:
    """The least E[episodes before a test of level `risk` decides against `there`], of all sequential tests of
    `episodes` tosses of a coin: by Lagrange, min E[time] + μ·P'(decides), over the count of heads, for the best μ."""
    best = 0.0
    for price in np.geomspace(0.1, 1e4, 200):
        heads = np.arange(episodes + 1)
        value = np.zeros(episodes + 1)
        for n in range(episodes - 1, -1, -1):
            k = heads[: n + 1]
            ratio = (there / here) ** k * ((1 - there) / (1 - here)) ** (n - k)
            wait = 1 + here * value[1 : n + 2] + (1 - here) * value[: n + 1]
            value = np.minimum(price * ratio, wait)
        best = max(best, float(value[0]) - price * risk)
    return best


@pytest.mark.short_for(episodes=[40, 60])
@pytest.mark.parametrize(("there", "episodes"), [(0.7, 60), (0.6, 120), (0.8, 40)])
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_no_sequential_test_decides_sooner(there: float, episodes: int, risk: float) -> None:
    """Episodes are tosses of a coin; the best of all tests, by dynamic programming, takes longer than the bound."""
    here = 0.5
    nats = float(rel_entr(here, there) + rel_entr(1 - here, 1 - there))
    bound = float(safe_episodes(np.array(nats), np.array(0.0), episodes, risk))
    exact = episodes_of_best_test(here, there, episodes, risk)
    assert 0.15 * exact < bound <= exact + 1e-9
    bought = float(safe_episodes(np.array(nats), np.array(0.5), episodes, risk))
    assert bought < bound, "information that is bought shortens the wait"
    assert safe_episodes(np.array(0.0), np.array(0.0), episodes, risk) == pytest.approx((1 - risk) * episodes, rel=0.03)


# ------------------------------------------------------------------------------------------------------------ the limit


def test_the_limit_grows_with_episodes_and_falls_with_risk() -> None:
    task, others = machine(0.3), [machine(breaks) for breaks in (0.31, 0.33, 0.36, 0.4)]
    known = limits(task, others)
    assert known.free.shape == (len(RATES), len(PLAIN))
    assert (np.diff(known.gap) >= 0).all()
    assert known.gap[0] > 0
    found = [least_regret(known, episodes, 0.05) for episodes in (10, 100, 1000, 10_000)]
    assert found == sorted(found)
    assert found[-1] < 0.5 * 10_000 * known.gap[-1]
    assert least_regret(known, 1000, 0.2) < least_regret(known, 1000, 0.05)


def test_a_likelihood_ratio_test_with_the_best_policies_has_more_regret() -> None:
    """Whoever knows that it is one of two tasks deploys the best policy for both until the ratio has reached 1/risk,
    and the best one for the task from then on: safe on the other with 1 - risk by Ville, and still above the limit."""
    task, other, episodes, risk = machine(0.3), machine(0.4), 400, 0.05
    limit = least_regret(limits(task, [other]), episodes, risk)
    cautious, bold = solve(other), solve(task)
    gap = bold.values.reward - evaluate(task, cautious.policy).reward
    here, there = (np.asarray(each.transitions) for each in (task, other))
    rng, runs, steps = np.random.default_rng(0), 300, task.units.episode_length
    chances = cautious.policy.probabilities
    waits = []
    for _ in range(runs):
        ratio, waited = 0.0, 0
        while ratio < np.log(1 / risk) and waited < episodes:
            state, waited = 0, waited + 1
            for _ in range(steps):
                action = int(rng.random() < chances[state, WORK])
                to = int(rng.random() < here[state, action, 1])
                ratio += np.log(here[state, action, to] / there[state, action, to])
                state = to
        waits.append(waited)
    regret = gap * np.mean(waits)
    assert 0 < limit <= regret + 3 * gap * np.std(waits) / np.sqrt(runs)
    assert limit > 0.15 * regret


def test_tasks_that_cannot_be_compared_are_refused() -> None:
    task = machine(0.3)
    certain = TabularCMDP(np.eye(2)[[[0, 1], [0, 1]]], task.reward, task.cost, 1.0, [1.0, 0.0], 0.6)
    with pytest.raises(InvalidInput, match="other must have the transitions"):
        divergences(task, certain)
    richer = TabularCMDP(task.transitions, 2 * task.reward, task.cost, 1.0, [1.0, 0.0], 0.6)
    with pytest.raises(InvalidInput, match="other must share payments and start"):
        divergences(task, richer)
    with pytest.raises(InvalidInput, match="prices and costs must not be negative"):
        Pair.of(task, machine(0.4), np.array([-1.0]))

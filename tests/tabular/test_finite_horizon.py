"""Tasks with a horizon: values, visits, episodes and optima against plain sums over steps and independent programs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import surefoot as sf
from random_tasks import random_distributions, seeds
from surefoot.errors import Infeasible, InvalidInput
from surefoot.tabular.lagrangian import solve_lagrangian
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.solve import OccupancyLP, solve_horizon
from surefoot.tabular.tables import endless

discounts = st.sampled_from([1.0, 0.9, 0.3])
horizons = st.integers(1, 5)


def random_task(
    seed: int, horizon: int | None, discount: float, states: int = 3, actions: int = 2, m: int = 1, share: float = 0.5
) -> sf.TabularCMDP:
    """The budget is `share` of the way from what a random policy costs to nothing."""
    rng = np.random.default_rng(seed)
    transitions = random_distributions(rng, (states, actions, states), support=0.7)
    reward, cost = rng.uniform(-1, 2, (states, actions)), rng.uniform(0, 3, (m, states, actions))
    start = random_distributions(rng, (states,))
    ranges: Any = ((-1.0, 2.0), (0.0, 3.0))
    free = sf.TabularCMDP(transitions, reward, cost, np.ones(m), start, discount, *ranges, horizon)
    spent = sf.evaluate(free, np.full((states, actions), 1 / actions)).cost
    return sf.TabularCMDP(transitions, reward, cost, (1.2 - share) * spent, start, discount, *ranges, horizon)


def random_timed(seed: int, steps: int, task: sf.TabularCMDP) -> TimedPolicy:
    shape = (steps, task.n_states, task.n_actions)
    return TimedPolicy(random_distributions(np.random.default_rng(seed), shape, support=0.7))


def by_paths(task: sf.TabularCMDP, table: Any, horizon: int) -> np.ndarray:
    """[1+m] sums over every path of states and actions; `table(t)` [S, A]."""
    signals = np.concatenate([task.reward[None], task.cost])
    total = np.zeros(len(signals))

    def walk(t: int, state: int, probability: float) -> None:
        if t == horizon or not probability:
            return
        for action, share in enumerate(table(t)[state]):
            total[:] += probability * share * task.discount**t * signals[:, state, action]
            for after, chance in enumerate(np.asarray(task.transitions)[state, action]):
                walk(t + 1, after, probability * share * chance)

    for state, probability in enumerate(task.start):
        walk(0, state, probability)
    return total


# --------------------------------------------------------------------------------------------------------------- values


@given(seed=seeds, horizon=st.integers(1, 4), steps=st.integers(1, 6), discount=discounts)
def test_values_are_sums_over_all_paths(seed: int, horizon: int, steps: int, discount: float) -> None:
    """Policies with fewer and with more tables than there are steps."""
    task = random_task(seed, horizon, discount)
    stationary, timed = TabularPolicy(random_timed(seed, 1, task).probabilities[0]), random_timed(seed, steps, task)
    for policy, table in (
        (stationary, lambda t: stationary.probabilities),
        (timed, lambda t: timed.probabilities[min(t, steps - 1)]),
    ):
        expected = by_paths(task, table, horizon)
        values = sf.evaluate(task, policy)
        np.testing.assert_allclose([values.reward, *values.cost], expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(values.margin, task.budget - values.cost, rtol=0, atol=0)
        visits = sf.occupancy(task, policy)
        np.testing.assert_allclose((visits * task.reward).sum(), expected[0], rtol=1e-12, atol=1e-12)
        assert visits.sum() == pytest.approx(1 / task.units.rate, rel=1e-12)
    mixed = sf.evaluate(task, sf.EpisodeMixture((stationary, timed), [0.25, 0.75]))
    parts = [sf.evaluate(task, policy).reward for policy in (stationary, timed)]
    assert mixed.reward == pytest.approx(0.25 * parts[0] + 0.75 * parts[1], abs=1e-12)


@given(seed=seeds, horizon=horizons, steps=st.integers(1, 6))
def test_sparse_tables_say_the_same(seed: int, horizon: int, steps: int) -> None:
    dense = random_task(seed, horizon, 0.9)
    rows = sp.csr_array(np.asarray(dense.transitions).reshape(-1, 3))
    sparse = sf.TabularCMDP(rows, dense.reward, dense.cost, dense.budget, dense.start, 0.9, horizon=horizon)
    policy = random_timed(seed, steps, dense)
    assert sf.evaluate(sparse, policy).reward == pytest.approx(sf.evaluate(dense, policy).reward, abs=1e-12)
    np.testing.assert_allclose(sf.occupancy(sparse, policy), sf.occupancy(dense, policy), atol=1e-12)
    assert sparse.optimum() == pytest.approx(dense.optimum(), abs=1e-9, nan_ok=True)


def test_a_long_horizon_is_as_good_as_none() -> None:
    task, long = (random_task(3, horizon, 0.9) for horizon in (None, 600))
    policy = random_timed(3, 4, task)
    assert sf.evaluate(long, policy).reward == pytest.approx(sf.evaluate(task, policy).reward, rel=1e-12)
    np.testing.assert_allclose(sf.occupancy(long, policy), sf.occupancy(task, policy), rtol=1e-10, atol=1e-12)
    assert solve_lagrangian(long, task.units.budget * 0).values.reward == pytest.approx(long.optimum(), rel=1e-12)


@given(seed=seeds, steps=st.integers(1, 4))
def test_visits_of_a_timed_policy_without_a_horizon(seed: int, steps: int) -> None:
    task = random_task(seed, None, 0.8)
    policy = random_timed(seed, steps, task)
    visits = sf.occupancy(task, policy)
    assert (visits * task.reward).sum() == pytest.approx(sf.evaluate(task, policy).reward, rel=1e-11, abs=1e-11)
    assert visits.sum() == pytest.approx(5, rel=1e-12)


# ------------------------------------------------------------------------------------------------------------- episodes


@given(seed=seeds, horizon=horizons, steps=st.integers(1, 8))
def test_episodes_end_at_the_horizon_and_are_otherwise_the_same(seed: int, horizon: int, steps: int) -> None:
    task, unending = random_task(seed, horizon, 0.9), random_task(seed, None, 0.9)
    policy = random_timed(seed, 3, task)
    length = min(horizon, steps)
    found, expected = (
        one.episodes(policy, count).run(40, np.random.default_rng(seed), transitions=True)
        for one, count in ((task, steps), (unending, length))
    )
    assert found.states is not None
    assert found.states.shape == (40, length + 1)
    for name in ("reward", "cost", "states", "actions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_episodes_have_the_exact_values_on_average() -> None:
    task = random_task(5, 4, 1.0)
    policy = random_timed(5, 4, task)
    outcomes = task.episodes(policy, 10).run(40_000, np.random.default_rng(0))
    error = outcomes.reward.std() / 200
    assert abs(outcomes.reward.mean() - task.values(policy).reward) < 5 * error
    shorter = task.episodes(policy, 3).run(40_000, np.random.default_rng(0))  # the mutant: one step less
    assert abs(shorter.reward.mean() - task.values(policy).reward) > 5 * error


# -------------------------------------------------------------------------------------------------------------- optima


def by_linprog(task: sf.TabularCMDP, limit: np.ndarray, horizon: int) -> float | None:
    """The largest reward over discounted visits d_t(s, a), written down entry by entry; None if there are none."""
    S, A = task.reward.shape
    place = {key: k for k, key in enumerate(itertools.product(range(horizon), range(S), range(A)))}
    equations, right = np.zeros((horizon * S, len(place))), np.zeros(horizon * S)
    right[:S] = task.start
    for (t, s, a), column in place.items():
        equations[t * S + s, column] += 1
        for after in range(S):
            if t + 1 < horizon:
                equations[(t + 1) * S + after, column] -= task.discount * np.asarray(task.transitions)[s, a, after]
    reward = [task.reward[s, a] for _, s, a in place]
    costs = [[cost[s, a] for _, s, a in place] for cost in task.cost]
    found = linprog(-np.array(reward), costs, limit, equations, right, method="highs")
    return -float(found.fun) if found.status == 0 else None


@given(seed=seeds, horizon=horizons, discount=discounts, m=st.integers(1, 2), share=st.floats(0.0, 0.6))
def test_optima_are_those_of_an_independent_program(
    seed: int, horizon: int, discount: float, m: int, share: float
) -> None:
    task = random_task(seed, horizon, discount, m=m, share=share)
    best = by_linprog(task, task.budget, horizon)
    if best is None:
        with pytest.raises(Infeasible):
            sf.solve(task)
        assert np.isnan(task.optimum())
        return
    for solution in (sf.solve(task), solve_horizon(task)):
        assert isinstance(solution.policy, TimedPolicy)
        assert solution.policy.probabilities.shape == (horizon, 3, 2)
        assert solution.values.reward == pytest.approx(best, abs=1e-7)
        assert (solution.values.margin >= -1e-9).all()
        assert solution.values.reward == sf.evaluate(task, solution.policy).reward
        assert (solution.dual >= 0).all()
        assert solution.dual @ solution.values.margin == pytest.approx(0, abs=1e-6)
        np.testing.assert_array_equal(solution.occupancy, sf.occupancy(task, solution.policy))
    assert task.optimum() == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("m", [1, 2])
def test_no_mixture_of_deterministic_policies_does_better(seed: int, m: int) -> None:
    """All 2^(2·3) timed deterministic policies of 3 steps, mixed in the best way; and the least cost of any of them."""
    task = random_task(seed, 3, 1.0, states=2, m=m, share=0.2)
    choices = itertools.product(range(2), repeat=6)
    every = [sf.evaluate(task, TimedPolicy(np.eye(2)[np.reshape(choice, (3, 2))])) for choice in choices]
    rewards, costs = np.array([v.reward for v in every]), np.array([v.cost for v in every])
    mixed = linprog(-rewards, costs.T, task.budget, np.ones((1, 64)), [1.0], method="highs")
    assert sf.solve(task).values.reward == pytest.approx(-mixed.fun, abs=1e-8)
    if m == 1:
        with pytest.raises(Infeasible, match="the least achievable cost is") as caught:
            sf.solve(task, tighten=task.budget[0] - costs.min() + 1e-6)
        assert caught.value.least_cost == pytest.approx(costs.min(), abs=1e-9)
    for solver in (sf.solve, solve_horizon):
        with pytest.raises(Infeasible, match="tightened by") as caught:
            solver(task, tighten=100.0)
        excess = linprog(
            np.append(np.zeros(64), 1.0),
            np.column_stack([costs.T, -np.ones(m)]),
            task.budget,
            np.append(np.ones((1, 64)), [[0.0]], axis=1),
            [1.0],
            bounds=[(0, None)] * 64 + [(None, None)],
        ).fun
        assert (caught.value.least_cost - task.budget).max() == pytest.approx(excess, abs=1e-8)


@given(seed=seeds, amount=st.floats(0.0, 0.2))
def test_tightening_is_a_smaller_budget(seed: int, amount: float) -> None:
    task = random_task(seed, 4, 0.9, share=0.2)
    best = by_linprog(task, task.budget - amount, 4)
    if best is None:
        with pytest.raises(Infeasible):
            sf.solve(task, tighten=amount)
    else:
        assert sf.solve(task, tighten=amount).values.reward == pytest.approx(best, abs=1e-7)


@given(seed=seeds, m=st.integers(1, 2))
def test_what_is_never_visited_is_still_played_well(seed: int, m: int) -> None:
    """From every state and step on, the policy is the best for r - dual·c, as the multipliers say."""
    task = random_task(seed, 4, 0.9, states=5, m=m, share=0.3)
    start = np.eye(5)[0]
    task = sf.TabularCMDP(task.transitions, task.reward, task.cost, task.budget, start, 0.9, horizon=4)
    try:
        found = solve_horizon(task) if m == 1 else sf.solve(task)
    except Infeasible:
        return
    signal = task.reward - np.tensordot(found.dual, task.cost, 1)
    best, followed = np.zeros(5), np.zeros(5)
    for table in found.policy.probabilities[::-1]:
        ahead = [signal + 0.9 * np.asarray(task.transitions) @ onwards for onwards in (best, followed)]
        best, followed = ahead[0].max(axis=1), (table * ahead[1]).sum(axis=1)
        np.testing.assert_allclose(followed, best, atol=1e-7)


def test_layers_of_states_are_the_same_task() -> None:
    """`tasks.layered` writes a horizon as layers of states and grows the signals; here it is a number."""
    task = random_task(8, 6, 1.0, share=0.4)
    layers = sf.tasks.layered(task.transitions, task.reward, task.cost, task.budget, task.start, 6)
    assert task.optimum() == pytest.approx(layers.optimum(), rel=1e-8)


def test_many_are_solved_as_one_is() -> None:
    tasks = [random_task(seed, 4, 1.0, m=m, share=0.2) for seed, m in ((1, 1), (2, 2), (3, 1))] + [
        random_task(4, None, 0.9, share=0.2)
    ]
    for task, solution in zip(tasks, sf.solve_many(tasks), strict=True):
        assert solution.values.reward == pytest.approx(sf.solve(task).values.reward, abs=1e-9)


def test_a_large_task_takes_no_time_to_speak_of() -> None:
    """The linear program of this one takes minutes; backward induction finds the same to the last digits."""
    task = random_task(0, 200, 1.0, states=20, actions=4)
    found = sf.solve(task)
    assert found.values.margin == pytest.approx([0.0], abs=1e-10)
    above, below = (sf.solve(task, tighten=-delta).values.reward for delta in (1e-3, -1e-3))
    assert below < found.values.reward < above
    assert (above - below) / 2e-3 == pytest.approx(found.dual[0], rel=1e-3)


# ------------------------------------------------------------------------------------------------------------- refusals


def test_what_sums_without_end_refuses_a_horizon() -> None:
    task = random_task(0, 5, 0.9)
    assert "horizon=5" in repr(task)
    endless(random_task(0, None, 0.9), "this")
    with pytest.raises(InvalidInput, match="that is for tasks without a horizon, got one with horizon 5"):
        endless(task, "that")
    with pytest.raises(InvalidInput, match=r"linear program .* got one with horizon 5"):
        OccupancyLP().solve(task)
    with pytest.raises(InvalidInput, match="tasks must share one horizon, got 5 and None"):
        sf.distance(task, random_task(0, None, 0.9))


@given(seed=seeds, other=seeds)
def test_the_distance_bounds_values_with_a_horizon_too(seed: int, other: int) -> None:
    """Lemma 2 of the paper, with the γ' for which 1/(1-γ') is the length of an episode."""
    pair = [random_task(one, 4, 0.9) for one in (seed, other)]
    budget = pair[0].budget
    a, b = (
        sf.TabularCMDP(one.transitions, one.reward, one.cost, budget, one.start, 0.9, (-1, 2), (0, 3), 4)
        for one in pair
    )
    policy = random_timed(seed, 4, a)
    first, second = sf.evaluate(a, policy), sf.evaluate(b, policy)
    length = 1 / a.units.rate
    bound = sf.distance(a, b) * (1 + 1 + a.units.effective_discount * length) * length
    assert abs(first.reward - second.reward) / a.units.reward_scale <= bound + 1e-12
    assert np.abs(first.margin - second.margin).max() / a.units.cost_scale.min() <= bound + 1e-12

"""Budgets on the tail of the cost: against a program over whole histories, and against every trajectory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.errors import Infeasible, InvalidInput
from surefoot.tasks.cvar_tasks import (
    Tail,
    conditional_value_at_risk,
    cost_distribution,
    cvar,
    cvar_threshold,
    with_tail,
)

STATES, ACTIONS, STEPS = 3, 2, 3
seeds = st.integers(0, 2**32 - 1)


def random_task(seed: int, unit: float = 1.0) -> sf.TabularCMDP:
    rng = np.random.default_rng(seed)
    return sf.TabularCMDP(
        rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS)),
        rng.random((STATES, ACTIONS)),
        unit * rng.integers(0, 4, (STATES, ACTIONS)),
        1.0,
        rng.dirichlet(np.ones(STATES)),
        1.0,
        reward_range=(0.0, 1.0),
        cost_range=(0.0, 3.0 * unit),
        horizon=STEPS,
    )


def histories(task: sf.TabularCMDP) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All states and actions of an episode."""
    return [
        (states, actions)
        for states in itertools.product(range(STATES), repeat=STEPS)
        for actions in itertools.product(range(ACTIONS), repeat=STEPS)
    ]


def best_of_all_histories(task: sf.TabularCMDP, tail: Tail) -> float:
    """The optimum over policies that remember everything, by a linear program over realisation weights: a variable per
    history up to an action, whose sum over actions is the weight of the history before them; NaN if infeasible."""
    index: dict[tuple[int, ...], int] = {}
    for length in range(1, STEPS + 1):
        for history in itertools.product(*([range(STATES), range(ACTIONS)] * length)):
            index[history] = len(index)
    rows, right = [], []
    for length in range(STEPS):
        for before in itertools.product(*([range(STATES), range(ACTIONS)] * length)):
            for state in range(STATES):
                row = np.zeros(len(index))
                for action in range(ACTIONS):
                    row[index[(*before, state, action)]] = 1.0
                if before:
                    row[index[before]] -= 1.0
                rows.append(row)
                right.append(0.0 if before else 1.0)
    reward, excess = np.zeros(len(index)), np.zeros(len(index))
    for states, actions in histories(task):
        chance, path = task.start[states[0]], tuple(itertools.chain(*zip(states, actions, strict=True)))
        for t in range(STEPS - 1):
            chance *= np.asarray(task.transitions)[states[t], actions[t], states[t + 1]]
        pairs = list(zip(states, actions, strict=True))
        reward[index[path]] = chance * sum(task.reward[pair] for pair in pairs)
        excess[index[path]] = chance * max(sum(task.cost[0][pair] for pair in pairs) - tail.threshold, 0.0)
    found = linprog(-reward, excess[None], [tail.allowed], np.array(rows), right, bounds=(0, None), method="highs")
    return float(-found.fun) if found.status == 0 else float("nan")


@settings(max_examples=12, deadline=None)
@given(seeds, st.integers(0, 4), st.sampled_from([0.3, 0.7, 0.9]))
def test_nothing_is_lost_to_policies_that_remember_everything(seed: int, threshold: int, level: float) -> None:
    task, tail = random_task(seed), Tail(level, 5.0, float(threshold))
    own, expected = with_tail(task, tail).optimum(), best_of_all_histories(task, tail)
    assert np.isnan(own) == np.isnan(expected)
    assert np.isnan(own) or own == pytest.approx(expected, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(0, 4), st.sampled_from([0.3, 0.7, 0.9]), st.sampled_from([1.0, 0.25]))
def test_the_best_policy_keeps_the_budget_in_the_tail(seed: int, threshold: int, level: float, unit: float) -> None:
    """Its distribution from every trajectory, and CVaR as the mean of the worst share of episodes."""
    task, tail = random_task(seed, unit), Tail(level, 5.0 * unit, threshold * unit, unit)
    augmented = with_tail(task, tail)
    try:
        policy = sf.solve(augmented).policy
    except Infeasible:
        return
    costs, chances = cost_distribution(task, policy, tail)
    by_hand: dict[float, float] = {}
    for states, actions in histories(task):
        chance, so_far = task.start[states[0]], 0.0
        for t, (state, action) in enumerate(zip(states, actions, strict=True)):
            level_now = min(round(so_far / unit), tail.levels - 1)
            chance *= policy.probabilities[min(t, len(policy.probabilities) - 1), level_now * STATES + state, action]
            so_far += task.cost[0][state, action]
            if t + 1 < STEPS:
                chance *= np.asarray(task.transitions)[state, action, states[t + 1]]
        by_hand[round(so_far, 9)] = by_hand.get(round(so_far, 9), 0.0) + chance
    assert costs == pytest.approx(sorted(cost for cost, chance in by_hand.items() if chance > 0))
    assert chances == pytest.approx([by_hand[round(cost, 9)] for cost in costs], abs=1e-12)
    assert worst_share(costs, chances, level) == pytest.approx(conditional_value_at_risk(costs, chances, level))
    assert worst_share(costs, chances, level) <= tail.budget + 1e-6
    excess = float(np.maximum(costs - tail.threshold, 0) @ chances)
    assert sf.evaluate(augmented, policy).cost[0] == pytest.approx(excess, abs=1e-9)


def worst_share(costs: np.ndarray, chances: np.ndarray, level: float) -> float:
    """The mean of the worst 1-α of all episodes."""
    left, total = 1 - level, 0.0
    for cost, chance in sorted(zip(costs, chances, strict=True), reverse=True):
        total += min(left, chance) * cost
        left -= min(left, chance)
    return total / (1 - level)


def test_the_best_threshold_is_the_best_of_all() -> None:
    task = random_task(0)
    best = cvar_threshold(task, level=0.8, budget=6.0)
    earned = {float(t): with_tail(task, Tail(0.8, 6.0, float(t))).optimum() for t in range(7)}
    assert 0 < best < 6
    assert earned[best] == np.nanmax(list(earned.values()))
    with pytest.raises(Infeasible):
        cvar_threshold(expensive(), level=0.8, budget=1.0)


def expensive() -> sf.TabularCMDP:
    return sf.TabularCMDP(np.ones((1, 1, 1)), [[1.0]], [[1.0]], 9.0, [1.0], 1.0, horizon=4, cost_range=(0.0, 1.0))


def test_costs_that_are_no_multiples_are_rounded_up() -> None:
    task = sf.TabularCMDP(np.ones((1, 1, 1)), [[1.0]], [[0.7]], 9.0, [1.0], 1.0, horizon=4, cost_range=(0.0, 1.0))
    rounded = with_tail(task, Tail(0.5, 9.0, 2.0, 0.5))
    policy = sf.solve(rounded).policy
    assert sf.evaluate(rounded, policy).cost[0] == pytest.approx(4 * 1.0 - 2.0)


def test_a_family_trains_and_adapts() -> None:
    """From nothing but the family: every deployed policy keeps the budget in its tail on a fresh task."""
    tail = Tail(0.8, 5.0, 3.0)
    base = [random_task(seed) for seed in (14, 17, 18)]
    tailed = cvar(sf.tasks.from_arrays(base), tail)
    policies = sf.train(tailed, epsilon=0.1, delta=0.1, xi=None, seed=0, progress=False)
    run = sf.adapt(policies, tailed.task(1.0), method="certified", episodes=300, seed=1)
    assert not run.unsafe.any()
    for policy in policies.policies[:1]:
        costs, chances = cost_distribution(base[1], policy, tail)
        assert conditional_value_at_risk(costs, chances, tail.level) <= tail.budget + 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": 1.0}, "level must"),
        ({"threshold": 6.0}, "threshold must lie between 0 and the budget, 5.0, got 6.0"),
        ({"threshold": -1.0}, "threshold must lie between 0 and the budget"),
        ({"threshold": 0.5}, "threshold must be a multiple of the unit"),
        ({"unit": 0.0}, "unit must be positive, got 0.0"),
    ],
)
def test_tails_are_checked(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Tail(**{"level": 0.9, "budget": 5.0, "threshold": 1.0, **change})


def test_tasks_are_checked() -> None:
    tail = Tail(0.9, 5.0, 1.0)
    with pytest.raises(InvalidInput, match="horizon and discount 1"):
        cvar(sf.tasks.gridworld(), tail)
    with pytest.raises(InvalidInput, match="tasks must be tables, got GlucoseTask"):
        cvar(sf.tasks.glucose(), tail)
    with pytest.raises(InvalidInput, match="tail must be a Tail"):
        cvar(sf.tasks.gridworld(), 0.9)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tasks must be a task distribution"):
        cvar(random_task(0), tail)  # type: ignore[arg-type]
    two = sf.TabularCMDP(np.ones((1, 1, 1)), [[1.0]], np.ones((2, 1, 1)), [9.0, 9.0], [1.0], 1.0, horizon=4)
    with pytest.raises(InvalidInput, match="one cost, paid by state and action, got 2"):
        cvar(sf.tasks.from_arrays([two]), tail)
    below = sf.TabularCMDP(np.ones((1, 1, 1)), [[1.0]], [[-1.0]], 9.0, [1.0], 1.0, horizon=4, cost_range=(-1.0, 1.0))
    with pytest.raises(InvalidInput, match=r"cost_range must begin at 0 or above, got \[-1.0, 1.0\]"):
        cvar(sf.tasks.from_arrays([below]), tail)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"cost": [[[0.0, 1.0]], [[1.0, 0.0]]]}, "one cost, paid by state and action, got 1 paid by transition"),
        ({"discount": 0.9}, "horizon and discount 1"),
    ],
)
def test_every_task_of_a_family_is_checked_and_not_its_example_alone(second: dict[str, Any], message: str) -> None:
    def build(parameter: Floats) -> sf.TabularCMDP:
        arrays = {"cost": [[0.5], [0.5]], "discount": 1.0, **(second if parameter[0] > 0.5 else {})}
        return sf.TabularCMDP(
            np.full((2, 1, 2), 0.5), [[1.0]] * 2, budget=9.0, start=[1, 0], cost_range=(0.0, 1.0), horizon=4, **arrays
        )

    tasks = cvar(sf.tasks.family(build, sf.tasks.Finite([0.0, 1.0])), Tail(0.9, 5.0, 1.0))
    tasks.task([0.0])
    with pytest.raises(InvalidInput, match=message):
        tasks.task([1.0])

"""The benchmarks of the baselines' authors: their tables by hand, and layered tasks against finite-horizon programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import surefoot as sf
from random_tasks import random_arrays, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.families.dope_benchmarks import DEMAND, _stock_transitions, inventory_signals
from surefoot.lab.families.two_walls import WALLS
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.solve import solve
from surefoot.tasks import factored, inventory, layered, media, two_walls
from surefoot.tasks.layered_tasks import default_discount
from surefoot.tasks.task_distribution import TaskDistribution

LP_TOLERANCE = 1e-7  # of the two solvers together

LAYERED: dict[str, tuple[Callable[[], TaskDistribution], float, int, int]] = {
    # family, the authors' parameter, base states, horizon
    "factored": (factored, 0.0, 3, 6),
    "media": (media, 0.8, 10, 10),
    "inventory": (inventory, 0.0, 6, 7),
}


def base_tables(name: str) -> tuple[Floats, Floats, Floats]:
    """(transitions [S, A, S], reward [S, A], cost [S, A]) of the authors' task, written down from their definitions."""
    if name == "factored":
        transitions = np.zeros((3, 2, 3))
        reward, cost = np.zeros((3, 2)), np.zeros((3, 2))
        for s in range(3):
            transitions[s, 0, s] = transitions[s, 1, (s + 1) % 3] = 1.0
            reward[s, 1], cost[s, 1] = (s + 1) / 3, 1.0
        return transitions, reward, cost
    if name == "media":
        transitions = np.zeros((10, 2, 10))
        for s in range(10):
            for a, mu in enumerate((0.9, 0.1)):
                transitions[s, a, s] += mu * 0.8 + (1 - mu) * 0.2
                transitions[s, a, min(s + 1, 9)] += mu * 0.2
                transitions[s, a, max(s - 1, 0)] += (1 - mu) * 0.8
        reward = np.ones((10, 2))
        reward[0] = 0.0
        return transitions, reward, np.tile([1.0, 0.0], (10, 1))
    demand = [0.3, 0.2, 0.2, 0.2, 0.05, 0.05]
    transitions, reward, cost = np.zeros((6, 6, 6)), np.zeros((6, 6)), np.zeros((6, 6))
    for s in range(6):
        for a in range(6):
            order = min(a, 5 - s)
            for d in range(6):
                transitions[s, a, max(s + order - d, 0)] += demand[d]
            for d in range(s + order + 1):
                reward[s, a] += transitions[s, a, s + order - d] * 8 * d / 100
            cost[s, a] = (4 + 2 * order if order else 0) + s + order
    return transitions, reward / reward.max(), cost / cost.max()


def finite_horizon_optimum(
    transitions: Floats, reward: Floats, cost: Floats, budget: float, start: Floats, horizon: int
) -> float:
    """max Σ_h q_h·r over q [H, S, A] with flow from step to step and Σ_h q_h·c ≤ budget, undiscounted."""
    S, A = reward.shape
    size = S * A
    flow = np.zeros((horizon * S, horizon * size))
    sums = np.kron(np.eye(S), np.ones(A))  # [S, S·A] Σ_a q(s, a)
    arrivals = transitions.reshape(size, S).T
    for h in range(horizon):
        flow[h * S : (h + 1) * S, h * size : (h + 1) * size] = sums
        if h:
            flow[h * S : (h + 1) * S, (h - 1) * size : h * size] = -arrivals
    found = linprog(
        -np.tile(reward.ravel(), horizon),
        A_ub=np.tile(cost.ravel(), horizon)[None],
        b_ub=[budget],
        A_eq=flow,
        b_eq=np.concatenate([start, np.zeros((horizon - 1) * S)]),
    )
    assert found.status == 0
    return float(-found.fun)


# ------------------------------------------------------------------------------------------------------ layered tasks


@given(seeds, st.integers(1, 4), st.sampled_from([None, 0.3, 0.9]))
def test_the_optimum_is_that_of_the_finite_horizon_program(seed: int, horizon: int, discount: float | None) -> None:
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, states=3, actions=2)
    transitions, start = arrays["transitions"], arrays["start"]
    reward, cost = rng.random((3, 2)), rng.random((3, 2))
    least = -finite_horizon_optimum(transitions, -cost, np.zeros_like(cost), 1.0, start, horizon)
    budget = least + 0.3 * horizon * rng.random()
    expected = finite_horizon_optimum(transitions, reward, cost, budget, start, horizon)
    solution = solve(layered(transitions, reward, cost, budget, start, horizon, discount))
    assert solution.values.reward == pytest.approx(expected, abs=LP_TOLERANCE * horizon)
    assert solution.values.cost[0] <= budget + LP_TOLERANCE


@pytest.mark.parametrize("discount", [None, 0.5, 0.99])
def test_discounted_sums_of_an_episode_are_the_undiscounted_sums_of_its_steps(discount: float | None) -> None:
    rng = np.random.default_rng(0)
    arrays = random_arrays(rng, states=4, actions=3)
    reward, cost = rng.uniform(-1, 2, (4, 3)), rng.uniform(0, 2, (2, 4, 3))
    horizon = 5
    task = layered(arrays["transitions"], reward, cost, (3.0, 4.0), arrays["start"], horizon, discount)
    policy = TabularPolicy(rng.dirichlet(np.ones(3), task.n_states))
    outcomes = Simulator(task, policy, horizon).run(200, rng, transitions=True)
    assert outcomes.states is not None
    assert outcomes.actions is not None
    layer, base = np.divmod(outcomes.states[:, :-1], 4)
    np.testing.assert_array_equal(layer, np.tile(np.arange(horizon), (200, 1)))
    assert (outcomes.states[:, -1] == horizon * 4).all()
    np.testing.assert_allclose(outcomes.reward, reward[base, outcomes.actions].sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(outcomes.cost.T, cost[:, base, outcomes.actions].sum(axis=2), rtol=1e-12)
    short, longer = (Simulator(task, policy, steps).run(200, np.random.default_rng(1)) for steps in (horizon, 12))
    np.testing.assert_array_equal(short.reward, longer.reward)  # nothing comes after the end


def test_values_do_not_depend_on_the_discount() -> None:
    transitions, reward, cost = base_tables("media")
    policy = np.random.default_rng(0).dirichlet(np.ones(2), 101)
    values = [
        evaluate(layered(transitions, reward, cost, 5.0, np.eye(10)[0], 10, discount), policy)
        for discount in (0.3, 0.9, 0.99)
    ]
    assert values[0].reward == pytest.approx(values[1].reward, rel=1e-9)
    assert values[2].cost[0] == pytest.approx(values[1].cost[0], rel=1e-9)


@pytest.mark.parametrize("horizon", [0, -3, 2.0, True])
def test_horizon_must_be_a_number_of_steps(horizon: Any) -> None:
    with pytest.raises(InvalidInput, match="horizon must be a whole number of at least 1"):
        layered(np.ones((1, 1, 1)), [[1.0]], [[1.0]], 1.0, [1.0], horizon)


def test_default_discount_has_the_smallest_range() -> None:
    def largest(discount: float, horizon: int) -> float:
        return float(discount ** -(horizon - 1) / (1 - discount))

    for horizon in (2, 6, 10):
        best = min(np.linspace(0.01, 0.99, 981), key=lambda discount: largest(discount, horizon))
        assert default_discount(horizon) == pytest.approx(best, abs=0.001)


# --------------------------------------------------------------------------------------------------- the benchmarks


@pytest.mark.parametrize("name", LAYERED)
def test_tables_are_the_authors(name: str) -> None:
    family, parameter, states, horizon = LAYERED[name]
    task = family().task(parameter)
    transitions, reward, cost = base_tables(name)
    assert task.n_states == horizon * states + 1
    gamma = task.discount
    for h in range(horizon):
        layer = slice(h * states, (h + 1) * states)
        np.testing.assert_allclose(task.reward[layer], reward * gamma**-h, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(task.cost[0, layer], cost * gamma**-h, rtol=1e-12, atol=1e-15)
        if h < horizon - 1:
            following = slice((h + 1) * states, (h + 2) * states)
            np.testing.assert_allclose(task.transitions[layer, :, following], transitions, rtol=0, atol=1e-15)
    assert (task.transitions[-1, :, -1] == 1).all()
    assert task.budget[0] == horizon / 2
    assert task.start[0] == 1


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_the_optimum_and_the_safe_policy_are_the_authors(name: str, share: float) -> None:
    """`share` 0.2 is their baseline policy: the optimum for a fifth of the budget."""
    family, parameter, states, horizon = LAYERED[name]
    task = family().task(parameter)
    solution = solve(task, tighten=(1 - share) * task.budget)
    expected = finite_horizon_optimum(*base_tables(name), share * horizon / 2, np.eye(states)[0], horizon)
    assert solution.values.reward == pytest.approx(expected, abs=LP_TOLERANCE)
    assert solution.values.cost[0] == pytest.approx(share * horizon / 2, abs=LP_TOLERANCE)


def test_known_optima() -> None:
    """Once round the ring brings 1/3 + 2/3 + 1 for a cost of 3, and nothing better costs as little."""
    assert solve(factored().task(0.0)).values.reward == pytest.approx(2.0, abs=1e-9)
    assert solve(two_walls().task(0.1)).values.reward == pytest.approx(1.07483758, abs=5e-9)


def test_inventory_tables_by_hand() -> None:
    reward, cost = inventory_signals(_stock_transitions(np.array(DEMAND)))
    assert cost.max() == 1
    assert cost[0, 5] == 1  # ordering five from nothing: 4 + 10 and 5 to hold
    assert cost[5, 0] == pytest.approx(5 / 19)
    assert cost[5, 5] == cost[5, 0]  # nothing fits: nothing is ordered
    assert reward[0, 0] == 0
    # One unit in store: it is sold if demand is 1, or whatever more (the authors' weights), at 0.08.
    most = 0.08 * (0.2 * 1 + 0.2 * 2 + 0.2 * 3 + 0.05 * 4 + 0.05 * 5)
    assert reward[0, 5] == pytest.approx(1.0)
    assert reward[1, 0] == pytest.approx(0.08 * 0.7 / most)


def test_failure_drain_and_shift_move_the_right_probabilities() -> None:
    ring = factored().task(0.2)
    np.testing.assert_allclose(ring.transitions[0, 1, [3, 4, 5]], [0.2, 0.8, 0.0])
    np.testing.assert_allclose(ring.transitions[2, 1, [3, 4, 5]], [0.8, 0.0, 0.2])
    buffer = media().task(0.7)
    np.testing.assert_allclose(buffer.transitions[4, 0, [13, 14, 15]], [0.07, 0.66, 0.27])
    np.testing.assert_allclose(buffer.transitions[0, 1, [10, 11]], [0.97, 0.03])
    store = inventory().task(0.1)
    np.testing.assert_allclose(store.transitions[2, 3, 6:12], [0.05, 0.05, 0.3, 0.2, 0.2, 0.2], atol=1e-15)
    np.testing.assert_allclose(store.transitions[1, 0, [6, 7]], [0.8, 0.2])


def test_two_walls_by_hand() -> None:
    task = two_walls().task(0.1)
    np.testing.assert_allclose(task.transitions[0, 0, [0, 1, 6]], [0.05, 0.925, 0.025])
    assert (task.transitions[15, :, 15] == 1).all()
    assert task.reward[15, 0] == 1
    assert [np.flatnonzero(task.cost[k, :, 0]).tolist() for k in (0, 1)] == [[7, 8, 9, 10], [19, 20, 21, 22]]
    np.testing.assert_allclose(task.start[[0, 15, *WALLS[0], *WALLS[1]]], [1 / 28] * 2 + [0.0] * 8)


# ---------------------------------------------------------------------------------------------------------- families


FAMILIES: dict[str, tuple[Callable[[], TaskDistribution], float]] = {
    **{name: (family, parameter) for name, (family, parameter, _, _) in LAYERED.items()},
    "two-walls": (two_walls, 0.1),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_authors_task_can_be_drawn(name: str) -> None:
    family, parameter = FAMILIES[name]
    low, high = family().distribution.support[0]
    assert low <= parameter <= high


def test_a_certified_method_runs_on_a_layered_family() -> None:
    family = inventory()
    task = family.task(0.03)
    with pytest.warns(UserWarning, match="theorem does not apply"):
        policies = sf.train(family, epsilon=0.05, delta=0.2, seed=0, progress=False, cells=50)
    run = sf.adapt(policies, task, method="certified-likelihood", episodes=300, seed=0, horizon=7)
    assert run.unsafe_episodes == 0
    assert 0 < run.regret[-1] - run.regret[-100] < 0.1 * 100 * run.optimal_reward
    # At the optimum in the limit: no certified policy keeps more than the width of a cell from the budget.
    assert run.margin[-1] < run.margin[0]

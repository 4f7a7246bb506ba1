"""The maintenance family: against a model with random rewards and no coin in its state, and why to adapt at all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from surefoot.lab.families.maintenance import (
    BREAKS,
    BROKEN,
    CONDITIONS,
    MAINTAIN,
    NOTHING,
    OUTCOMES,
    PART,
    PRODUCT,
    RUN,
    RUN_GENTLY,
    SPILL,
    STATES,
)
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.solve import solve
from surefoot.tasks import maintenance

TASKS = maintenance()
wears, scraps = st.floats(0.02, 0.2), st.floats(0, 0.2)


def plain_model(wear: float, scrap: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Over conditions only: transitions [7, 3, 7], mean reward [7, 3], mean costs [2, 7, 3], from the words."""
    transitions, reward, cost = np.zeros((7, 3, 7)), np.zeros((7, 3)), np.zeros((2, 7, 3))
    for condition in range(6):
        for action, worn, product in (
            (RUN, wear, 1 - wear - scrap),
            (RUN_GENTLY, wear / 4, 0.6 - wear / 4 - 0.6 * scrap),
        ):
            breaks = worn * (0, 0.1, 0.2, 0.35, 0.6, 1)[condition]
            transitions[condition, action, condition] += 1 - worn
            transitions[condition, action, min(condition + 1, 5)] += worn - breaks
            transitions[condition, action, 6] += breaks
            reward[condition, action] = product
            cost[0, condition, action] = breaks / 2
        transitions[condition, MAINTAIN, 0] += 0.9
        transitions[condition, MAINTAIN, condition] += 0.1
        cost[1, condition, MAINTAIN] = 0.5
    transitions[6, [RUN, RUN_GENTLY], 6] = 1
    transitions[6, MAINTAIN, [0, 6]] = 0.5
    cost[1, 6, MAINTAIN] = 1
    return transitions, reward, cost


@given(wears, scraps, st.integers(0, 2**32 - 1))
def test_values_are_those_of_random_rewards_one_step_later(wear: float, scrap: float, seed: int) -> None:
    """A policy that ignores outcomes: γ times its value where rewards and costs are random and not in the state."""
    transitions, reward, cost = plain_model(wear, scrap)
    by_condition = np.random.default_rng(seed).dirichlet(np.ones(3), 7)
    chain = np.einsum("sa,sat->st", by_condition, transitions)
    per_state = np.einsum("ksa,sa->sk", np.concatenate([reward[None], cost]), by_condition)
    expected = np.linalg.solve(np.eye(7) - 0.95 * chain, per_state)[:3].mean(axis=0)
    values = evaluate(TASKS.task([wear, scrap]), np.repeat(by_condition, 4, axis=0))
    np.testing.assert_allclose([values.reward, *values.cost], 0.95 * expected, rtol=1e-9)


@pytest.mark.parametrize("parameter", [(0.05, 0.1), (0.1, 0.1), (0.17, 0.03)])
def test_seeing_the_coin_is_no_advantage(parameter: tuple[float, float]) -> None:
    """The optimum equals that of the linear program over conditions, with budgets that are one step nearer."""
    transitions, reward, cost = plain_model(*parameter)
    flow = np.kron(np.eye(7), np.ones((1, 3))) - 0.95 * transitions.reshape(-1, 7).T
    start = np.array([1, 1, 1, 0, 0, 0, 0]) / 3
    program = scipy.optimize.linprog(
        -reward.ravel(), A_ub=cost.reshape(2, -1), b_ub=np.array([0.1, 0.5]) / 0.95, A_eq=flow, b_eq=start
    )
    assert program.status == 0
    assert solve(TASKS.task(parameter)).values.reward == pytest.approx(-0.95 * program.fun, abs=1e-5)


def test_rewards_and_costs_are_random_given_condition_and_action() -> None:
    task = TASKS.task([0.1, 0.1])
    after_run = task.transitions[4 * 3 + NOTHING, RUN]
    assert after_run @ task.reward[:, 0] == pytest.approx(0.8)  # paid in the next state: 1 or 0
    assert after_run @ task.cost[0, :, 0] == pytest.approx(0.1 * BREAKS[3] / 2)
    assert task.transitions[4 * 3, MAINTAIN] @ task.cost[1, :, 0] == pytest.approx(0.5)
    assert set(np.unique(task.reward)) == set(np.unique(task.cost)) == {0.0, 1.0}


def test_reward_and_costs_are_functions_of_the_outcome() -> None:
    task = TASKS.task([0.1, 0.1])
    assert (STATES, CONDITIONS, BROKEN, task.n_actions, task.n_constraints) == (28, 6, 6, 3, 2)
    outcome = np.arange(STATES) % len(OUTCOMES)
    for table, paid in ((task.reward, PRODUCT), (task.cost[0], SPILL), (task.cost[1], PART)):
        np.testing.assert_array_equal(table, np.repeat((outcome == paid)[:, None], 3, axis=1))
    assert np.flatnonzero(task.start).tolist() == [0, 4, 8]
    assert task.units.cost_range.tolist() == [[0, 1], [0, 1]]
    assert (task.budget.tolist(), task.discount) == ([0.1, 0.5], 0.95)
    # What the coin showed changes nothing that comes after it.
    by_condition = task.transitions.reshape(7, 4, 3, STATES)
    np.testing.assert_array_equal(by_condition, np.repeat(by_condition[:, :1], 4, axis=1))


# --------------------------------------------------------------------------------------------------- family and metric


# --------------------------------------------------------------------------------------------- safety and what it costs


def test_both_constraints_bind_and_adapting_pays() -> None:
    safe = solve(TASKS.task(TASKS.safe_parameter)).policy
    for parameter in ([0.1, 0.1], [0.13, 0.15], [0.16, 0.05]):
        task = TASKS.task(parameter)
        best = solve(task)
        np.testing.assert_allclose(best.values.margin, 0, rtol=0, atol=1e-7)
        assert (best.dual > 1).all()
        assert evaluate(task, safe).reward < 0.95 * best.values.reward
    policy = solve(TASKS.task([0.1, 0.1])).policy
    assert (evaluate(TASKS.task([0.13, 0.1]), policy).margin < -0.01).all()


def test_little_wear_makes_the_constraints_idle() -> None:
    best = solve(TASKS.task([0.03, 0.1]))
    assert (best.values.margin > 0.01).all()
    np.testing.assert_allclose(best.dual, 0, rtol=0, atol=1e-9)


@given(wears, scraps, scraps)
def test_scrap_changes_no_cost_of_a_policy_that_ignores_outcomes(wear: float, scrap: float, scrap_2: float) -> None:
    by_condition = np.repeat(np.eye(3)[[RUN, RUN, RUN_GENTLY, RUN, MAINTAIN, MAINTAIN, MAINTAIN]], 4, axis=0)
    first, second = (evaluate(TASKS.task([wear, each]), by_condition) for each in (scrap, scrap_2))
    np.testing.assert_allclose(first.cost, second.cost, rtol=1e-9)
    assert (first.reward - second.reward) * (scrap - scrap_2) <= 1e-12


# --------------------------------------------------------------------------------------------- recipe, digest, refusals

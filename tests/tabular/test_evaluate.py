"""Exact evaluation against power series, rational arithmetic, plain simulation and flow equations."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from random_tasks import as_sparse, random_arrays, random_cmdp, random_policy, random_sparse_cmdp, seeds, task_arrays
from surefoot.arrays import Floats
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.tabular import evaluate as evaluate_module
from surefoot.tabular.evaluate import (
    WIDE_DENSE_LIMIT,
    evaluate,
    occupancy,
    solve_discounted,
    state_values,
)
from surefoot.tabular.model import TabularCMDP

LARGE = WIDE_DENSE_LIMIT + 500


def signals(cmdp: TabularCMDP) -> Floats:
    """[1+m, S, A] reward and costs."""
    return np.concatenate([cmdp.reward[None], cmdp.cost])


# ------------------------------------------------------------------------------------------- a second way to the value


@given(task=task_arrays())
def test_against_the_power_series(task: Any) -> None:
    arrays, rng = task
    cmdp, policy = TabularCMDP(**arrays), random_policy(rng, TabularCMDP(**arrays))
    transitions, probabilities = arrays["transitions"], policy.probabilities
    steps = math.ceil(math.log(1e-14) / math.log(cmdp.discount))
    law, total = cmdp.start.copy(), np.zeros(1 + cmdp.n_constraints)
    visits = np.zeros_like(probabilities)
    for t in range(steps):
        joint = law[:, None] * probabilities
        visits += cmdp.discount**t * joint
        total += cmdp.discount**t * np.array([(joint * table).sum() for table in signals(cmdp)])
        law = sum(joint[s, a] * transitions[s, a] for s in range(cmdp.n_states) for a in range(cmdp.n_actions))
    scale = 1e-12 * np.abs(signals(cmdp)).max() / (1 - cmdp.discount)
    for task_layout in (cmdp, TabularCMDP(**as_sparse(arrays))):
        values = evaluate(task_layout, policy)
        assert abs(values.reward - total[0]) < scale
        assert np.abs(values.cost - total[1:]).max() < scale
        assert np.array_equal(values.margin, cmdp.budget - values.cost)
        assert np.abs(occupancy(task_layout, policy) - visits).max() < 1e-12 / (1 - cmdp.discount)
    assert isinstance(values.reward, float)


@pytest.mark.parametrize("discount", [0.5, 0.999, 1 - 2**-20, 1 - 2**-30])
def test_against_rational_arithmetic_up_to_discounts_close_to_one(discount: float) -> None:
    """Gaussian elimination on the same binary numbers as exact fractions."""
    rng = np.random.default_rng(5)
    arrays = random_arrays(rng, states=4, actions=2, constraints=2, discount=discount)
    cmdp = TabularCMDP(**arrays)
    policy = random_policy(rng, cmdp)
    P, pi = (np.vectorize(Fraction, otypes=[object])(x) for x in (arrays["transitions"], policy.probabilities))
    chain = [[sum(pi[s, a] * P[s, a, t] for a in range(2)) for t in range(4)] for s in range(4)]
    system = [[Fraction(int(s == t)) - Fraction(discount) * chain[s][t] for t in range(4)] for s in range(4)]
    start = [Fraction(float(x)) for x in cmdp.start]
    exact = []
    for table in signals(cmdp):
        right = [sum(pi[s, a] * Fraction(float(table[s, a])) for a in range(2)) for s in range(4)]
        exact.append(float(sum(p * x for p, x in zip(start, solve_fractions(system, right), strict=True))))
    values = evaluate(cmdp, policy)
    # Rounding of I - γP is amplified by its condition, 1/(1-γ): no solver in floating point can keep those digits.
    accuracy = 1e-14 / (1 - discount) + 1e-13
    assert values.reward == pytest.approx(exact[0], rel=accuracy)
    assert values.cost == pytest.approx(exact[1:], rel=accuracy)


def solve_fractions(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        rows[k] = [x / rows[k][k] for x in rows[k]]  # I - γP is diagonally dominant: no pivoting
        for i in range(len(rows)):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def test_against_plain_simulation() -> None:
    """2000 episodes by Python loops; four mean values within 4.5 standard errors: false alarm 3e-5."""
    rng = np.random.default_rng(7)
    cmdp = random_cmdp(rng, states=3, actions=2, discount=0.8)
    first, second = random_policy(rng, cmdp), random_policy(rng, cmdp)
    coin = random.Random(7)
    horizon = math.ceil(math.log(1e-6) / math.log(cmdp.discount))

    def draw(weights: list[float]) -> int:
        return coin.choices(range(len(weights)), weights)[0]

    def episode(probabilities: Floats) -> tuple[float, float]:
        state, reward, cost = draw(cmdp.start.tolist()), 0.0, 0.0
        for t in range(horizon):
            action = draw(probabilities[state].tolist())
            reward += cmdp.discount**t * cmdp.reward[state, action]
            cost += cmdp.discount**t * cmdp.cost[0, state, action]
            state = draw(cmdp.transitions[state, action].tolist())
        return reward, cost

    mixture = EpisodeMixture((first, second), [0.3, 0.7])
    exact = [evaluate(cmdp, policy) for policy in (first, mixture)]
    single = np.array([episode(first.probabilities) for _ in range(1000)])
    mixed = np.array([episode((first if coin.random() < 0.3 else second).probabilities) for _ in range(1000)])
    for values, returns in zip(exact, (single, mixed), strict=True):
        error = 4.5 * returns.std(axis=0) / math.sqrt(len(returns)) + 1e-4
        assert (np.abs(returns.mean(axis=0) - [values.reward, values.cost[0]]) < error).all()
    # The test has power: it tells the two policies apart.
    assert abs(single[:, 0].mean() - exact[1].reward) > 4.5 * single[:, 0].std() / math.sqrt(1000)


def test_closed_forms() -> None:
    """A cycle of three states that pays in state 0 only is worth 1/(1-γ³) there and γ^(steps to go) of it elsewhere."""
    transitions = np.roll(np.eye(3), 1, axis=1)[:, None, :]
    discount = 0.9
    cmdp = TabularCMDP(transitions, [1.0, 0, 0], [0, 1.0, 0], 0, [0.2, 0.3, 0.5], discount)
    worth = 1 / (1 - discount**3)
    values = state_values(cmdp, np.ones((3, 1)))
    assert np.allclose(values[0], worth * discount ** np.array([0, 2, 1]), rtol=1e-14)
    assert np.allclose(values[1], worth * discount ** np.array([1, 0, 2]), rtol=1e-14)
    expected = worth * (0.2 + 0.3 * discount**2 + 0.5 * discount)
    assert evaluate(cmdp, np.ones((3, 1))).reward == pytest.approx(expected, rel=1e-14)


# ---------------------------------------------------------------------------------------------------------- occupancy


def check_occupancy(cmdp: TabularCMDP, policy: Any, digits: float) -> None:
    visits = occupancy(cmdp, policy)
    total = 1 / (1 - cmdp.discount)
    assert visits.shape == (cmdp.n_states, cmdp.n_actions)
    assert visits.min() >= -digits * total
    assert visits.sum() == pytest.approx(total, rel=digits)
    inflow = cmdp.start + cmdp.discount * (cmdp.rows.T @ visits.ravel())
    assert np.abs(visits.sum(axis=1) - inflow).sum() < digits * total
    values = evaluate(cmdp, policy)
    scale = digits * total * np.abs(signals(cmdp)).max()
    assert (visits * cmdp.reward).sum() == pytest.approx(values.reward, abs=scale)
    assert np.einsum("sa,msa->m", visits, cmdp.cost) == pytest.approx(values.cost, abs=scale)


@given(task=task_arrays(), sparse=st.booleans())
def test_occupancy_identities(task: Any, sparse: bool) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**(as_sparse(arrays) if sparse else arrays))
    check_occupancy(cmdp, random_policy(rng, cmdp), digits=1e-12)


@given(task=task_arrays())
def test_occupancy_recovers_the_policy_where_it_goes(task: Any) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**arrays)
    policy = random_policy(rng, cmdp)
    visits = occupancy(cmdp, policy)
    visited = visits.sum(axis=1) > 1e-9
    recovered = visits[visited] / visits[visited].sum(axis=1, keepdims=True)
    assert np.allclose(recovered, policy.probabilities[visited], rtol=0, atol=1e-12)


# --------------------------------------------------------------------------------------------------------- large tasks


@settings(max_examples=settings.default.max_examples // 4)
@given(seed=seeds, discount=st.sampled_from([0.9, 0.99, 0.999]), point_start=st.booleans())
def test_large_sparse_tasks_against_a_dense_factorisation(seed: int, discount: float, point_start: bool) -> None:
    rng = np.random.default_rng(seed)
    cmdp = random_sparse_cmdp(rng, LARGE, constraints=2, discount=discount)
    if point_start:  # the whole mass in one entry is the hard case of the transposed system
        start = np.zeros(LARGE)
        start[rng.integers(LARGE)] = 1
        cmdp = TabularCMDP(cmdp.transitions, cmdp.reward, cmdp.cost, cmdp.budget, start, discount)
    policy = random_policy(rng, cmdp)
    per_state = np.einsum("ksa,sa->sk", signals(cmdp), policy.probabilities)
    system = np.eye(LARGE) - discount * cmdp.kernel(policy.probabilities).toarray()
    expected = np.linalg.solve(system, per_state).T
    assert np.abs(state_values(cmdp, policy.probabilities) - expected).max() < 3e-12 / (1 - discount)
    visits = occupancy(cmdp, policy).sum(axis=1)
    assert np.abs(visits - np.linalg.solve(system.T, cmdp.start)).sum() < 3e-12 / (1 - discount)


def test_large_sparse_tasks_do_not_take_the_dense_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def dense(*_: Any) -> Any:
        raise AssertionError("a large sparse system was solved densely")

    monkeypatch.setattr(np.linalg, "solve", dense)
    monkeypatch.setattr(evaluate_module.spla, "splu", dense)
    cmdp = random_sparse_cmdp(np.random.default_rng(0), LARGE)
    check_occupancy(cmdp, random_policy(np.random.default_rng(1), cmdp), digits=5e-12)


@pytest.mark.parametrize("answer", [0.0, np.nan, 1.0])
def test_krylov_failure_falls_back_to_a_factorisation(monkeypatch: pytest.MonkeyPatch, answer: float) -> None:
    monkeypatch.setattr(evaluate_module.spla, "bicgstab", lambda _, right, **__: (np.full_like(right, answer), -10))
    monkeypatch.setattr(evaluate_module, "is_narrow", lambda _: False)
    states, discount = LARGE, 0.99
    cycle = sp.csr_array((np.ones(states), (np.arange(states), (np.arange(states) + 1) % states)))
    pays = np.zeros((states, 2))
    pays[0, 0] = 1  # the second column is zero: its solution is zero whatever the method
    expected = discount ** (-np.arange(states) % states) / (1 - discount**states)
    solved = solve_discounted(cycle, pays, discount)
    assert np.allclose(solved[:, 0], expected, rtol=1e-12, atol=0)
    assert not solved[:, 1].any()


def test_occupancy_errors_may_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of 1e-13 in each of many states is invisible in the maximum norm; visits must be right as a sum."""
    solve, calls = evaluate_module.spla.bicgstab, []

    def spoiled(matrix: Any, right: Floats, **options: Any) -> tuple[Floats, int]:
        calls.append(1)
        if len(calls) > 1:
            return solve(matrix, right, **options)
        return np.linalg.solve(matrix.toarray(), right) + 1e-13, 0

    monkeypatch.setattr(evaluate_module.spla, "bicgstab", spoiled)
    cmdp = random_sparse_cmdp(np.random.default_rng(0), LARGE)
    start = np.eye(LARGE)[3]
    cmdp = TabularCMDP(cmdp.transitions, cmdp.reward, cmdp.cost, cmdp.budget, start, cmdp.discount)
    visits = occupancy(cmdp, random_policy(np.random.default_rng(1), cmdp))
    assert visits.sum() == pytest.approx(10, rel=5e-12)
    assert len(calls) > 1


@pytest.mark.parametrize("discount", [0.9, 0.999, 0.99999])
def test_long_cycle_has_a_closed_form(discount: float) -> None:
    """One step per state: the shape on which Krylov methods need as many iterations as there are states."""
    states = LARGE
    cycle = sp.csr_array((np.ones(states), (np.arange(states), (np.arange(states) + 1) % states)))
    pays = np.zeros((states, 1))
    pays[0] = 1
    ahead = discount ** (-np.arange(states) % states) / (1 - discount**states)
    behind = discount ** np.arange(states) / (1 - discount**states)
    assert np.abs(solve_discounted(cycle, pays, discount)[:, 0] - ahead).max() < 1e-12 / (1 - discount)
    solved = solve_discounted(cycle.T, pays, discount, order=1)[:, 0]
    assert np.abs(solved - behind).sum() < 1e-12 / (1 - discount)


# ------------------------------------------------------------------------------ several constraints, several policies


@given(task=task_arrays())
def test_constraints_do_not_influence_each_other(task: Any) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**arrays)
    policy = random_policy(rng, cmdp)
    together = evaluate(cmdp, policy)
    for i in range(cmdp.n_constraints):
        alone = evaluate(TabularCMDP(**{**arrays, "cost": arrays["cost"][i], "budget": arrays["budget"][i]}), policy)
        assert alone.reward == pytest.approx(together.reward, rel=1e-12, abs=1e-12)
        assert alone.cost == pytest.approx(together.cost[[i]], rel=1e-12, abs=1e-12)
        assert alone.margin == pytest.approx(together.margin[[i]], rel=1e-12, abs=1e-10)


def walk(states: int, kind: str) -> sp.csr_array:
    """A chain on a square grid, one that also ends in a single state from anywhere, or one that leads anywhere."""
    rng = np.random.default_rng(0)
    side = int(np.sqrt(states))
    if kind == "anywhere":
        successors = rng.integers(states, size=(states, 4))
    else:
        x, y = np.divmod(np.arange(states), side)
        moves = [((x + dx) % side) * side + (y + dy) % side for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0))]
        successors = np.stack(moves, axis=1)
        if kind == "ending":
            successors[:, 0] = states - 1
    weights = rng.dirichlet(np.ones(4), size=states)
    return sp.csr_array((weights.ravel(), (np.repeat(np.arange(states), 4), successors.ravel())), (states, states))


@pytest.mark.parametrize("states", [20**2, 34**2])
@pytest.mark.parametrize(("kind", "narrow"), [("grid", True), ("ending", True), ("anywhere", False)])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_way_to_solve_a_chain_agrees_with_the_dense_one(
    states: int, kind: str, narrow: bool, transposed: bool
) -> None:
    chain = walk(states, kind)
    assert evaluate_module.is_narrow(chain) == narrow
    chain = sp.csr_array(chain.T) if transposed else chain
    right = np.random.default_rng(1).normal(size=(states, 3))
    found = solve_discounted(chain, right, 0.99, order=1 if transposed else np.inf)
    expected = np.linalg.solve(np.eye(states) - 0.99 * chain.toarray(), right)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@given(seeds, st.booleans())
def test_values_of_many_policies_are_those_of_each(seed: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(rng, constraints=2, sparse=sparse)
    policies = np.stack([random_policy(rng, cmdp).probabilities for _ in range(3)])
    expected = [state_values(cmdp, probabilities) for probabilities in policies]
    np.testing.assert_allclose(evaluate_module.values_of_each(cmdp, policies), expected, rtol=1e-10, atol=1e-10)

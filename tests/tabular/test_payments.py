"""Rewards and costs on transitions: values, optima, episodes and evidence are those of the expected tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from random_tasks import random_arrays, random_policy, seeds
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.counts import count_transitions, impossible_episodes, no_counts
from surefoot.tabular import transition_model
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.transition_model import ball_model

S, A = 4, 3


def on_transitions(rng: np.random.Generator, constraints: int = 1) -> dict[str, Any]:
    """Arguments of a task that pays on transitions, [S, A, S] and [m, S, A, S], costs of either sign."""
    arrays = random_arrays(rng, S, A, constraints)
    reward, cost = rng.normal(size=(S, A, S)), rng.normal(size=(constraints, S, A, S))
    budget = np.full(constraints, 100.0)
    return {**arrays, "reward": reward, "cost": cost, "budget": budget}


def by_pairs(arrays: dict[str, Any]) -> dict[str, Any]:
    """The same with what a state and an action pay on average."""
    P = arrays["transitions"]
    return {**arrays, "reward": (P * arrays["reward"]).sum(axis=2), "cost": (P * arrays["cost"]).sum(axis=3)}


@given(seeds, st.integers(1, 3))
def test_values_and_optima_are_those_of_the_average(seed: int, constraints: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = on_transitions(rng, constraints)
    task, plain = TabularCMDP(**arrays), TabularCMDP(**by_pairs(arrays))
    policy = random_policy(rng, task)
    np.testing.assert_allclose(task.reward, plain.reward, rtol=0, atol=1e-14)
    np.testing.assert_allclose(task.cost, plain.cost, rtol=0, atol=1e-14)
    assert sf.evaluate(task, policy).reward == pytest.approx(sf.evaluate(plain, policy).reward, abs=1e-11)
    np.testing.assert_allclose(sf.evaluate(task, policy).cost, sf.evaluate(plain, policy).cost, atol=1e-11)
    assert sf.solve(task).values.reward == pytest.approx(sf.solve(plain).values.reward, abs=1e-8)


@given(seeds)
def test_episodes_pay_what_their_transitions_pay(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = on_transitions(rng, 2)
    task = TabularCMDP(**arrays)
    policy = random_policy(rng, task)
    outcomes = Simulator(task, policy, 12).run(20, rng, transitions=True)
    weights = task.discount ** np.arange(12)
    for k in range(20):
        states, actions = outcomes.states[k].astype(int), outcomes.actions[k].astype(int)
        steps = states[:-1], actions, states[1:]
        assert outcomes.reward[k] == pytest.approx(weights @ arrays["reward"][steps], abs=1e-12)
        np.testing.assert_allclose(outcomes.cost[k], arrays["cost"][:, *steps] @ weights, atol=1e-12)


def test_many_episodes_pay_the_value_on_average() -> None:
    rng = np.random.default_rng(1)
    task = TabularCMDP(**on_transitions(rng))
    policy = random_policy(rng, task)
    outcomes = Simulator(task, policy, 200).run(20_000, rng)
    values = sf.evaluate(task, policy)
    for sums, value in ((outcomes.reward, values.reward), (outcomes.cost[:, 0], values.cost[0])):
        assert abs(sums.mean() - value) < 4.5 * sums.std() / np.sqrt(len(sums))


@given(seeds)
def test_sparse_payments_are_the_same_task(seed: int) -> None:
    arrays = on_transitions(np.random.default_rng(seed), 2)
    rows = {name: arrays[name].reshape(S * A, S) for name in ("transitions", "reward")}
    costs = [sp.csr_array(cost.reshape(S * A, S)) for cost in arrays["cost"]]
    sparse = TabularCMDP(**{**arrays, **{name: sp.csr_array(table) for name, table in rows.items()}, "cost": costs})
    dense = TabularCMDP(**arrays)
    assert sparse.is_sparse
    assert sparse.payments.same_as(dense.payments)
    np.testing.assert_allclose(sparse.cost, dense.cost, atol=1e-14)
    assert dense.digest() != TabularCMDP(**by_pairs(arrays)).digest()


def test_one_signal_may_be_on_transitions_and_another_not() -> None:
    arrays = on_transitions(np.random.default_rng(2))
    mixed = TabularCMDP(**{**arrays, "cost": by_pairs(arrays)["cost"]})
    np.testing.assert_allclose(mixed.cost, TabularCMDP(**arrays).cost, atol=1e-14)
    paid = mixed.payments.at(np.array([0]), np.array([1]), np.array([2]))
    np.testing.assert_allclose(paid, [[arrays["reward"][0, 1, 2], mixed.cost[0, 0, 1]]])


def test_as_many_constraints_as_states_and_actions_are_told_apart_by_the_budgets() -> None:
    rng = np.random.default_rng(3)
    arrays = random_arrays(rng, 3, 3)
    cost = rng.random((3, 3, 3))
    several = TabularCMDP(**{**arrays, "cost": cost, "budget": [50.0, 50.0, 50.0]})
    assert several.n_constraints == 3
    assert not several.payments.by_transition
    one = TabularCMDP(**{**arrays, "cost": cost, "budget": 50.0})
    assert one.n_constraints == 1
    np.testing.assert_allclose(one.cost[0], (arrays["transitions"] * cost).sum(axis=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros((S, A, S + 1))}, "reward must have shape [4, 3], [4] or [4, 3, 4], got [4, 3, 5]"),
        ({"cost": np.zeros((2, S, A, S, 1))}, "cost must have shape"),
        ({"reward": sp.csr_array(np.zeros((S, S)))}, "reward must have shape [12, 4] as a sparse matrix"),
        ({"reward": np.full((S, A, S), np.nan)}, "reward[0, 0, 0] must be finite, got nan"),
        ({"reward_range": (0.0, 1e-9)}, "must lie in reward_range [0.0, 1e-09]"),
        ({"cost_range": (0.0, 1e-9)}, "must lie in cost_range"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TabularCMDP(**{**on_transitions(np.random.default_rng(0)), **changes})
    assert message in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize("largest", [2**22, 0])
def test_sums_that_the_transitions_do_not_pay_contradict_every_cell(
    monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    """By a table of places, and by searching for them as in large models."""
    monkeypatch.setattr(transition_model, "LARGEST_TABLE", largest)
    rng = np.random.default_rng(4)
    task = TabularCMDP(**on_transitions(rng, 2))
    model = ball_model([task, task], np.zeros(2))
    assert model is not None
    assert model.payments is not None
    outcomes = Simulator(task, random_policy(rng, task), 12).run(30, rng, transitions=True)
    assert not impossible_episodes(outcomes, model, task.units, exact=True).any()
    counted = count_transitions(no_counts(model), outcomes, model, task.units)
    assert not counted.contradicted
    seen = np.zeros((S, A, S))
    states = outcomes.states.astype(int)
    np.add.at(seen, (states[:, :-1], outcomes.actions.astype(int), states[:, 1:]), 1)
    np.testing.assert_array_equal(counted.transitions, seen[model.class_table >= 0])
    outcomes.reward[3] += 1e-2
    outcomes.cost[5, 1] -= 1e-2
    expected = np.isin(np.arange(30), [3, 5])
    np.testing.assert_array_equal(impossible_episodes(outcomes, model, task.units, exact=True), expected)


def test_a_model_makes_the_tasks_it_was_made_from() -> None:
    rng = np.random.default_rng(5)
    arrays = on_transitions(rng, 2)
    other = random_arrays(rng, S, A)["transitions"]

    def build(theta: np.ndarray) -> TabularCMDP:
        mixed = {**arrays, "transitions": (1 - theta[0]) * arrays["transitions"] + theta[0] * other}
        return TabularCMDP(**mixed, reward_range=(-9, 9), cost_range=(-9, 9))

    tasks = sf.tasks.family(build, sf.tasks.Uniform(0.2, 0.6))
    policies = sf.train(tasks, epsilon=0.1, delta=0.1, seed=0, progress=False, cells=30)
    assert policies.cells is not None
    model = policies.cells.model
    assert model is not None
    assert model.affine is not None
    again, truth = model.task(np.array([0.41]), policies.units), tasks.task([0.41])
    np.testing.assert_allclose(again.rows.toarray(), truth.rows.toarray(), atol=1e-14)
    np.testing.assert_allclose(again.reward, truth.reward, atol=1e-13)
    np.testing.assert_allclose(again.cost, truth.cost, atol=1e-13)

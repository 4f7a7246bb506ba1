"""Policies are checked once, and a mixture is drawn once per episode."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import random_arrays, random_cmdp, random_distributions, random_policy, seeds, task_arrays
from surefoot.cmdp.policy import EpisodeMixture, Policy
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, as_tabular


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, np.nan, 0.5], "policy[1, 1] must be finite, got nan"),
        ([0.5, 0.5, np.inf], "policy[1, 2] must be finite, got inf"),
        ([-np.inf, 0.5, 0.5], "policy[1, 0] must be finite, got -inf"),
        ([1.0 + 1e-12, -1e-12, 0.0], "policy[1, 1] must not be negative, got -1e-12"),
        ([1.5, 0.0, -0.5], "policy[1, 2] must not be negative, got -0.5"),
        ([0.5, 0.5, 2e-9], "policy[1] must sum to 1 (within 1e-09), got 1.000000002"),
        ([0.5, 0.25, 0.0], "policy[1] must sum to 1 (within 1e-09), got 0.75"),
    ],
)
def test_a_row_that_is_no_distribution_is_refused(row: list[float], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TabularPolicy(np.array([[0.2, 0.3, 0.5], row]))
    assert str(caught.value) == message


@given(seed=seeds, shape=st.tuples(st.integers(1, 5), st.integers(2, 4)))
def test_rows_that_sum_to_one_but_for_a_little_are_divided_by_their_sum(seed: int, shape: tuple[int, int]) -> None:
    probabilities = random_distributions(np.random.default_rng(seed), shape)
    found = TabularPolicy(probabilities * (1 + 5e-10)).probabilities
    assert np.allclose(found, probabilities, rtol=1e-14, atol=0)


@pytest.mark.parametrize("shape", [(3,), (), (2, 3, 1), (0, 3), (3, 0)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"policy must have shape \[S, A\], got") as caught:
        TabularPolicy(np.ones(shape))
    assert str(list(shape)) in str(caught.value)


def test_policy_of_another_task() -> None:
    cmdp = random_cmdp(np.random.default_rng(0), states=4, actions=3)
    for policy in (np.full((3, 4), 0.25), TabularPolicy(np.full((3, 4), 0.25))):
        with pytest.raises(InvalidInput, match=r"policy must have shape \[4, 3\] for this task, got \[3, 4\]"):
            evaluate(cmdp, policy)


@pytest.mark.parametrize("junk", ["greedy", [[1.0], [0.5, 0.5]], EpisodeMixture((1,), np.ones(1)), {"a": 1}])
def test_what_is_not_a_policy_is_named(junk: Any) -> None:
    with pytest.raises(InvalidInput, match="policy must be an array of numbers, got " + type(junk).__name__):
        as_tabular(junk, (2, 2))


def test_probabilities_are_copied_and_read_only() -> None:
    given_array = np.array([[0.25, 0.75], [1, 0]])
    policy = TabularPolicy(given_array)
    given_array[0] = 9
    assert policy.probabilities.tolist() == [[0.25, 0.75], [1, 0]]
    with pytest.raises(ValueError, match="read-only"):
        policy.probabilities[0, 0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.probabilities = given_array
    assert as_tabular(policy, (2, 2)) is policy
    assert as_tabular([[0.25, 0.75], [1, 0]], (2, 2)).probabilities.tolist() == [[0.25, 0.75], [1, 0]]


def test_round_trip_through_arrays() -> None:
    policy = TabularPolicy(random_distributions(np.random.default_rng(0), (5, 3)))
    assert isinstance(policy, Policy)
    again = TabularPolicy.from_arrays(policy.to_arrays())
    assert np.array_equal(again.probabilities, policy.probabilities)


def test_actions_are_drawn_with_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    policy = TabularPolicy(np.array([[0.2, 0.5, 0.3], [0, 0, 1]]))
    n = 4000
    counts = np.bincount([policy.act(0, 0, rng) for _ in range(n)], minlength=3)
    spread = np.sqrt(n * policy.probabilities[0] * (1 - policy.probabilities[0]))
    assert (np.abs(counts - n * policy.probabilities[0]) < 4.5 * spread).all()
    assert {policy.act(1, 0, rng) for _ in range(50)} == {2}


# ------------------------------------------------------------------------------------------------------------- mixtures


@pytest.mark.parametrize(
    "weights", [[0.5, 0.4], [1.1, -0.1], [1.0], [0.5, 0.5, 0.0], 1.0, [[0.5, 0.5]], [np.nan, 1], [0.5, 0.5 + 2e-9]]
)
def test_mixture_weights_are_checked(weights: Any) -> None:
    with pytest.raises(InvalidInput, match=r"weights(\[0\])? must") as caught:
        EpisodeMixture(("a", "b"), weights)
    assert "got " in str(caught.value)
    with pytest.raises(InvalidInput, match="weights must have one entry per component"):
        EpisodeMixture((), np.zeros(0))


def test_components_are_drawn_with_their_weights() -> None:
    rng = np.random.default_rng(1)
    given_weights = np.array([0.1, 0.0, 0.9])
    mixture = EpisodeMixture(["a", "b", "c"], given_weights)
    given_weights[:] = 1
    assert mixture.components == ("a", "b", "c")
    assert mixture.weights.tolist() == [0.1, 0, 0.9]
    n = 4000
    drawn = [mixture.draw(rng) for _ in range(n)]
    assert "b" not in drawn
    assert abs(drawn.count("a") - 0.1 * n) < 4.5 * np.sqrt(n * 0.1 * 0.9)


@given(task=task_arrays(), count=st.integers(1, 4))
def test_values_are_linear_in_the_weights(task: Any, count: int) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**arrays)
    policies = [random_policy(rng, cmdp) for _ in range(count)]
    weights = random_distributions(rng, (count,), support=0.6)
    mixed = evaluate(cmdp, EpisodeMixture(tuple(policies), weights))
    each = [evaluate(cmdp, policy) for policy in policies]
    scale = 1e-13 * 20 / (1 - cmdp.discount)
    assert mixed.reward == pytest.approx(sum(w * v.reward for w, v in zip(weights, each, strict=True)), abs=scale)
    assert np.allclose(mixed.cost, sum(w * v.cost for w, v in zip(weights, each, strict=True)), rtol=0, atol=scale)
    assert np.allclose(mixed.margin, cmdp.budget - mixed.cost, rtol=0, atol=0)

    nested = EpisodeMixture((EpisodeMixture(tuple(policies), weights), policies[0].probabilities), [0.3, 0.7])
    assert evaluate(cmdp, nested).reward == pytest.approx(0.3 * mixed.reward + 0.7 * each[0].reward, abs=scale)


def test_mixing_actions_state_by_state_is_another_policy() -> None:
    """A lock with two digits: action 1 in state 0, then action 1 in state 1, pays 1 once in state 2.

    Opening it half of the episodes is worth γ²/2; pressing 1 half of the time in every state opens it with
    probability 1/4 only, so it is worth γ²/4.
    """
    transitions = np.zeros((4, 2, 4))
    transitions[:, 0, 3] = 1  # a wrong digit leads to the dead end 3
    transitions[0, 1, 1] = transitions[1, 1, 2] = transitions[2:, 1, 3] = 1
    discount = 0.9
    prize = np.array([0, 0, 1.0, 0])
    cmdp = TabularCMDP(transitions, prize, prize, 1, [1, 0, 0, 0], discount)
    never, always = TabularPolicy(np.tile([1, 0], (4, 1))), TabularPolicy(np.tile([0, 1], (4, 1)))

    per_episode = evaluate(cmdp, EpisodeMixture((never, always), [0.5, 0.5]))
    per_state = evaluate(cmdp, (never.probabilities + always.probabilities) / 2)
    assert per_episode.reward == pytest.approx(discount**2 / 2, rel=1e-14)
    assert per_state.reward == pytest.approx(discount**2 / 4, rel=1e-14)
    assert per_episode.cost == pytest.approx([discount**2 / 2], rel=1e-14)


def test_one_state_tasks_do_not_distinguish_the_two_mixtures() -> None:
    """The control of the test above: with a single state, mixing actions does keep values linear."""
    cmdp = TabularCMDP(**random_arrays(np.random.default_rng(3), states=1, actions=3))
    first, second = (random_policy(np.random.default_rng(k), cmdp) for k in (4, 5))
    per_episode = evaluate(cmdp, EpisodeMixture((first, second), [0.5, 0.5]))
    per_state = evaluate(cmdp, (first.probabilities + second.probabilities) / 2)
    assert per_episode.reward == pytest.approx(per_state.reward, rel=1e-13)

"""Exact oracles: distance by enumeration and by parameters, the linear program, and the defaults of a family."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_tasks import as_sparse, nearby, random_arrays, random_cmdp, seeds, task_arrays
from surefoot.errors import Infeasible
from surefoot.oracles import Oracles, ParameterDistance, check_by_enumeration, exact_oracles, linear_program
from surefoot.oracles.exact import BatchDistance
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld
from surefoot.tasks.task_distribution import from_arrays
from surefoot.testing.oracle_suite import (
    conforms_to_check_oracle,
    conforms_to_feasible_oracle,
    conforms_to_optimal_oracle,
    reference_distance,
    reference_values,
)

RNG = np.random.default_rng(0)
GRIDWORLD = gridworld()
SAFE_COSTS = [1.1315, 0.7153, 1.0174, 0.9632, 1.1102, 1.0818, 0.9904, 0.9439, 1.1571, 0.7749]
BEST_REWARDS = [49.471, 54.379, 50.826, 51.478, 49.734, 50.086, 51.148, 51.716, 49.154, 53.726]


@given(seeds, st.sampled_from([0.01, 0.3]), st.sampled_from([0.4, 0.9999, 1.0001, 3]))
def test_enumeration_decides_at_epsilon(seed: int, size: float, ratio: float) -> None:
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, constraints=2)
    ranges = {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
    first = TabularCMDP(**arrays, **ranges)
    second = TabularCMDP(**as_sparse(nearby(rng, arrays, size, common_start=False)), **ranges)
    gap = reference_distance(first, second)
    epsilon = ratio * gap
    assert conforms_to_check_oracle(check_by_enumeration, first, second, epsilon) == (ratio > 1)


@given(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(1e-4, 0.3))
def test_parameters_tell_the_distance_of_gridworlds(first: float, second: float, epsilon: float) -> None:
    check = exact_oracles(GRIDWORLD).check
    assert isinstance(check, ParameterDistance)
    tasks = GRIDWORLD.task([first]), GRIDWORLD.task([second])
    gap = reference_distance(*tasks)
    if abs(gap - epsilon) > 1e-12:  # at a tie the two differ by rounding
        answer = check(np.array([first]), np.array([second]), epsilon, 0.1, RNG)
        assert answer == check_by_enumeration(*tasks, epsilon, 0.1, RNG) == (gap <= epsilon)


def test_parameter_distance_is_the_maximum_norm() -> None:
    check = ParameterDistance(lambda parameters: parameters * [1.0, 3.0])
    first, second = np.array([0.0, 0.0]), np.array([0.2, 0.1])
    assert check(first, second, 0.31, 0.1, RNG)
    assert not check(first, second, 0.29, 0.1, RNG)


@given(task_arrays(min_states=2))
def test_linear_program_keeps_the_contract(drawn: tuple[dict, np.random.Generator]) -> None:
    conforms_to_optimal_oracle(linear_program(), TabularCMDP(**drawn[0]), epsilon=1e-6)


def test_one_linear_program_serves_tasks_of_all_shapes() -> None:
    oracle, rng = linear_program(), np.random.default_rng(5)
    for sizes in ({}, {"states": 7}, {"states": 7, "constraints": 3}, {"actions": 2, "sparse": True}, {}):
        conforms_to_optimal_oracle(oracle, random_cmdp(rng, **sizes), epsilon=1e-6)
    with pytest.raises(Infeasible):
        oracle(GRIDWORLD.task([0.5]), 0.01, 0.1, RNG)
    conforms_to_optimal_oracle(oracle, random_cmdp(rng), epsilon=1e-6)


def test_gridworld_defaults_reproduce_the_published_values() -> None:
    oracles = exact_oracles(GRIDWORLD)
    tasks = [GRIDWORLD.task([noise]) for noise in PUBLISHED_TEST_NOISES]
    safe = conforms_to_feasible_oracle(oracles.feasible, tasks, None)
    np.testing.assert_allclose(1.5 - safe.margin[:, 0], SAFE_COSTS, atol=6e-5)
    rewards = [conforms_to_optimal_oracle(oracles.optimal, task, 1e-6).reward for task in tasks]
    np.testing.assert_allclose(rewards, BEST_REWARDS, atol=6e-4)


@settings(max_examples=10)
@given(seeds)
def test_defaults_of_a_finite_family(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {**random_arrays(rng), "reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
    pair = [arrays, nearby(rng, arrays, 0.01)]
    uniform = np.full((4, 3), 1 / 3)
    spent = [each["budget"] - reference_values(TabularCMDP(**each), uniform)[1] for each in pair]
    budget = np.max(spent, axis=0) + 0.3  # the uniform policy, for one, has unit margin 0.3/17 or more on both
    tasks = [TabularCMDP(**{**each, "budget": budget}) for each in pair]

    oracles = exact_oracles(from_arrays(tasks))
    assert isinstance(oracles, Oracles)
    assert isinstance(oracles.check, BatchDistance)
    gap = reference_distance(*tasks)
    assert oracles.check(*tasks, 1.001 * gap, 0.1, RNG)
    assert not oracles.check(*tasks, 0.999 * gap, 0.1, RNG)
    conforms_to_optimal_oracle(oracles.optimal, tasks[1], 1e-6)
    conforms_to_feasible_oracle(oracles.feasible, tasks, 0.01)

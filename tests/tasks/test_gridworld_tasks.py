from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks import gridworld
from surefoot.tasks.gridworld_tasks import (
    GOAL,
    HEIGHT,
    MOVES,
    PUBLISHED_TEST_NOISES,
    RED_CELLS,
    STATES,
    WIDTH,
    Kernel,
    cell,
)

KERNELS: tuple[Kernel, ...] = ("published", "text")
kernels = st.sampled_from(KERNELS)
noises = st.floats(0, 1)


def slow_row(kernel: str, state: int, action: int, noise: float) -> dict[int, float]:
    """One row of the transitions, cell by cell, from the words of the paper and of the published code."""
    x, y = state % 7, state // 7

    def after(move: tuple[int, int]) -> tuple[int, int]:
        there = (x + move[0], y + move[1])
        return there if 0 <= there[0] <= 6 and 0 <= there[1] <= 6 else (x, y)

    if (x, y) == (3, 6):
        return {state: 1.0}
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]  # right, up, left, down
    intended = after(moves[action])
    if kernel == "text":
        blown_to = [after(move) for move in moves]
    else:
        blown_to = [after(move) for move in moves if after(move) != (x, y)]
        if intended not in blown_to:
            blown_to.append(intended)
    row: dict[int, float] = {}
    for (u, v), mass in [(intended, 1 - noise), *((there, noise / len(blown_to)) for there in blown_to)]:
        row[7 * v + u] = row.get(7 * v + u, 0.0) + mass
    return row


@given(kernels, noises)
def test_transitions_match_a_slow_construction(kernel: Kernel, noise: float) -> None:
    expected = np.zeros((49, 4, 49))
    for state in range(49):
        for action in range(4):
            for there, mass in slow_row(kernel, state, action, noise).items():
                expected[state, action, there] = mass
    np.testing.assert_allclose(gridworld(kernel).task([noise]).transitions, expected, rtol=0, atol=1e-15)


def test_rewards_costs_start_and_units() -> None:
    task = gridworld().task([0.3])
    red = [s for s in range(49) if s % 7 in (2, 4) and 1 <= s // 7 <= 4]
    assert sorted(RED_CELLS) == red
    assert len(red) == 8
    assert [s for s in range(49) if task.cost[0, s, 0] > 0] == red
    assert set(task.cost[0, red].ravel()) == {10.0}
    assert (cell(GOAL), GOAL) == ((3, 6), 45)
    np.testing.assert_array_equal(np.argwhere(task.reward == 10)[:, 0], [45] * 4)
    assert task.reward.sum() == 40
    np.testing.assert_allclose(task.start, [0 if s in red else 1 / 41 for s in range(49)], rtol=1e-15)
    assert (task.discount, task.budget.tolist()) == (0.9, [1.5])
    assert task.units.reward_range == (0, 10)
    assert task.units.cost_range.tolist() == [[0, 10]]
    assert (WIDTH, HEIGHT, STATES, MOVES) == (7, 7, 49, ((1, 0), (0, 1), (-1, 0), (0, -1)))
    for action, (dx, dy) in enumerate(MOVES):
        x, y = cell(int(np.argmax(gridworld().task([0.0]).transitions[8, action])))
        assert (x, y) == (1 + dx, 1 + dy)


def occupancy_program(task: TabularCMDP) -> tuple[Floats, Floats, Floats]:
    """(flow matrix [S, S·A], reward [S·A], cost [S·A]) of the linear program over discounted visits."""
    leaving = np.kron(np.eye(STATES), np.ones((1, 4)))
    flow = leaving - task.discount * task.transitions.reshape(-1, STATES).T
    return flow, task.reward.ravel(), task.cost[0].ravel()


def best_value(task: TabularCMDP) -> float:
    flow, reward, cost = occupancy_program(task)
    result = scipy.optimize.linprog(-reward, A_ub=cost[None], b_ub=task.budget, A_eq=flow, b_eq=task.start)
    assert result.status == 0
    return float(-result.fun)


def least_cost(task: TabularCMDP) -> float:
    flow, _, cost = occupancy_program(task)
    return float(scipy.optimize.linprog(cost, A_eq=flow, b_eq=task.start).fun)


@pytest.mark.parametrize(
    ("kernel", "noise", "value", "digits"),
    [
        ("published", 0.0, 62.565, 3),
        ("published", 0.1, 59.737, 3),
        ("published", 0.2, 56.433, 3),
        ("published", 0.3, 51.963, 3),
        ("published", 0.4, 44.915, 3),
        ("text", 0.1, 59.72, 2),
        ("text", 0.3, 52.08, 2),
    ],
)
def test_optimal_values_are_those_on_record(kernel: Kernel, noise: float, value: float, digits: int) -> None:
    assert best_value(gridworld(kernel).task([noise])) == pytest.approx(value, abs=0.51 * 10**-digits)


def test_high_noise_leaves_no_feasible_policy() -> None:
    """The paper claims a policy that is feasible up to noise 0.5; there is none."""
    assert least_cost(gridworld().task([0.5])) == pytest.approx(2.004, abs=5e-4)
    assert least_cost(gridworld("text").task([0.5])) == pytest.approx(1.752, abs=5e-4)
    assert least_cost(gridworld().task([0.4358])) < 1.5 < least_cost(gridworld().task([0.4360]))


def test_noise_is_a_clipped_normal() -> None:
    sample = gridworld(std=0.1).sample(50_000, np.random.default_rng(0))
    assert sample.shape == (50_000, 1)
    law = scipy.stats.norm(0.3, 0.1)
    ends = {0.0: law.cdf(0), 0.5: law.sf(0.5)}
    for end, mass in ends.items():
        assert abs((sample == end).mean() - mass) <= 5 * np.sqrt(mass / 50_000)
    inside = sample[(sample > 0) & (sample < 0.5)]
    assert scipy.stats.kstest(inside, scipy.stats.truncnorm(-3, 2, 0.3, 0.1).cdf).pvalue > 1e-6
    narrow = gridworld().sample(50_000, np.random.default_rng(0))
    assert abs(narrow.mean() - 0.3) <= 5 * 0.03 / np.sqrt(50_000)
    assert abs(narrow.std() - 0.03) <= 5 * 0.03 / np.sqrt(2 * 50_000)


def test_published_test_noises() -> None:
    noises = np.array(PUBLISHED_TEST_NOISES)
    assert len(set(PUBLISHED_TEST_NOISES)) == 10
    assert (np.abs(noises - 0.3) < 3 * 0.03).all()
    assert noises[[0, -1]].tolist() == [0.3399476, 0.26760585]


@given(st.floats(allow_nan=True, allow_infinity=True).filter(lambda x: not 0 <= x <= 1))
def test_noise_outside_the_unit_interval_is_refused(noise: float) -> None:
    with pytest.raises(InvalidInput, match=r"noise must be a number between 0 and 1, got|parameter.* must be finite"):
        gridworld().task([noise])
    with pytest.raises(InvalidInput, match="safe_noise must be"):
        gridworld(safe_noise=noise)

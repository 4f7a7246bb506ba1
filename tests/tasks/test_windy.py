"""The windy gridworld: against a cell-by-cell construction, its metric, its safe policy, and why to adapt at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull

import surefoot as sf
from surefoot.lab.families.windy import GOAL, HAZARD_CELLS, HEIGHT, START_CELLS, STATES, WIDTH, transition_directions
from surefoot.tabular.solve import solve
from surefoot.tasks import windy_gridworld
from surefoot.training.cover import greedy_cover

TASKS = windy_gridworld()
rates = st.floats(0, 0.25)


def slow_row(state: int, action: int, slip: float, wind: float) -> dict[int, float]:
    """One row of the transitions from the words of the module, for rates that sum to at most 1."""
    x, y = state % 8, state // 8

    def after(move: tuple[int, int]) -> tuple[int, int]:
        there = (x + move[0], y + move[1])
        return there if 0 <= there[0] < 8 and 0 <= there[1] < 6 else (x, y)

    if (x, y) == (7, 3):
        return {state: 1.0}
    moves = [(1, 0), (0, 1), (-1, 0), (0, -1)]  # right, up, left, down
    neighbours = [after(move) for move in moves if after(move) != (x, y)]
    events = [(after(moves[action]), 1 - slip - wind), (after((0, -1)), wind)]
    row: dict[int, float] = {}
    for (u, v), mass in events + [(there, slip / len(neighbours)) for there in neighbours]:
        row[8 * v + u] = row.get(8 * v + u, 0.0) + mass
    return row


@given(st.floats(0, 1), st.floats(0, 1))
def test_transitions_match_a_slow_construction(slip: float, share: float) -> None:
    wind = share * (1 - slip)
    expected = np.zeros((STATES, 4, STATES))
    for state in range(STATES):
        for action in range(4):
            for there, mass in slow_row(state, action, slip, wind).items():
                expected[state, action, there] = mass
    np.testing.assert_allclose(TASKS.task([slip, wind]).transitions, expected, rtol=0, atol=1e-15)


def test_layout_and_units() -> None:
    task = TASKS.task([0.1, 0.1])
    assert (WIDTH, HEIGHT, STATES) == (8, 6, 48)
    assert [divmod(s, 8) for s in HAZARD_CELLS] == [(2, 2), (2, 3), (2, 4), (2, 5)]
    assert sorted(np.flatnonzero(task.cost[0, :, 0])) == sorted(HAZARD_CELLS)
    assert np.flatnonzero(task.reward[:, 0]).tolist() == [GOAL] == [3 * 8 + 7]
    assert sorted(np.flatnonzero(task.start)) == sorted(START_CELLS)
    assert set(START_CELLS).isdisjoint(HAZARD_CELLS)
    assert task.units.reward_range == (0, 10)
    assert task.units.cost_range.tolist() == [[0, 10]]
    assert (task.budget.tolist(), task.discount) == ([1.0], 0.9)


def test_the_wind_blows_into_the_strip() -> None:
    task = TASKS.task([0.0, 0.2])
    for hazard in HAZARD_CELLS:
        above = hazard + WIDTH
        assert task.transitions[above, 0, hazard] == pytest.approx(0.2)


# --------------------------------------------------------------------------------------------------- family and metric


def extreme_functionals(directions: np.ndarray) -> np.ndarray:
    """[k, 2] vertices of the set of all ½ Σ_t ±g_t over all rows: the distance is the largest of these functionals."""
    found = []
    for row in np.moveaxis(directions, 0, -1).reshape(-1, STATES, 2):
        moved = row[row.any(axis=1)]
        signs = np.array(np.meshgrid(*[[-1, 1]] * len(moved))).reshape(len(moved), -1).T if len(moved) else []
        found += [sign @ moved / 2 for sign in signs]
    points = np.unique(np.round(found, 12), axis=0)
    corners: np.ndarray = points[ConvexHull(points).vertices]
    return corners


def test_the_metric_by_enumeration_of_sign_patterns() -> None:
    corners = {tuple(corner) for corner in extreme_functionals(transition_directions()[1]) + 0.0}
    assert corners == {(1, 0), (0, 1), (1, 1), (-1, 0), (0, -1), (-1, -1)}


def test_cover_by_coordinates_is_the_cover_by_distances() -> None:
    assert TASKS.coordinates is not None
    parameters = TASKS.sample(60, np.random.default_rng(0))
    tasks = [TASKS.task(parameter) for parameter in parameters]
    near = np.array([[sf.distance(a, b) <= 0.04 for b in tasks] for a in tasks])
    by_points = greedy_cover(TASKS.coordinates(parameters), 0.04, uncovered=0.05)
    np.testing.assert_array_equal(by_points, greedy_cover(near, uncovered=0.05))
    assert 3 < len(by_points) < 40


# --------------------------------------------------------------------------------------------- safety and what it costs


def test_adapting_pays_and_is_not_trivial() -> None:
    safe = solve(TASKS.task(TASKS.safe_parameter)).policy
    calm_policy = solve(TASKS.task([0.04, 0.05])).policy
    for parameter in ([0.1, 0.12], [0.06, 0.17], [0.14, 0.07]):
        task = TASKS.task(parameter)
        best = solve(task)
        assert best.values.margin[0] == pytest.approx(0, abs=1e-7)
        assert best.dual[0] > 1
        assert sf.evaluate(task, safe).reward < 0.9 * best.values.reward
        assert sf.evaluate(task, calm_policy).margin[0] < -0.1
    # Both unknowns matter: what is best for one pair is unsafe where either is larger.
    policy = solve(TASKS.task([0.1, 0.12])).policy
    for parameter in ([0.14, 0.12], [0.1, 0.17]):
        assert sf.evaluate(TASKS.task(parameter), policy).margin[0] < -0.05


# --------------------------------------------------------------------------------------------- recipe, digest, refusals


def test_samples_stay_in_the_box() -> None:
    sample = TASKS.sample(20_000, np.random.default_rng(0))
    assert sample.shape == (20_000, 2)
    assert 0 <= sample.min() <= sample.max() <= 0.25
    assert abs(np.corrcoef(sample.T)[0, 1]) < 0.03
    np.testing.assert_allclose(np.median(sample, axis=0), [0.1, 0.12], rtol=0, atol=0.002)

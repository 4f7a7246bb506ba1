"""Policies planned on the way: their bounds hold on every cell, whatever led to them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from random_tasks import random_distributions
from surefoot.arrays import Floats
from surefoot.bounds.affine import affine_cells
from surefoot.bounds.cells import Cells
from surefoot.cmdp.units import Units
from surefoot.learning.certified.replanning import EVERY, FIRST, Planned, Replanner
from surefoot.tabular.evaluate import evaluate, state_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution, family


@cache
def gridworld_cells() -> tuple[TaskDistribution, Cells]:
    tasks = gridworld()
    return tasks, affine_cells(tasks, [solve(tasks.task([noise])).policy for noise in (0.4, 0.3)], 200)


@cache
def two_parameters() -> tuple[TaskDistribution, Cells]:
    """Four states, three actions, two constraints; random kernels mixed in two proportions."""
    rng = np.random.default_rng(0)
    kernels = random_distributions(rng, (3, 4, 3, 4), 0.7)
    base, slopes = kernels[0], kernels[1:] - kernels[0]
    reward, cost, start = rng.random((4, 3)), rng.random((2, 4, 3)), np.full(4, 0.25)

    def build(theta: Floats) -> TabularCMDP:
        kernel = np.maximum(base + np.tensordot(theta, slopes, axes=1), 0.0)
        return TabularCMDP(kernel, reward, cost, [2.6, 2.6], start, 0.8, (0.0, 1.0), (0.0, 1.0))

    tasks = family(build, Uniform([0.0, 0.0], [0.3, 0.3]), affine=(base, slopes))
    middle = solve(tasks.task([0.15, 0.15]), tighten=0.2).policy
    return tasks, affine_cells(tasks, [middle, TabularPolicy(np.full((4, 3), 1 / 3))], 36)


def replanner(cells: Cells, units: Units) -> Replanner:
    assert cells.model is not None
    return Replanner(cells.model, units)


def plan(tasks: TaskDistribution, cells: Cells, surviving: Floats, plausible: Floats) -> Planned:
    planned = replanner(cells, tasks.units).extend_plans((), cells, surviving > 0, plausible > 0, FIRST)
    assert len(planned) == 1
    return planned[0]


@pytest.mark.parametrize("world", [gridworld_cells, two_parameters])
def test_bounds_hold_on_plausible_cells_and_are_trivial_on_others(world: object) -> None:
    tasks, cells = world()  # type: ignore[operator]
    rng = np.random.default_rng(1)
    surviving = np.zeros(len(cells))
    surviving[len(cells) // 3 : len(cells) // 2] = 1
    plausible = surviving.copy()
    plausible[len(cells) // 4 : 2 * len(cells) // 3] = 1
    planned = plan(tasks, cells, surviving, plausible)
    least_margin = tasks.units.budget - tasks.units.cost_value_range[:, 1]
    tightest = 0.0
    for j in range(len(cells)):
        for parameter in (cells.low[j], cells.high[j], rng.uniform(cells.low[j], cells.high[j])):
            task = tasks.task(parameter)
            exact = evaluate(task, planned.policy)
            assert (planned.margin[j] <= exact.margin + 1e-12).all()
            values = state_values(task, planned.policy.probabilities)  # [1+m, S]
            values[1:] = tasks.units.budget[:, None] - values[1:]
            values = values if cells.first_states is None else values[:, cells.first_states]
            assert (planned.start_lower[:, j] <= values.T + 1e-12).all()
            assert (planned.start_upper[:, j] >= values.T - 1e-12).all()
            if plausible[j]:
                assert abs(planned.reward[j] - exact.reward) < 0.05 * np.ptp(tasks.units.reward_value_range)
                tightest = max(tightest, float((exact.margin - planned.margin[j]).max()))
        if not plausible[j]:
            assert (planned.margin[j] <= np.minimum(least_margin, 0.0) + 1e-12).all()
    assert tightest < 0.05 * np.ptp(tasks.units.cost_value_range)


def test_the_policy_is_optimal_for_the_most_dangerous_task_that_survives() -> None:
    """In the gridworld danger grows with noise, so this is the upper end of the last surviving cell."""
    tasks, cells = gridworld_cells()
    surviving = np.zeros(len(cells))
    surviving[[40, 41, 90, 77]] = 1
    planned = plan(tasks, cells, surviving, np.ones(len(cells)))
    worst = tasks.task(cells.high[90])
    best = solve(worst).values
    found = evaluate(worst, planned.policy)
    assert found.reward == pytest.approx(best.reward, abs=1e-4)
    assert found.margin[0] == pytest.approx(0.0, abs=1e-4)
    assert (planned.margin[surviving > 0] >= -1e-3).all(), "it may be deployed alone, but for the width of a cell"


def test_plans_are_made_at_set_times() -> None:
    tasks, cells = gridworld_cells()
    agent, everywhere = replanner(cells, tasks.units), np.ones(len(cells), dtype=bool)
    surviving = np.arange(len(cells)) < 100
    assert agent.extend_plans((), cells, surviving, everywhere, FIRST - 1) == ()
    first = agent.extend_plans((), cells, surviving, everywhere, FIRST + 10)
    assert [planned.episode for planned in first] == [FIRST + 10]
    second_time = int(EVERY * (FIRST + 10))
    assert agent.extend_plans(first, cells, surviving, everywhere, second_time - 1) is first
    second = agent.extend_plans(first, cells, surviving, everywhere, second_time)
    assert second[:1] == first
    assert [planned.episode for planned in second] == [FIRST + 10, second_time]


def test_nothing_is_planned_where_nothing_is_feasible() -> None:
    """The safe policy is feasible on all cells but one, whose corner no policy is feasible on."""
    tasks, cells = gridworld_cells()
    surviving = np.ones(len(cells), dtype=bool)
    narrow = Units(0.9, (0.0, 10.0), tasks.units.cost_range, np.array([0.05]))
    assert replanner(cells, narrow).extend_plans((), cells, surviving, surviving, FIRST) == ()


def test_a_corner_on_the_edge_of_the_family_is_no_invalid_task() -> None:
    """0.3 - 0.1·3 is negative in floating point; planning for that corner must not fail."""
    base = np.array([[[0.3, 0.7]], [[0.5, 0.5]]])
    slope = np.array([[[[-0.1, 0.1]], [[0.0, 0.0]]]])
    assert (base + 3.0 * slope[0]).min() < 0

    def build(theta: Floats) -> TabularCMDP:
        kernel = np.maximum(base + theta[0] * slope[0], 0.0)
        return TabularCMDP(kernel, [[0.0], [1.0]], [[0.0], [1.0]], 5.0, [1.0, 0.0], 0.5, (0.0, 1.0), (0.0, 1.0))

    tasks = family(build, Uniform(1.0, 3.0), affine=(base, slope))
    cells = affine_cells(tasks, [TabularPolicy(np.ones((2, 1)))], 10)
    assert len(cells) == 10
    assert np.argmax(cells.danger) == 9
    assert plan(tasks, cells, np.ones(10), np.ones(10)).margin.shape == (10, 1)

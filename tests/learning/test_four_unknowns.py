"""Four unknowns: a driver at a crossing of four roads, each of which breaks axles with a probability of its own.

Written as a stranger would: a function from parameters to tables, a uniform distribution, `train`, `adapt`. A grid as
fine as one has of two parameters would take half a million cells here; a few hundred and splitting must do.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import build_cells
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

ROADS = 4
CROSSING, WALK, BROKEN = 0, 5, 6
STATES, ACTIONS = 7, 5  # crossing, four roads, the footpath, broken down; actions are where to go


def crossing(risks: Floats) -> TabularCMDP:
    """From the crossing one takes a road or the footpath and is back a step later, unless the axle breaks."""
    kernel = np.zeros((STATES, ACTIONS, STATES))
    kernel[CROSSING, np.arange(ACTIONS), np.arange(1, 6)] = 1.0
    for road, risk in enumerate(risks, start=1):
        kernel[road, :, CROSSING], kernel[road, :, BROKEN] = 1 - risk, risk
    kernel[WALK, :, CROSSING] = 1.0
    kernel[BROKEN, :, [CROSSING, BROKEN]] = 0.5
    reward = np.tile(np.array([0.0, 1.0, 0.95, 0.9, 0.85, 0.2, 0.0])[:, None], ACTIONS)
    cost = np.tile((np.arange(STATES) == BROKEN)[:, None].astype(float), ACTIONS)
    return TabularCMDP(kernel, reward, cost, 0.5, np.eye(STATES)[CROSSING], 0.9, (0.0, 1.0), (0.0, 1.0))


@cache
def trained() -> tuple[sf.tasks.TaskDistribution, sf.PolicyValueSet]:
    tasks = sf.tasks.family(crossing, sf.tasks.Uniform([0.02] * ROADS, [0.2] * ROADS))
    return tasks, sf.train(tasks, epsilon=0.06, delta=0.05, seed=0, progress=False)


@pytest.mark.filterwarnings("ignore")  # the paper's theorem does not apply; the certified methods do not need it
def test_four_unknowns_are_trained_for_with_few_cells() -> None:
    _, policies = trained()
    assert policies.cells is not None
    assert policies.cells.source == "affine"
    assert 400 < len(policies.cells) <= 800
    assert policies.cells.uncovered < 0.02


@pytest.mark.filterwarnings("ignore")
def test_cells_of_four_unknowns_split_and_what_is_deployed_stays_safe() -> None:
    tasks, policies = trained()
    task = tasks.task(tasks.sample(1, np.random.default_rng(1))[0])
    made = sf.learner(policies, method="certified-likelihood", risk=0.05, seed=0, split=True)
    run = run_learner(made, task, episodes=1000, seed=0)
    assert run.unsafe_episodes == 0
    assert run.regret[-1] < 1000 * (run.optimal_reward - evaluate(task, policies.safe_policy).reward)
    boxes = made.state.method.boxes
    assert boxes is not None
    assert len(boxes.cell) > len(set(boxes.cell.tolist())), "cells consist of several"


def unsafe_tasks(tasks: int, episodes: int, risk: float) -> int:
    family, policies = trained()
    parameters = family.sample(tasks, np.random.default_rng(2))
    runs = (
        sf.adapt(
            policies,
            family.task(parameter),
            method="certified-likelihood",
            episodes=episodes,
            risk=risk,
            seed=number,
            split=True,
        )
        for number, parameter in enumerate(parameters)
    )
    return sum(run.unsafe_episodes > 0 for run in runs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("tasks", "episodes"), [(2, 200), pytest.param(60, 1500, marks=pytest.mark.long)])
def test_the_promise_with_four_unknowns(tasks: int, episodes: int) -> None:
    """At a risk at which failures would show; a few tasks are no proof, and the seeds are fixed."""
    unsafe = unsafe_tasks(tasks, episodes, risk=0.2)
    assert stats.binomtest(unsafe, tasks, 0.2, alternative="greater").pvalue > 1e-3


@pytest.mark.long
def test_cells_are_cut_where_that_makes_bounds_sharper() -> None:
    """Of policies that walk or take the first two roads the other two change nothing."""
    family = sf.tasks.family(crossing, sf.tasks.Uniform([0.02] * ROADS, [0.2] * ROADS))
    walk, first, second = (TabularPolicy(np.eye(ACTIONS)[[to] * STATES]) for to in (4, 0, 1))
    cells = build_cells(family, [walk, first, second], seed=0, envelopes=sf.Envelopes(cells=200))
    parts = [len(np.unique(low)) for low in cells.low.T]
    assert 100 < np.prod(parts) <= 200
    assert max(parts[2:]) <= 2
    assert min(parts[:2]) >= 5

"""Families that can only be simulated: value bounds from Monte Carlo, evidence from discounted sums, nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from surefoot.arrays import Floats
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.family import family
from surefoot.training.bounds import simulated_values
from surefoot.training.sampled_cells import holdout_cells

HORIZON = 20
CAREFUL, HASTY = (TabularPolicy(np.eye(2)[[action] * 2]) for action in range(2))


def task(slip: Floats) -> TabularCMDP:
    """Two states, the second one costly; action 1 pays more and leads there with probability slip²."""
    chance = np.zeros((2, 2, 2))
    chance[:, 0], chance[:, 1] = [0.9, 0.1], [1 - slip[0] ** 2, slip[0] ** 2]
    return TabularCMDP(
        chance, [[0.2, 1.0]] * 2, [[[0.0, 0.1], [0.6, 1.0]]], 0.75, [0.5, 0.5], 0.5, (0.0, 1.0), [[0.0, 1.0]]
    )


@cache
def simulated_set() -> PolicyValueSet:
    """A careful and a hasty policy, with bounds on their values that only simulated episodes went into."""
    tasks, policies = family(task, Uniform(0.2, 0.9)), (CAREFUL, HASTY)

    def simulate(parameter: Floats, index: int, episodes: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        outcomes = Simulator(task(parameter), policies[index], HORIZON).run(episodes, rng)
        return outcomes.reward, outcomes.cost

    values = simulated_values(simulate, 2, tasks.units, episodes=20_000, error=0.005, truncation=0.5**HORIZON)
    rng = np.random.default_rng(0)
    cells = holdout_cells(tasks, values, rng, cells=25, holdout=199, uncovered=0.02, source="monte-carlo", error=0.005)
    example = task(np.array([0.5]))
    hasty, careful = evaluate(example, HASTY), evaluate(example, CAREFUL)
    entry = Entry(np.array([0.5]), HASTY, hasty.reward, hasty.margin, careful.reward, careful.margin)
    return PolicyValueSet((entry,), CAREFUL, tasks.units, 0.1, 0.1, 0.01, "0" * 64, {}, {}, cells)


def test_a_simulator_and_observed_sums_are_enough_to_leave_the_safe_policy() -> None:
    cells = simulated_set().cells
    assert cells is not None
    assert (cells.model, cells.start_lower) == (None, None)
    runs = {
        slip: adapt(simulated_set(), task(np.array([slip])), method="certified", episodes=4000, seed=1, horizon=HORIZON)
        for slip in (0.3, 0.8)
    }
    for run in runs.values():
        assert "discounted sums" in run.events[0].message
        assert run.certified
        assert run.unsafe_episodes == 0
    most = {slip: largest_safe_weight(task(np.array([slip]))) for slip in runs}
    assert most == {0.3: 1.0, 0.8: pytest.approx(0.45, abs=0.01)}
    for slip, run in runs.items():
        assert 0.5 * most[slip] < run.weight[-1] <= most[slip]


def largest_safe_weight(truth: TabularCMDP) -> float:
    safe, hasty = (float(evaluate(truth, policy).margin[0]) for policy in (CAREFUL, HASTY))
    return min(1.0, safe / (safe - hasty)) if hasty < 0 else 1.0

"""Tables with a horizon and without discount, all the way: train, save, load, plan, adapt, exactly judged."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.tabular.policy import TimedPolicy

HORIZON = 12
TABLES = np.random.default_rng(5).random((2, 4, 3))
ROWS = np.random.default_rng(6).dirichlet(np.ones(4), (2, 4, 3))


def build(parameter: Any) -> sf.TabularCMDP:
    """Between two random worlds of 4 states and 3 actions; the more a reward the more it costs."""
    share = float(parameter[0])
    transitions = (1 - share) * ROWS[0] + share * ROWS[1]
    cost = TABLES[0] * (0.5 + share / 2)
    return sf.TabularCMDP(transitions, TABLES[0], cost, 4.0, np.ones(4) / 4, 1.0, (0, 1), (0, 1), horizon=HORIZON)


TASKS = sf.tasks.family(build, sf.tasks.Uniform(0.0, 1.0), coordinates=lambda points: points, safe_parameter=[1.0])


@lru_cache(maxsize=1)
def policies() -> sf.PolicyValueSet:
    envelopes = sf.Envelopes(cells=40, holdout=399, uncovered=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.train(TASKS, epsilon=0.2, delta=0.2, seed=0, progress=False, envelopes=envelopes)


def backward(task: sf.TabularCMDP, policy: TimedPolicy) -> tuple[float, float]:
    """Reward and cost by plain recursion over the steps that are left."""
    onwards = np.zeros((2, 4))
    for table in policy.probabilities[::-1]:
        ahead = np.stack([task.reward, task.cost[0]]) + np.einsum("sat,kt->ksa", task.transitions, onwards)
        onwards = np.einsum("sa,ksa->ks", table, ahead)
    reward, cost = onwards @ task.start
    return float(reward), float(cost)


def test_trained_policies_look_at_the_clock_and_their_values_are_exact() -> None:
    trained = policies()
    assert trained.units.horizon == HORIZON
    for entry in trained.entries:
        assert isinstance(entry.policy, TimedPolicy)
        assert entry.policy.probabilities.shape == (HORIZON, 4, 3)
        reward, cost = backward(build(entry.parameter), entry.policy)
        assert entry.reward == pytest.approx(reward, rel=1e-9)
        assert entry.margin[0] == pytest.approx(4.0 - cost, rel=1e-9, abs=1e-9)


def test_a_set_with_a_horizon_is_stored(tmp_path: Path) -> None:
    policies().save(tmp_path / "set")
    again = sf.PolicyValueSet.load(tmp_path / "set")
    assert again.digest() == policies().digest()
    assert again.units.same_as(policies().units)


@pytest.mark.parametrize("method", ["safe-only", "paper", "certified", "certified-returns", "certified-model-free"])
def test_certified_methods_run_and_stay_safe(method: str) -> None:
    task = build([0.2])
    run = sf.adapt(policies(), task, method=method, episodes=1500, risk=0.1, seed=1)
    assert run.exact
    assert run.certified
    assert run.unsafe_episodes == 0
    mixed = [backward(task, policy) for policy in run.output.components]
    reward = float(run.output.weights @ [reward for reward, _ in mixed])
    assert run.regret[-1] / 1500 == pytest.approx(run.optimal_reward - reward, rel=1e-6)


def test_it_leaves_the_safe_policy() -> None:
    run = sf.adapt(policies(), build([0.1]), method="certified", episodes=4000, risk=0.1, seed=1)
    assert run.weight[-1] > 0.5


def test_what_needs_sums_without_end_says_so() -> None:
    for method in ("dope-published", "lb-sgd-published"):
        with pytest.raises(sf.InvalidInput, match=method):
            sf.adapt(policies(), build([0.2]), method=method, episodes=10, seed=0)


def test_plans_are_made_on_the_family_where_the_set_has_no_model() -> None:
    blind = {line.method: line for line in sf.plan(policies(), episodes=1000, risk=0.1)}
    assert "takes a family of tasks to try it on" in blind["certified-returns"].reason
    tried = {line.method: line for line in sf.plan(policies(), episodes=1000, risk=0.1, tasks=TASKS)}
    assert tried["certified-returns"].episodes < 2000
    assert "median of 3 simulated training tasks" in tried["certified-returns"].reason

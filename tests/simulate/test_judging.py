"""Runs on tasks that cannot be read are judged by fresh episodes, as many as show whether budgets were kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from point_mass import PointMass, ReadablePointMass, lane, speed, true_values
from surefoot.cmdp.policy import Policy
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.evaluator import PolicyEvaluation

UNITS = lane(budget=0.3, horizon=6)
RNG = np.random.default_rng


def evaluation(task: PointMass, policy: Policy, most: int = 4000, seed: int = 0) -> PolicyEvaluation:
    return PolicyEvaluation(task, policy, steps=6, most=most, level=1e-3, rng=RNG(seed))


def test_more_episodes_leave_less_error_and_true_values_within_it() -> None:
    task, policy = PointMass(0.6, UNITS), speed(0.7)
    truth, judged, errors = true_values(task, policy), evaluation(task, policy), []
    while True:
        found = judged.values
        assert found.error is not None
        assert abs(found.reward - truth.reward) <= found.error[0]
        assert (np.abs(found.margin - truth.margin) <= found.error[1:]).all()
        np.testing.assert_allclose(found.margin, UNITS.budget - found.cost)
        errors.append(found.error)
        if judged.is_done:
            break
        judged.refine()
    assert len(errors) == 3
    assert (np.diff(errors, axis=0) < 0).all()


def test_what_can_be_read_is_exact_at_once() -> None:
    task = ReadablePointMass(0.6, UNITS)
    judged = evaluation(task, speed(0.7))
    assert judged.is_done
    assert judged.values.error is None
    assert judged.values.reward == true_values(task, speed(0.7)).reward


class Counting(PointMass):
    """Counts the episodes that are run to judge, the largest chunks that there are."""

    def __init__(self, drift: Any) -> None:
        super().__init__(drift, UNITS)
        self.run: Counter[int] = Counter()

    def episodes(self, policy: Policy, steps: int) -> Any:
        rollouts, count = super().episodes(policy, steps), self.run

        class Counted:
            def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Any:
                count[episodes] += 1
                return rollouts.run(episodes, rng, transitions)

        return Counted()


def safe_only(level: float, judged_on: int) -> tuple[sf.Run, Counter[int]]:
    task, policy = Counting(0.8), speed(level)
    entry = Entry(np.zeros(1), speed(0.5), 1.0, np.array([0.1]), 1.0, np.array([0.1]))
    policies = PolicyValueSet((entry,), policy, UNITS, 0.1, 0.1, 0.0, "0" * 64, {}, {}, safe_risk=0.01)
    run = sf.adapt(policies, task, method="safe-only", episodes=10, seed=0, judged_on=judged_on)
    return run, Counter({size: count for size, count in task.run.items() if size >= 1000})


@pytest.mark.parametrize(("level", "unsafe"), [(0.2, False), (1.0, True)])
def test_a_clear_case_takes_a_quarter_of_the_episodes(level: float, unsafe: bool) -> None:
    run, counted = safe_only(level, judged_on=8000)
    assert counted == {2000: 1}
    assert run.undecided_episodes == 0
    assert run.unsafe.all() == unsafe


def test_a_close_case_takes_more_and_is_decided_by_them() -> None:
    """Its margin is 0.005, on a scale of 2."""
    assert 0.004 < true_values(PointMass(0.8, UNITS), speed(0.64)).margin[0] < 0.006
    run, counted = safe_only(0.64, judged_on=8000)
    assert counted == {2000: 2, 4000: 1}
    assert run.undecided_episodes == 10
    run, counted = safe_only(0.64, judged_on=400_000)
    assert run.undecided_episodes == run.unsafe_episodes == 0


@pytest.mark.parametrize("judged_on", [0, -1, 2.5])
def test_numbers_that_make_no_sense_are_refused(judged_on: Any) -> None:
    with pytest.raises(sf.InvalidInput, match="judged_on"):
        safe_only(0.2, judged_on)

"""The shipped checks of tasks pass what is right, table or not, and catch what is wrong."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pytest

from contracts.spending import HORIZON, Dial, OpenSpending, Spending, Tosses
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.task import Values
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks import gridworld, inventory
from surefoot.testing import task_suite

DIALS = [Dial(0.0), Dial(0.4), Dial(1.0)]


@pytest.mark.parametrize("kind", [Spending, OpenSpending])
def test_tasks_without_tables_pass(kind: Any) -> None:
    task_suite.check(lambda: kind(0.5), DIALS)


@pytest.mark.parametrize("family", [gridworld, inventory])
def test_tables_pass(family: Any) -> None:
    tasks = family()
    task = tasks.task(tasks.sample(1, np.random.default_rng(0))[0])
    even = TabularPolicy(np.full((task.n_states, task.n_actions), 1 / task.n_actions))
    task_suite.check(lambda: task, [even], episodes=100)


class Optimistic(OpenSpending):
    def values(self, policy: Any) -> Values:
        found = super().values(policy)
        return Values(found.reward, found.cost - 1.5, found.margin + 1.5)


class Unreachable(OpenSpending):
    def optimum(self) -> float:
        return super().optimum() - 2.0


class Estimating(OpenSpending):
    def values(self, policy: Any) -> Values:
        found = super().values(policy)
        return Values(found.reward, found.cost, found.margin, np.array([0.1, 0.1]))


class Forgetful(Spending):
    def digest(self) -> str:
        return secrets.token_hex(32)


class Wordy(Spending):
    def digest(self) -> str:
        return "spending"


class Credulous(Spending):
    def episodes(self, policy: Any, steps: int) -> Tosses:
        return Tosses(0.5, 0.1, min(steps, HORIZON))


class _Own:
    """Episodes from a generator of their own."""

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        return Tosses(0.5, 0.1, HORIZON).run(episodes, np.random.default_rng(), transitions)


class Unrepeatable(Spending):
    def episodes(self, policy: Any, steps: int) -> Any:
        super().episodes(policy, steps)
        return _Own()


class _Curious(Tosses):
    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        if transitions:
            rng.random()
        return super().run(episodes, rng)


class Shy(Spending):
    """Other episodes when somebody looks."""

    def episodes(self, policy: Any, steps: int) -> Tosses:
        honest = super().episodes(policy, steps)
        return _Curious(honest.earning, honest.hazard, honest.steps)


class Endless(Spending):
    """Episodes that go on after their horizon."""

    def episodes(self, policy: Any, steps: int) -> Tosses:
        honest = super().episodes(policy, steps)
        return Tosses(honest.earning, honest.hazard, 3 * HORIZON)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Optimistic, "are not those of episodes"),
        (Unreachable, "exceeds the optimum"),
        (Estimating, "values of a readable task are exact"),
        (Forgetful, "the digest must be the same each time"),
        (Wordy, "digest must be a SHA-256, got 'spending'"),
        (Credulous, "a policy of an unknown kind must be refused"),
        (Unrepeatable, "equal generators gave different episodes"),
        (Shy, "observing changes episodes"),
        (Endless, "leaves the declared ranges"),
    ],
)
def test_what_is_wrong_is_caught(wrong: Any, message: str) -> None:
    # At 0.6 the hazard leaves no budget to spare, so that the dial at 0.5 is the optimum.
    with pytest.raises(AssertionError, match=message):
        task_suite.check(lambda: wrong(0.6), [*DIALS, Dial(0.5)])


def test_something_else_is_no_task() -> None:
    with pytest.raises(AssertionError, match="object does not"):
        task_suite.check(object, DIALS)

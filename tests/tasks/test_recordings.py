"""Episodes recorded on one task and told of another, against simulating there; policies beside others, against each
alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_locomotion_tasks import Shaking

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.task import run_policies
from surefoot.errors import InvalidInput
from surefoot.lab.robots import task as robot_task
from surefoot.lab.robots.families import (
    half_cheetah_motors,
    half_cheetah_payload,
    half_cheetah_velocity,
    hopper_speed_limit,
    hopper_velocity,
)
from surefoot.lab.robots.recording import record

FAMILIES = {
    "hopper published": hopper_velocity,
    "hopper text": lambda: hopper_velocity("text"),
    "cheetah text": lambda: half_cheetah_velocity("text"),
}


def assert_same(found: Outcomes, expected: Outcomes) -> None:
    assert np.array_equal(found.sums, expected.sums)
    for name in ("observations", "actions", "steps", "paid"):
        assert np.array_equal(getattr(found.watched(), name), getattr(expected.watched(), name)), name


@pytest.mark.parametrize("name", FAMILIES)
def test_recorded_episodes_are_those_of_another_task_to_the_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some fall sooner than others, some in the last step, and in blocks."""
    monkeypatch.setattr(robot_task, "LANES", 5)
    monkeypatch.setattr("surefoot.lab.robots.recording.LANES", 5)
    first, other = (FAMILIES[name]().task([target]) for target in (0.9, 0.2))
    steps, n, policy = first.units.episode_length, 7, Shaking(0.6)
    recorded = record(first, policy, n, np.random.default_rng(5))
    assert_same(recorded.outcomes, first.episodes(policy, steps).run(n, np.random.default_rng(5), transitions=True))
    expected = other.episodes(policy, steps).run(n, np.random.default_rng(5), transitions=True)
    assert_same(recorded.outcomes_on(other), expected)
    assert (expected.reward != recorded.outcomes.reward).all()
    assert (expected.watched().steps < steps).any() == name.startswith("hopper")
    chosen = np.array([6, 0, 3])
    assert_same(recorded[chosen].outcomes_on(other), expected[chosen])


def test_a_fall_in_the_last_step_is_one() -> None:
    """What it costs and what the bonus is worth; no step is missing then."""
    task = hopper_velocity().task([0.5])
    fallen = task.episodes(Shaking(0.6), 200).run(1, np.random.default_rng(5), transitions=True)
    horizon = int(fallen.watched().steps[0])
    short = replace(task.system, units=replace(task.units, horizon=horizon))
    first, other = (robot_task.LocomotionTask(short, np.array([target])) for target in (0.5, 0.1))
    recorded = record(first, Shaking(0.6), 1, np.random.default_rng(5))
    assert recorded.fell[0].tolist() == [False] * (horizon - 1) + [True]
    expected = other.episodes(Shaking(0.6), horizon).run(1, np.random.default_rng(5), transitions=True)
    assert_same(recorded.outcomes_on(other), expected)


def test_tasks_that_differ_in_more_than_rewards_are_refused() -> None:
    laden = replace(half_cheetah_payload().example.system, factors={})  # pays the same, and differs in the payload
    for tasks, others in (
        [robot_task.LocomotionTask(laden, np.array([1.0, share])) for share in (0.1, 0.2)],
        (half_cheetah_motors().task([1.0]), half_cheetah_motors().task([1.1])),
        (half_cheetah_velocity().task([1.0]), half_cheetah_velocity("text").task([1.0])),
    ):
        with pytest.raises(InvalidInput, match=r"^task must be of the recorded one's family"):
            record(tasks, Shaking(0.5), 2, np.random.default_rng(0)).outcomes_on(others)
    limit = hopper_speed_limit().task([0.74])
    recorded = record(limit, Shaking(0.5), 2, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="differ from it in rewards alone"):
        recorded.outcomes_on(robot_task.LocomotionTask(limit.system, np.array([-10.0])))


def test_policies_side_by_side_have_the_episodes_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In worlds that hold two of them at a time, and in more blocks than one; some fall sooner."""
    task, policies = hopper_velocity().task([0.5]), [Shaking(0.2), Shaking(0.9), Shaking(0.5)]
    for lanes, count in ((8, 4), (4, 6)):
        monkeypatch.setattr(robot_task, "LANES", lanes)
        generators = [[np.random.default_rng([7, k]) for k in range(3)] for _ in range(2)]
        together = run_policies(task, policies, count, generators[0], transitions=True)
        blind = run_policies(task, policies, count, [np.random.default_rng([7, k]) for k in range(3)])
        for policy, rng, found, sums in zip(policies, generators[1], together, blind, strict=True):
            assert_same(found, task.episodes(policy, 200).run(count, rng, transitions=True))
            assert np.array_equal(sums.sums, found.sums)

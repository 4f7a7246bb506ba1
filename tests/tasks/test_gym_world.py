"""Environments in closed loop: the same sums as their episodes, and what no policy can be trained for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.spaces import Box, Discrete

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import cartpole
import gym_strangers as strangers
import pendulum
import surefoot as sf
from gym_strangers import DECLARED, Walk
from surefoot.cmdp.world import SteppedTask
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_tasks import GymTask, RandomActions


def alone(example: Any, **changed: Any) -> sf.tasks.TaskDistribution:
    """The family of an example, its environments one by one."""
    system = {**example.SYSTEM, "make_vector": None, **changed}
    return sf.tasks.from_gym(example.make_env, example.tasks().distribution, **system)


class Remembering:
    """Random actions, of which it keeps a list; beyond the ends of a box by half its length."""

    kind = "remembering"

    def __init__(self, space: Any, larger: float) -> None:
        self.inner, self.larger, self.actions = RandomActions(space), larger, []

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        action = self.inner.act(observation, step, rng)
        self.actions.append(action if self.larger == 1 else self.larger * action)
        return self.actions[-1]

    def to_arrays(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("family", "space", "larger"),
    [
        (alone(cartpole), Discrete(2), 1),
        (alone(cartpole, after_termination=(0.0, 1.0), discount=0.97), Discrete(2), 1),
        (alone(pendulum), Box(-2.0, 2.0, (1,)), 1.5),
        (sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED), Discrete(2), 1),
    ],
    ids=["cartpole", "cartpole that pays after its end", "pendulum", "walk"],
)
def test_sums_are_those_of_episodes(family: Any, space: Any, larger: float) -> None:
    """Bit by bit, from the same seeds with the same actions; what steps return sums up to them."""
    n, task = 6, family.task(family.distribution.support.mean(axis=1))
    policy = Remembering(space, larger)
    outcomes = task.episodes(policy, task.units.episode_length).run(n, np.random.default_rng(4), transitions=True)
    watched = outcomes.watched()
    world = task.world(n)
    assert isinstance(task, SteppedTask)
    shown = world.begin(np.ones(n, bool), np.random.default_rng(4))
    starts = np.concatenate([[0], np.cumsum(watched.steps)])
    assert len(policy.actions) == starts[-1]
    paid, ended = np.zeros((n, 2)), np.zeros(n, bool)
    for t in range(int(watched.steps.max())):
        assert (shown[~ended] == watched.observations[~ended, t]).all()
        actions = np.stack([policy.actions[min(starts[k] + t, starts[k + 1] - 1)] for k in range(n)])
        step = world.step(actions)
        paid += task.units.discount**t * np.column_stack([step.reward, step.cost])
        shown, ended = step.observation, step.ended
        assert (step.ended == (watched.steps <= t + 1)).all()
        assert (step.terminated == (step.ended & (watched.steps < task.units.episode_length))).all()
    assert step.ended.all()
    assert (step.sums == outcomes.sums).all()
    assert paid == pytest.approx(outcomes.sums, rel=1e-9)
    assert watched.steps.min() < task.units.episode_length or family.task(1.0).spaces.endswith("Box[1]")


def test_lanes_are_of_several_tasks() -> None:
    family = alone(cartpole)
    low, high = family.distribution.support[0]
    one, other = family.task(low), family.task(high)
    together, apart = one.world(2, other), [one.world(2), other.world(2)]
    rng, actions = np.random.default_rng(3), np.random.default_rng(5).integers(2, size=(6, 4))
    together.begin(np.ones(4, bool), np.random.default_rng(3))
    for world in apart:
        world.begin(np.ones(2, bool), rng)
    for row in actions:
        step, parts = together.step(row), [world.step(row[2 * k : 2 * k + 2]) for k, world in enumerate(apart)]
        for k, array in enumerate(step):
            assert (array == np.concatenate([part[k] for part in parts])).all()


def test_environments_are_closed_when_the_world_is_gone() -> None:
    closed: list[int] = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(1)

    task = sf.tasks.from_gym(Closing, sf.tasks.Uniform(0, 1), **DECLARED).task(0.5)
    assert isinstance(task, GymTask)
    world = task.world(3)
    closed.clear()  # spaces were asked for
    assert world.lanes == 3
    del world
    assert len(closed) == 3


# ------------------------------------------------------------------------------------------------------ what is refused


class Grid(Walk):
    observation_space: Any = Box(0, 1, (2, 2))


class Numbered(Walk):
    observation_space: Any = Discrete(5)


class FromOne(Walk):
    action_space: Any = Discrete(2, start=1)


class Whole(Walk):
    action_space: Any = Box(0, 3, (1,), np.int64)


class Table(Walk):
    action_space: Any = Box(0, 1, (2, 2))


SAME = Walk(np.array([0.5]))


@pytest.mark.parametrize(
    ("make", "declared", "message"),
    [
        (Grid, {}, r"observation_space must be a box with one axis .*FlattenObservation"),
        (Numbered, {}, "observation_space must be a box with one axis"),
        (FromOne, {}, "action_space must count from 0"),
        (Whole, {"clip_actions": True}, "action_space must be discrete or a box of numbers with one axis"),
        (Table, {"clip_actions": True}, "action_space must be discrete or a box of numbers with one axis"),
        (strangers.Pushed, {}, "clip_actions must be True for policies to be trained .* got False"),
        (lambda theta: SAME, {}, "make_env must return a new environment for every lane, got the same one twice"),
    ],
)
def test_environments_without_policies_are_refused(make: Any, declared: Any, message: str) -> None:
    task = sf.tasks.from_gym(make, sf.tasks.Uniform(0, 1), **DECLARED | declared).task(0.5)
    with pytest.raises(InvalidInput, match=message):
        task.world(2)


def test_misuse_is_refused() -> None:
    family = sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED)
    task, rng = family.task(0.5), np.random.default_rng(0)
    world = task.world(2)
    with pytest.raises(InvalidInput, match="all of whose lanes rest"):
        world.step(np.zeros(2, np.int64))
    with pytest.raises(InvalidInput, match=r"lanes must be marked by \[2\] truth values"):
        world.begin(np.ones(3, bool), rng)
    world.begin(np.ones(2, bool), rng)
    with pytest.raises(InvalidInput, match=r"actions must have shape \[2\], got \[2, 1\]"):
        world.step(np.zeros((2, 1)))
    with pytest.raises(InvalidInput, match=r"the action at step 0 must be from 0 to 1, got 2"):
        world.step(np.array([0, 2]))
    with pytest.raises(InvalidInput, match=r"others\[0\] must be of the family of this task"):
        task.world(1, alone(cartpole).task(1.0))
    with pytest.raises(InvalidInput, match="lanes must be"):
        task.world(0)


def test_what_stops_an_episode_stops_a_world() -> None:
    """Payments out of range, time limits before the horizon, sums out of theirs."""
    limited = sf.tasks.from_gym(
        lambda theta: gymnasium.wrappers.TimeLimit(Walk(theta), 5), sf.tasks.Uniform(0, 1), **DECLARED
    )
    small = sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED | {"reward_range": (0.0, 0.01)})
    sums = sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED, reward_sum_range=(0.0, 0.02))
    for family, message in (
        (limited, "truncated after 5, at step 4"),
        (small, r"reward must lie in reward_range, \[0.0, 0.01\]"),
        (sums, "an episode's reward and cost must lie in reward_sum_range"),
    ):
        world = family.task(0.1).world(2)
        world.begin(np.ones(2, bool), np.random.default_rng(0))
        with pytest.raises(InvalidInput, match=message):
            list(map(world.step, [np.array([t % 2, 1 - t % 2]) for t in range(30)]))


def test_the_examples_are_those_of_gymnasium() -> None:
    assert isinstance(cartpole.make_env(np.array([1.0])).unwrapped, CartPoleEnv)
    assert isinstance(pendulum.make_env(np.array([1.0])).unwrapped, PendulumEnv)

"""Environments of one's own as a family of tasks: `sf.tasks.from_gym`. Known through their simulators only.

A step's cost is what a `cost` function says if there is one; otherwise the third of six values (Safety-Gymnasium),
otherwise info["cost"]. If there is none of these, that is an error, never 0. A reward or cost that is not finite or
leaves its declared range stops the run, and so does an action outside of the action space.

What an episode's end means is stated by whoever declares the system. `terminated` is an end of the system: by default
nothing more is earned or paid, so that ENDING EARLY MAY BE CHEAP: a cart that falls over stops paying. Where each step
that is then missing up to the horizon earns or costs something, `after_termination` says so. `truncated` before the
horizon is refused: a time limit is no end of the system, and the costs after it would be lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, check_int
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.distribution import ParameterDistribution
from surefoot.tasks.gym_episodes import GymEpisodes, play
from surefoot.tasks.gym_lanes import LaneStep, SingleLane, first_observation
from surefoot.tasks.gym_options import LANES, GymOptions, MakeEnv, MakeVector, SetTask
from surefoot.tasks.gym_signals import Cost
from surefoot.tasks.gym_spaces import describe_space, flat, random_action, shape_of
from surefoot.tasks.gym_world import GymWorld
from surefoot.tasks.task_distribution import TaskDistribution

# The episode of random actions by which tasks are told apart, and the digits of it that all processors agree on.
DIGEST_SEED, DIGEST_STEPS, DIGEST_DIGITS = 20_777, 8, 6


def from_gym(
    make_env: MakeEnv,
    distribution: ParameterDistribution,
    *,
    budget: ArrayLike,
    horizon: int | None,
    discount: float = 1.0,
    reward_range: ArrayLike,
    cost_range: ArrayLike,
    cost: Cost | None = None,
    reward_sum_range: ArrayLike | None = None,
    cost_sum_range: ArrayLike | None = None,
    after_termination: tuple[float, ArrayLike] = (0.0, 0.0),
    clip_actions: bool = False,
    set_task: SetTask = None,
    make_vector: MakeVector | None = None,
    lanes: int = LANES,
    shared_costs: bool = False,
) -> TaskDistribution:
    """A family of environments as a task distribution. Try it with `sf.check_env` first.

    Args:
        make_env: environment of a parameter [d], in the form of Gymnasium, a new one each time. It is closed after use.
        distribution: of the parameter.
        budget: on the expected cost of an episode, or [m] on m costs: on the plain sum over the horizon with discount
            1, on the discounted sum with a smaller one.
        horizon: steps of an episode; None with a discount below 1 for systems that go on for ever.
        reward_range, cost_range: (low, high) of one step's reward and cost, [m, 2] for m costs. 0, which steps pay that
            are missing after an end, need not be in them.
        cost: (observation, action, next observation, info) -> cost or [m]; with `make_vector` of n episodes at once,
            [n] or [n, m]. The action is the one that was taken, after clipping.
        reward_sum_range, cost_sum_range: of a whole episode's sums, where more is known of them (an end that is paid
            once): value bounds become narrower. A sum beyond by more than rounding is refused.
        after_termination: (reward, cost or costs [m]) of every step from termination up to the horizon; 0 or in range.
        clip_actions: move actions that leave a box to its nearest end instead of refusing them. Deploy with the same
            rule: it is part of every policy that is evaluated here.
        set_task: for environments with that method (garage, learn2learn, Metaworld), which is called after `make_env`
            with the parameter [d], or with what a function given here makes of it; the environment may then be the same
            for all tasks and is not closed. False if `make_env` has set the task already.
        make_vector: (parameter, n) -> the same environment n times side by side, with the methods of Gymnasium's
            vector environments: faster, in law the same.
        lanes: episodes side by side at most.
        shared_costs: costs are the same on all tasks, as in `TaskDistribution`.
    """
    options = GymOptions(
        make_env, budget=budget, horizon=horizon, discount=discount, reward_range=reward_range, cost_range=cost_range,
        cost=cost, reward_sum_range=reward_sum_range, cost_sum_range=cost_sum_range, clip_actions=clip_actions,
        after_termination=after_termination, set_task=set_task, make_vector=make_vector, lanes=lanes,
    )  # fmt: skip
    return TaskDistribution(partial(GymTask, options), distribution, shared_costs=shared_costs)


@dataclass(frozen=True, eq=False)
class GymTask:
    """The environment of a parameter [d]: a task that can be simulated and not be read."""

    options: GymOptions
    parameter: Floats

    @property
    def units(self) -> Units:
        return self.options.units

    @property
    def spaces(self) -> str:
        return self._spaces[0]

    def episodes(self, policy: Policy, steps: int) -> GymEpisodes:
        """One by one, or side by side where the system can."""
        check_acts(policy)
        return GymEpisodes(self.options, self.parameter, self._spaces[1], policy, check_int("steps", steps))

    def world(self, lanes: int, *others: GymTask) -> GymWorld:
        """Single environments side by side, for training: observations must be flat boxes, actions discrete or flat
        boxes that are clipped."""
        for k, other in enumerate(others):
            if other.options is not self.options or other.spaces != self.spaces:
                raise InvalidInput(f"others[{k}] must be of the family of this task, got one of {other.spaces}")
        parameters = [task.parameter for task in (self, *others) for _ in range(check_int("lanes", lanes))]
        return GymWorld(self.options, parameters)

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        """Of one observation, by which controllers tell one from many; None where it is no array."""
        return self._spaces[2]

    def digest(self) -> str:
        """SHA-256 of the parameter, of what was declared, of what the environment is called and of the first steps of
        an episode of random actions, where the seed decides about it. Environments that agree on all that and differ
        later have one digest."""
        first, again = self._first_steps(), self._first_steps()
        units = self.units
        told = {
            "parameter": self.parameter.tolist(),
            "spaces": self.spaces,
            "discount": units.discount,
            "horizon": units.horizon,
            "reward_range": units.reward_range,
            "cost_range": units.cost_range.tolist(),
            "budget": units.budget.tolist(),
            "sum_ranges": units.reachable.tolist(),
            "after_termination": self.options.after_termination.tolist(),
            "clip_actions": self.options.clip_actions,
            "first_steps": first if first == again else None,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _spaces(self) -> tuple[str, Any, tuple[int, ...] | None]:
        """In words, that of actions, and the shape of observations."""
        with self.options.open_env(self.parameter) as env:
            observations, actions = describe_space(env.observation_space), describe_space(env.action_space)
            words = f"{len(self.units.budget)} constraint(s), observations {observations}, actions {actions}"
            return words, env.action_space, shape_of(env.observation_space)

    def _first_steps(self) -> list[str]:
        """Names and numbers, these rounded."""
        with self.options.open_env(self.parameter) as env:
            seen = [*_names(env), *_format_for_digest(flat(first_observation(env, DIGEST_SEED)))]
            steps = min(DIGEST_STEPS, self.units.episode_length)
            for step in play_randomly(SingleLane(env, self.options), DIGEST_SEED, DIGEST_SEED, steps):
                seen += _format_for_digest([*step.paid[0].tolist(), *flat(step.observation)])
        return seen


@dataclass(frozen=True, eq=False)
class RandomActions:
    """Uniform over the action space: what environments are tried with."""

    space: Any
    kind: ClassVar[str] = "random"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> NDArray[Any]:
        return random_action(self.space, rng, np.shape(step))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {}


def play_randomly(lane: SingleLane, seed: int, action_seed: int, steps: int) -> Iterator[LaneStep]:
    """An episode of random actions, about which a seed of their own decides."""
    policy, rng = RandomActions(lane.env.action_space), np.random.default_rng(action_seed)
    return play(lane, lambda observation, t: policy.act(observation, t, rng), lane.begin([seed]), steps)


def _names(env: Any) -> list[str]:
    """Of the innermost class, and what it is registered as."""
    spec = getattr(env, "spec", None)
    return [type(getattr(env, "unwrapped", env)).__qualname__, str(getattr(spec, "id", ""))]


def _format_for_digest(numbers: list[float | str]) -> list[str]:
    return [value if isinstance(value, str) else f"{round(value, 9):.{DIGEST_DIGITS}g}" for value in numbers]

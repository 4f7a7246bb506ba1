"""Environments stepped in closed loop, one per lane: what policies are trained on (`GymTask.world`)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.world import Shapes
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_episodes import DiscountWeights, cut_off, in_range
from surefoot.tasks.gym_lanes import SingleLane
from surefoot.tasks.gym_options import GymOptions
from surefoot.tasks.gym_spaces import is_box, is_discrete
from surefoot.tasks.lane_world import LaneWorld

RUNNING = np.ones(1, np.bool_)


class GymWorld(LaneWorld):
    """One environment per parameter, closed when the world is gone; lanes that were never begun show 0.

    The sums of an episode are those of `GymTask.episodes`: what the steps after an end pay is in the step of the end.
    """

    def __init__(self, options: GymOptions, parameters: Sequence[Floats]) -> None:
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        self._options, self._weights = options, DiscountWeights.of(options.units, options.units.episode_length)
        envs = [stack.enter_context(options.open_env(parameter)) for parameter in parameters]
        if len({id(env) for env in envs}) < len(envs):
            raise InvalidInput("make_env must return a new environment for every lane, got the same one twice")
        self._lanes = [SingleLane(env, options) for env in envs]
        super().__init__(len(envs), _shapes(envs[0], options), options.units, options.units.episode_length)
        self._seen: list[Any] = [np.zeros(self.shapes.observation)] * self.lanes

    def _reset(self, lanes: Integers, seeds: Integers) -> None:
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._seen[lane] = np.array(self._lanes[lane].begin([seed]))

    def _move(self, lanes: Integers, actions: NDArray[Any], time: Integers) -> tuple[Floats, Floats, Mask]:
        each = zip(lanes.tolist(), actions, time.tolist(), strict=True)
        paid, sums, terminated = map(np.array, zip(*(self._step_lane(*one) for one in each), strict=True))
        whole = sums[terminated | (time + 1 >= self.steps)]
        if len(whole):
            in_range(Outcomes(whole[:, 0], whole[:, 1:]), self.units)
        return paid, sums, terminated

    def _step_lane(self, lane: int, action: Any, t: int) -> tuple[Floats, Floats, bool]:
        step = self._lanes[lane].step(self._seen[lane], action, t, RUNNING)
        paid, terminated, weights = step.paid[0], bool(step.terminated[0]), self._weights
        if step.truncated[0] and not terminated and t + 1 < self.steps:
            raise cut_off(t, self.steps, self.units)
        sums = self._sums[lane] + weights.at[t] * paid
        if terminated:
            later = weights.after[t + 1] * self._options.after_termination
            sums += later
            paid += later / weights.at[t]
        self._seen[lane] = np.array(step.observation)
        return paid, sums, terminated

    def _observations(self) -> Floats:
        return np.array(self._seen, dtype=np.float64)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _shapes(env: Any, options: GymOptions) -> Shapes:
    """Refused where no policy that is trained fits."""
    seen, done = env.observation_space, env.action_space
    if not is_box(seen) or len(seen.shape) != 1:
        raise InvalidInput(
            f"observation_space must be a box with one axis for policies to be trained, got {seen!r}; wrap the "
            "environment, e.g. in gymnasium.wrappers.FlattenObservation"
        )
    if is_discrete(done):
        if int(getattr(done, "start", 0)) != 0:
            raise InvalidInput(f"action_space must count from 0 for policies to be trained, got {done!r}")
        return Shapes(seen.shape[0], int(done.n), True)
    if len(done.shape) != 1 or np.dtype(done.dtype).kind != "f":
        raise InvalidInput(
            f"action_space must be discrete or a box of numbers with one axis for policies to be trained, got {done!r}"
        )
    if not options.clip_actions and np.isfinite([done.low, done.high]).any():
        raise InvalidInput(
            "clip_actions must be True for policies to be trained whose normal actions leave every box, got False"
        )
    return Shapes(seen.shape[0], done.shape[0], False)

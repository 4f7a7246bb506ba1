"""Environments stepped in closed loop, one per lane: what policies are trained on (`GymTask.world`)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask, generator
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Shapes, Stepped
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_episodes import SEEDS, DiscountWeights, cut_off, first_observation, in_range, one_step
from surefoot.tasks.gym_spaces import is_box, is_discrete
from surefoot.tasks.gym_system import System


class GymWorld:
    """A `World`: one environment per parameter, closed when the world is gone.

    The sums of an episode are those of `GymTask.episodes`: what the steps after an end pay is in the step of the end.
    """

    def __init__(self, system: System, parameters: Sequence[Floats]) -> None:
        opened = ExitStack()
        weakref.finalize(self, opened.close)
        self._system, self._steps = system, system.units.episode_length
        self._envs = [opened.enter_context(system.opened(parameter)) for parameter in parameters]
        if len({id(env) for env in self._envs}) < len(self._envs):
            raise InvalidInput("make_env must return a new environment for every lane, got the same one twice")
        self._shapes = _shapes(self._envs[0], system)
        self._payments = DiscountWeights.of(system.units, self._steps)
        self._seen: list[Any] = [np.zeros(self._shapes.observation)] * self.lanes
        self._sums, self._time = np.zeros((self.lanes, 1 + len(system.units.budget))), np.zeros(self.lanes, np.int64)
        self._terminated, self._ended = np.zeros(self.lanes, np.bool_), np.ones(self.lanes, np.bool_)

    @property
    def lanes(self) -> int:
        return len(self._envs)

    @property
    def shapes(self) -> Shapes:
        return self._shapes

    @property
    def units(self) -> Units:
        return self._system.units

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        """Begin new episodes in the lanes marked [n], each from a seed below 2³¹ drawn in the order of the lanes;
        observations [n, o] of all lanes, 0 of those that were never begun."""
        if np.shape(lanes) != (self.lanes,) or np.asarray(lanes).dtype != np.bool_:
            raise InvalidInput(f"lanes must be marked by [{self.lanes}] truth values, got {lanes!r}")
        begun = np.flatnonzero(lanes)
        for lane, seed in zip(begun, generator("rng", rng).integers(SEEDS, size=len(begun)), strict=True):
            self._seen[lane] = np.array(first_observation(self._envs[lane], int(seed)))
        self._sums[begun], self._time[begun], self._terminated[begun], self._ended[begun] = 0.0, 0, False, False
        return self._observation()

    def step(self, actions: Any) -> Stepped:
        """One step in every lane that does not rest."""
        shape = (self.lanes,) if self.shapes.discrete else (self.lanes, self.shapes.action)
        if np.shape(actions) != shape:
            raise InvalidInput(f"actions must have shape {list(shape)}, got {list(np.shape(actions))}")
        running = np.flatnonzero(~self._ended)
        if not len(running):
            raise InvalidInput("episodes must be begun before they are stepped, got a world all of whose lanes rest")
        paid = np.zeros_like(self._sums)
        for lane in running.tolist():
            paid[lane] = self._step_lane(lane, actions[lane])
        if self._ended[running].any():
            whole = self._sums[running[self._ended[running]]]
            in_range(Outcomes(whole[:, 0], whole[:, 1:]), self.units)
        sums, terminated, ended = self._sums.copy(), self._terminated.copy(), self._ended.copy()
        return Stepped(self._observation(), paid[:, 0], paid[:, 1:], sums, terminated, ended)

    def _step_lane(self, lane: int, action: Any) -> Floats:
        """[1+m] what a step of one lane pays."""
        t, payments = int(self._time[lane]), self._payments
        step = one_step(self._envs[lane], self._system, self._seen[lane], action, t)
        if step.truncated and not step.terminated and t + 1 < self._steps:
            raise cut_off(t, self._steps, self.units)
        paid = np.array(step.numbers)
        self._sums[lane] += payments.weights[t] * paid
        if step.terminated:
            later = payments.after[t + 1] * self._system.after_termination
            self._sums[lane] += later
            paid += later / payments.weights[t]
        self._seen[lane], self._time[lane] = np.array(step.observation), t + 1
        self._terminated[lane], self._ended[lane] = step.terminated, step.terminated or t + 1 >= self._steps
        return paid

    def _observation(self) -> Floats:
        return np.array(self._seen, dtype=np.float64)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _shapes(env: Any, system: System) -> Shapes:
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
    if not system.clip_actions and np.isfinite([done.low, done.high]).any():
        raise InvalidInput(
            "clip_actions must be True for policies to be trained whose normal actions leave every box, got False"
        )
    return Shapes(seen.shape[0], done.shape[0], False)

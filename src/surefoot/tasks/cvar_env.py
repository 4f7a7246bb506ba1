"""The same for environments: observations that tell the cost so far, and costs that count above the threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.cvar_tasks import SAME, Tail
from surefoot.tasks.gym_signals import Cost, cost_of, unpacked


class TailEnv:
    """An environment with a budget on the tail of its cost, in the form of Gymnasium: give `from_gym` this one with
    `budget=tail.allowed` and discount 1. Anything under which Proposition 3 is lost is refused there.

    A vector that is observed has one more entry, the cost so far up to the threshold. A state s out of S becomes the
    state y·S + s after y units of cost, rounded up step by step. Costs after an early end are not seen: declare none.
    """

    def __init__(self, env: Any, tail: Tail, cost: Cost | None = None) -> None:
        """Args: cost: (observation, action, next observation, info) -> cost; by default what the environment says."""
        self.env, self.tail, self._cost = env, tail, cost
        self.action_space = env.action_space
        self.observation_space = _space(env.observation_space, tail)
        self._states = getattr(env.observation_space, "n", None)
        self._before, self._so_far, self._step = None, 0.0, 0

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, **given: Any) -> tuple[Any, Any]:
        observation, info = self.env.reset(**given)
        self._before, self._so_far, self._step = observation, 0.0, 0
        return self._told(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        said = unpacked(self.env.step(action), self._step)
        paid = float(cost_of(said, self._before, action, self._cost, self._step))
        if not paid >= 0:
            raise InvalidInput(f"cost must not be negative where its tail has a budget, got {paid!r}")
        if self._states is not None:
            paid = float(self.tail.units(np.array(paid))) * self.tail.unit
        free = max(self.tail.threshold - self._so_far, 0.0)
        self._before, self._so_far, self._step = said.observation, self._so_far + paid, self._step + 1
        info = {**said.info, "cost": max(paid - free, 0.0)}
        return self._told(said.observation), said.reward, said.terminated, said.truncated, info

    def close(self) -> None:
        self.env.close()

    def _told(self, observation: Any) -> Any:
        known = min(self._so_far, self.tail.threshold)
        if self._states is not None:
            return round(known / self.tail.unit) * int(self._states) + int(observation)
        return np.append(np.asarray(observation), known).astype(self.observation_space.dtype)


def check_tail(env: Any, units: Units, cost: Cost | None, after_termination: Floats) -> None:
    """Whoever declares a family of such environments, wrapped or not, declares what Proposition 3 asks for."""
    tail = _tail(env)
    if tail is None:
        return
    if units.discount != 1:
        raise InvalidInput(f"discount must be 1 where a tail has the budget (TailEnv), got {units.discount:g}")
    if len(units.budget) != 1 or units.budget[0] > tail.allowed + SAME * tail.budget:
        raise InvalidInput(
            f"budget must be at most tail.allowed, {tail.allowed:g}, for a TailEnv, got {units.budget.tolist()}"
        )
    if cost is not None:
        raise InvalidInput("cost must be given to TailEnv, which tells what of it counts, got one beside it")
    if after_termination[1:].any():
        raise InvalidInput(
            "after_termination must hold no cost for a TailEnv, which cannot count it, "
            f"got {after_termination[1:].tolist()}"
        )


def _tail(env: Any) -> Tail | None:
    """Of the environment, or of one that it wraps."""
    while env is not None and not isinstance(env, TailEnv):
        env = getattr(env, "env", None)
    return None if env is None else env.tail


def _space(space: Any, tail: Tail) -> Any:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete) and space.start == 0:
        return spaces.Discrete(int(space.n) * tail.levels)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        low, high = np.append(space.low, 0.0), np.append(space.high, tail.threshold)
        return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)
    raise InvalidInput(f"observation_space must be a vector or states from 0 on, got {space!r}")

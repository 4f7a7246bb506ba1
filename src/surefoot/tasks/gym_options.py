"""An environment of one's own as it was declared: how it is made, in which units it speaks, what its end means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, assign, check_int, finite_array, flag, make_readonly, number
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.cvar_tasks import check_tail
from surefoot.tasks.gym_signals import Cost, Ranges
from surefoot.tasks.gym_spaces import check_action_space

MakeEnv: TypeAlias = Callable[[Floats], Any]
MakeVector: TypeAlias = Callable[[Floats, int], Any]
SetTask: TypeAlias = Callable[[Floats], Any] | bool | None

LANES = 256  # episodes side by side


@dataclass(frozen=True, eq=False)
class GymOptions:
    """What all tasks of a family of environments share: the options of `from_gym` and of `check_env`.

    They mean what they mean there; `after_termination` then is the array [1+m] of reward and costs.
    """

    make_env: MakeEnv
    _: KW_ONLY
    budget: ArrayLike
    horizon: int | None
    discount: float = 1.0
    reward_range: ArrayLike
    cost_range: ArrayLike
    cost: Cost | None = None
    reward_sum_range: ArrayLike | None = None
    cost_sum_range: ArrayLike | None = None
    after_termination: Any = (0.0, 0.0)
    clip_actions: bool = False
    set_task: SetTask = None
    make_vector: MakeVector | None = None
    lanes: int = LANES

    def __post_init__(self) -> None:
        for name in ("make_env", "cost", "make_vector"):
            function = getattr(self, name)
            if not (callable(function) or (function is None and name != "make_env")):
                raise InvalidInput(f"{name} must be a function, got {function!r}")
        if not (self.set_task is None or isinstance(self.set_task, bool) or callable(self.set_task)):
            raise InvalidInput(f"set_task must be True, False or a function of the parameter, got {self.set_task!r}")
        assign(self, after_termination=_after(self.after_termination, self.units))
        assign(self, clip_actions=flag("clip_actions", self.clip_actions), lanes=check_int("lanes", self.lanes))

    @cached_property
    def units(self) -> Units:
        sums = (self.reward_sum_range, self.cost_sum_range)
        return Units(self.discount, self.reward_range, self.cost_range, self.budget, self.horizon, *sums)  # type: ignore[arg-type]

    @cached_property
    def ranges(self) -> Ranges:
        return Ranges(self.units)

    @contextmanager
    def open_env(self, parameter: Floats) -> Iterator[Any]:
        """The environment of a parameter [d], closed after use unless it may be one for all tasks."""
        env = self.make_env(parameter.copy())
        _check_env(env)
        check_tail(env, self.units, self.cost, self.after_termination)
        setter = self.task_setter(env)
        if setter is not None:
            setter(self.set_task(parameter.copy()) if callable(self.set_task) else parameter.copy())
        try:
            yield env
        finally:
            if setter is None:
                _close(env)

    @contextmanager
    def open_vector(self, parameter: Floats, lanes: int) -> Iterator[Any]:
        """The environment of a parameter [d] `lanes` times side by side."""
        if self.make_vector is None:
            raise InvalidInput("make_vector must be given for episodes side by side, got None")
        env = self.make_vector(parameter.copy(), lanes)
        _check_methods("make_vector", env, ("reset", "step"))
        count = getattr(env, "num_envs", lanes)
        if count != lanes:
            raise InvalidInput(f"make_vector must return {lanes} environments when asked for as many, got {count}")
        try:
            yield env
        finally:
            _close(env)

    def task_setter(self, env: Any) -> Callable[[Any], Any] | None:
        """The method `set_task` of an environment where it is to be called."""
        if self.set_task is False:
            return None
        innermost = getattr(env, "unwrapped", None)
        method = getattr(env, "set_task", None) or getattr(innermost, "set_task", None)
        if method is None and self.set_task is not None:
            raise InvalidInput(
                f"set_task must be left out for an environment without that method, got {type(env).__name__}"
            )
        return method


def cost_in_info(env: Any) -> Any:
    """The environment itself, its six values (Safety-Gymnasium) from now on five with info["cost"].

    To be called innermost: wrappers such as Gymnasium's TimeLimit break on six values, and this one knows both.
    """
    step = env.step

    def five(action: Any) -> Any:
        values = step(action)
        if not isinstance(values, tuple) or len(values) != 6:
            return values
        observation, reward, cost, terminated, truncated, info = values
        return observation, reward, terminated, truncated, {**info, "cost": cost}

    env.step = five
    return env


def parameter_of(value: Any) -> Floats:
    """A parameter [d], also from a bare number."""
    array = np.atleast_1d(finite_array("parameter", value))
    if array.ndim != 1 or not array.size:
        raise InvalidInput(f"parameter must be a number or a vector [d], got shape {list(array.shape)}")
    return make_readonly(array)


def _after(declared_pair: Any, units: Units) -> Floats:
    """[1+m] what every step pays after the end, in range or 0."""
    if not isinstance(declared_pair, tuple | list) or len(declared_pair) != 2:
        raise InvalidInput(f"after_termination must be a pair (reward, cost or costs [m]), got {declared_pair!r}")
    reward = number("after_termination[0]", declared_pair[0])
    costs = finite_array("after_termination", declared_pair[1])
    if costs.shape not in ((), units.budget.shape):
        raise InvalidInput(
            f"after_termination must hold one cost, or one for each of {len(units.budget)} budgets, "
            f"got {costs.tolist()}"
        )
    paid = np.array([reward, *np.broadcast_to(costs, units.budget.shape)])
    ranges = np.array([units.reward_range, *units.cost_range])
    outside = (paid != 0) & ((paid < ranges[:, 0]) | (paid > ranges[:, 1]))
    if outside.any():
        which = int(np.argmax(outside))
        raise InvalidInput(
            f"after_termination must be 0 or lie in {'reward_range' if which == 0 else 'cost_range'}, "
            f"{ranges[which].tolist()}, got {paid[which]:g}"
        )
    return make_readonly(paid)


def _check_env(env: Any) -> None:
    _check_methods("make_env", env, ("reset", "step", "action_space", "observation_space"))
    check_action_space(env.action_space)


def _check_methods(maker: str, env: Any, needed: tuple[str, ...]) -> None:
    lacking = [name for name in needed if not hasattr(env, name)]
    if lacking:
        raise InvalidInput(
            f"{maker} must return an environment with {', '.join(needed)}, "
            f"got {type(env).__name__} without {', '.join(lacking)}"
        )


def _close(env: Any) -> None:
    if callable(getattr(env, "close", None)):
        env.close()

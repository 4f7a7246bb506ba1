"""Environments stepped one at a time (`SingleLane`) or side by side (`VectorLanes`), each step read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, Mask, join_parts, make_readonly
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_options import GymOptions
from surefoot.tasks.gym_signals import MISSING, Signal, cost_of, missing_cost, unpack_step
from surefoot.tasks.gym_spaces import as_env_action


class LaneStep(NamedTuple):
    """One step of n lanes. Observations and actions are in the form of the environment.

    Attributes:
        t: number of the step.
        action: that was taken.
        drawn: the action before it was moved into the action space; None where it cannot be.
        paid: [n, 1+m] reward and costs, in range where `running`.
        shown: the observation after it, of lanes that ended their last one.
        observation: the observation after it as the environment gave it.
        terminated, truncated: [n] whether the system ended, and whether a time limit was reached.
        any_over: whether either happened in any lane, which is quickly told.
        running: [n] which lanes took it: the episodes of others have ended.
    """

    t: int
    action: Any
    drawn: Any
    paid: Floats
    shown: Any
    observation: Any
    terminated: Mask
    truncated: Mask
    any_over: bool
    running: Mask


FLAG = {flag: make_readonly(np.array([flag])) for flag in (False, True)}  # made once, since a step is short


@dataclass(frozen=True, eq=False)
class SingleLane:
    """One environment; observations and actions are those of one episode."""

    env: Any
    options: GymOptions
    count: ClassVar[int] = 1

    def begin(self, seeds: list[int]) -> Any:
        """The first observation of an episode per seed."""
        return first_observation(self.env, seeds[0])

    def step(self, observation: Any, action: Any, t: int, running: Mask) -> LaneStep:
        """Step t from an observation, with an action in the action space, or moved there where that is declared."""
        taken = as_env_action(self.env.action_space, action, t, self.options.clip_actions)
        before = _copy_for_cost(observation, self.options)
        signal = unpack_step(_step_env(self.env, taken), t)
        cost = cost_of(signal, before, taken, self.options.cost, t)
        paid = self.options.ranges.row(signal.reward, cost, t)
        ended, stopped, shown = bool(signal.terminated), bool(signal.truncated), signal.observation
        flags, drawn = (FLAG[ended], FLAG[stopped], ended or stopped), action if self.options.clip_actions else None
        return LaneStep(t, taken, drawn, paid, shown, shown, *flags, running)

    def next_observation(self, step: LaneStep) -> Any:
        """What the policy sees after a step."""
        return step.observation

    def clock(self, t: int) -> int:
        """The number of a step as policies take it."""
        return t

    def stack(self, shown: Any) -> NDArray[Any]:
        """[n, ...] a copy: some environments write the next observation over the last one."""
        return join_parts(shown)[None]


@dataclass(frozen=True, eq=False)
class VectorLanes:
    """A vector environment of `count` lanes; observations and actions are arrays [n, ...]."""

    env: Any
    options: GymOptions
    action_space: Any
    count: int

    def begin(self, seeds: list[int]) -> Any:
        return first_observation(self.env, seeds if self._has_env_fns else seeds[0])

    def step(self, observation: Any, action: Any, t: int, running: Mask) -> LaneStep:
        actions = as_env_action(self.action_space, action, t, self.options.clip_actions, (self.count,))
        before = _copy_for_cost(observation, self.options)
        signal = unpack_step(self.env.step(actions), t)
        final = _as_at_the_end(signal, running, t)
        if self.options.cost is None and signal.cost is MISSING:
            _check_costs(final, signal, running, t, exact=not self._has_env_fns)
        cost = cost_of(final, before, actions, self.options.cost, t)
        paid = self.options.ranges.rows(signal.reward, cost, t, (self.count,))
        self.options.ranges.check(paid[running], t)
        ended, stopped = (_flags(each, self.count, t) for each in (signal.terminated, signal.truncated))
        flags = (ended, stopped, bool((ended | stopped).any()))
        drawn = action if self.options.clip_actions else None
        return LaneStep(t, actions, drawn, paid, final.observation, signal.observation, *flags, running)

    def next_observation(self, step: LaneStep) -> Any:
        """After lanes that ended were reset, where the environment leaves that to us."""
        mode = (getattr(self.env, "metadata", {}) or {}).get("autoreset_mode")
        if getattr(mode, "value", mode) != "Disabled" or not step.any_over:
            return step.observation
        return self.env.reset(options={"reset_mask": step.terminated | step.truncated})[0]

    def clock(self, t: int) -> NDArray[np.int64]:
        return np.full(self.count, t)

    def stack(self, shown: Any) -> NDArray[Any]:
        return join_parts(shown, batch=1)

    @property
    def _has_env_fns(self) -> bool:
        """Gymnasium's SyncVectorEnv and AsyncVectorEnv, which take a seed for each; others take one for all."""
        return hasattr(getattr(self.env, "unwrapped", self.env), "env_fns")


Lanes: TypeAlias = SingleLane | VectorLanes

# ------------------------------------------------------------------------------------------------- parts, in call order


def first_observation(env: Any, seed: Any) -> Any:
    """Of an episode, or of several side by side, that is seeded."""
    try:
        found = env.reset(seed=seed)
    except TypeError as error:
        if all(_takes_seed(each) for each in _layers(env)):
            raise
        raise InvalidInput(f"reset must take seed=, as in Gymnasium, got {error}") from error
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        what = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
        raise InvalidInput(f"reset must return (observation, info), info being a dictionary, got {what}")
    return found[0]


def _layers(env: Any) -> Iterator[Any]:
    """An environment, what it wraps, and so on inwards; of several side by side the first."""
    while callable(getattr(env, "reset", None)):
        yield env
        side_by_side = getattr(env, "envs", None)
        env = side_by_side[0] if side_by_side else getattr(env, "env", None)


def _takes_seed(env: Any) -> bool:
    try:
        parameters = signature(env.reset).parameters
    except (TypeError, ValueError):  # not written in Python: nobody can tell
        return True
    return "seed" in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())


def _copy_for_cost(observation: Any, options: GymOptions) -> Any:
    """The observation as it is now, for a cost function to see it: some environments write the next one over it."""
    return deepcopy(observation) if options.cost is not None else observation


def _step_env(env: Any, action: Any) -> Any:
    try:
        return env.step(action)
    except ValueError as error:
        if not _six_values_inside(env, action):
            raise
        raise InvalidInput(
            f"a wrapper does not know what the environment inside it returns ({error}); if these are "
            "Safety-Gymnasium's six values, put sf.tasks.cost_in_info(env) innermost and wrappers around it"
        ) from error


def _six_values_inside(env: Any, action: Any) -> bool:
    """Whether an environment that failed to step wraps one that returns six values, which that one is asked."""
    *wrappers, inside = _layers(env)
    if not wrappers:
        return False
    try:
        result = inside.step(action)
    except Exception:  # it was to say more about another error, and cannot
        return False
    return isinstance(result, tuple) and len(result) == 6


def _as_at_the_end(signal: Signal, running: Mask, t: int) -> Signal:
    """What was seen before lanes were reset in the same step (Gymnasium's SAME_STEP): their last observation and info
    stand apart, and the top level holds those of the next episode."""
    observation, info = signal.observation, dict(signal.info)
    for name in ("final_obs", "final_observation"):
        if name in info:
            ended = np.flatnonzero(_mask(info, name, len(running)) & running)
            observation = _with_final(observation, info[name], ended)
    if "final_info" in info:
        apart, last = info["final_info"], _mask(info, "final_info", len(running)) & running
        if not isinstance(apart, dict):
            raise InvalidInput(
                f'info["final_info"] must be a dictionary of arrays, as in Gymnasium 1.1 and later, '
                f"got {type(apart).__name__} at step {t}"
            )
        info["_cost"] = np.where(last, _mask(apart, "cost", len(running)), _mask(info, "cost", len(running)))
        if "cost" in apart:
            ahead, shape = np.asarray(apart["cost"]), (-1,) + (1,) * (np.ndim(apart["cost"]) - 1)
            info["cost"] = np.where(last.reshape(shape), ahead, info.get("cost", np.zeros_like(ahead)))
    return signal._replace(observation=observation, info=info)


def _with_final(observation: Any, final: Any, ended: Integers) -> Any:
    """A copy of the observations of all lanes, with the last ones of those that ended; by part where there are some."""
    if isinstance(observation, Mapping | tuple):
        names = list(observation) if isinstance(observation, Mapping) else range(len(observation))
        apart = final if type(final) is type(observation) else {k: {n: final[n][k] for n in ended} for k in names}
        parts = {k: _with_final(observation[k], apart[k], ended) for k in names}
        return parts if isinstance(observation, Mapping) else tuple(parts.values())
    found = np.array(observation)
    for lane in ended:
        found[lane] = final[lane]
    return found


def _mask(info: dict[str, Any], name: str, lanes: int) -> Mask:
    """[n] which lanes have that entry: as a mask beside it says, otherwise all if it is there at all."""
    mask = info.get(f"_{name}")
    return np.full(lanes, name in info) if mask is None else np.asarray(mask, dtype=np.bool_)


def _check_costs(final: Signal, signal: Signal, running: Mask, t: int, exact: bool) -> None:
    """Every running lane has a cost, and it is the one that its environment gave."""
    lacking = running & ~_mask(dict(final.info), "cost", len(running))
    if lacking.any():
        ended = np.asarray(signal.terminated) | np.asarray(signal.truncated)
        raise missing_cost(t, bool(ended[lacking].any()), list(final.info))
    if not exact and np.asarray(final.info["cost"]).dtype.kind != "f":
        raise InvalidInput(
            f'info["cost"] must be a float in every lane, got {np.asarray(final.info["cost"]).dtype} at step {t}: '
            "Gymnasium's vector environments take the type of the first lane for all, and an int would cut 0.7 to 0"
        )


def _flags(value: Any, lanes: int, t: int) -> Mask:
    array: Mask = np.asarray(value)
    if array.shape != (lanes,):
        raise InvalidInput(f"terminated and truncated must have shape [{lanes}], got {list(array.shape)} at step {t}")
    return array

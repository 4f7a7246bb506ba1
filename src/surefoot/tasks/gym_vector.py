"""Episodes of an environment side by side, one in each lane of a vector environment.

A lane whose episode has ended is not counted any further, whatever the environment then does with it: takes a step that
is none (Gymnasium's NEXT_STEP), begins another episode (SAME_STEP) or must be reset by hand (DISABLED). Counting the
episodes that end first instead would favour short ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_episodes import (
    DiscountWeights,
    Recording,
    concatenate_observed,
    copy_observation,
    cut_off,
    draw_seeds,
    first_observation,
    in_range,
)
from surefoot.tasks.gym_signals import MISSING, Signal, cost_of, missing_cost, unpack_step
from surefoot.tasks.gym_spaces import as_env_action
from surefoot.tasks.gym_system import System


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Episodes of `policy` that end after `steps` steps at the latest."""

    system: System
    parameter: Floats
    policy: Policy
    steps: int
    action_space: Any

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Sums of `episodes` episodes, as many lanes at a time as the system has; with `transitions` also what was
        observed."""
        seeds, acting = draw_seeds(episodes, rng)
        batches = [seeds[k : k + self.system.lanes] for k in range(0, episodes, self.system.lanes)]
        recordings = [Recording(transitions, len(batch)) for batch in batches]
        each = zip(batches, recordings, strict=True)
        sums = np.concatenate([self._batch(batch.tolist(), acting, recording) for batch, recording in each])
        observed = concatenate_observed([recording.observed for recording in recordings])
        return in_range(Outcomes(sums[:, 0], sums[:, 1:], observed=observed), self.system.units)

    def _batch(self, seeds: list[int], acting: np.random.Generator, recording: Recording) -> Floats:
        """[n, 1+m] discounted sums of one episode per seed."""
        with self.system.opened_vector(self.parameter, len(seeds)) as env:
            return self._sums(env, seeds, acting, recording)

    def _sums(self, env: Any, seeds: list[int], acting: np.random.Generator, recording: Recording) -> Floats:
        lanes, payments = len(seeds), self._payments
        observation = first_observation(env, seeds if _has_env_fns(env) else seeds[0])
        recording.begin(observation)
        sums, running = np.zeros((lanes, 1 + len(self.system.units.budget))), np.ones(lanes, np.bool_)
        for t in range(self.steps):
            drawn_actions = self.policy.act(observation, np.full(lanes, t), acting)
            actions = as_env_action(self.action_space, drawn_actions, t, self.system.clip_actions, (lanes,))
            before = copy_observation(observation, self.system)
            signal = unpack_step(env.step(actions), t)
            final = _as_at_the_end(signal, running, t)
            recording.step(actions, final.observation, running)
            counted = running if not running.all() else slice(None)  # a mask costs more than the sums
            rows = self._rows(signal, final, before, actions, running, t, env)
            sums[counted] += payments.weights[t] * rows[counted]
            ended, stopped = (_flags(flag, lanes, t) for flag in (signal.terminated, signal.truncated))
            if (running & stopped & ~ended).any() and t + 1 < self.steps:
                raise cut_off(t, self.steps, self.system.units)
            sums[running & ended] += payments.after[t + 1] * self.system.after_termination
            recording.paid(rows + payments.owed(t) * self.system.after_termination * (running & ended)[:, None])
            running &= ~ended
            if not running.any():
                break
            observation = _reset_ended(env, signal.observation, ended | stopped)
        return sums

    def _rows(
        self, signal: Signal, final: Signal, before: Any, actions: NDArray[Any], running: Mask, t: int, env: Any
    ) -> Floats:
        """[n, 1+m] numbers of step t, in range where `running`."""
        if self.system.cost is None and signal.cost is MISSING:
            _check_costs(final, signal, running, t, exact=not _has_env_fns(env))
        cost = cost_of(final, before, actions, self.system.cost, t)
        rows = self.system.ranges.rows(signal.reward, cost, t, len(running))
        self.system.ranges.check(rows[running], t)
        return rows

    @cached_property
    def _payments(self) -> DiscountWeights:
        return DiscountWeights.of(self.system.units, self.steps)


def _has_env_fns(env: Any) -> bool:
    """Gymnasium's SyncVectorEnv and AsyncVectorEnv, which take a seed for each; others take one for all."""
    return hasattr(getattr(env, "unwrapped", env), "env_fns")


def _flags(value: Any, lanes: int, t: int) -> Mask:
    array: Mask = np.asarray(value)
    if array.shape != (lanes,):
        raise InvalidInput(f"terminated and truncated must have shape [{lanes}], got {list(array.shape)} at step {t}")
    return array


def _as_at_the_end(signal: Signal, running: Mask, t: int) -> Signal:
    """What was seen before lanes were reset in the same step (Gymnasium's SAME_STEP): their last observation and info
    stand apart, and the top level holds those of the next episode."""
    observation, info = signal.observation, dict(signal.info)
    for name in ("final_obs", "final_observation"):
        if name in info:
            observation = np.array(observation)
            for lane in np.flatnonzero(_mask(info, name, len(running)) & running):
                observation[lane] = info[name][lane]
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


def _reset_ended(env: Any, observation: Any, ended: Mask) -> Any:
    """Observations after lanes that ended were reset, where the environment leaves that to us."""
    mode = getattr(env, "metadata", {}) or {}
    mode = mode.get("autoreset_mode")
    if getattr(mode, "value", mode) != "Disabled" or not ended.any():
        return observation
    return env.reset(options={"reset_mask": ended})[0]

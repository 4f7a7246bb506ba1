"""The plain way to simulate a tabular task: a Gymnasium environment, one step at a time. Needs gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from surefoot.arrays import Floats
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """A tabular task as a plain Gymnasium environment: next states by bisection of precomputed cumulative rows."""

    def __init__(self, cmdp: TabularCMDP, horizon: int) -> None:
        self.observation_space = gymnasium.spaces.Discrete(cmdp.n_states)
        self.action_space = gymnasium.spaces.Discrete(cmdp.n_actions)
        self._start = _cumulative(cmdp.start)
        self._next = _cumulative(cmdp.rows.toarray()).reshape(cmdp.n_states, cmdp.n_actions, cmdp.n_states)
        self._reward, self._cost, self._horizon = cmdp.reward, cmdp.cost, horizon
        self._state, self._steps = np.int64(0), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._steps = self._start.searchsorted(self.np_random.random(), "right"), 0
        return self._state, {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        state = self._state
        self._state = self._next[state, action].searchsorted(self.np_random.random(), "right")
        self._steps += 1
        info = {"cost": self._cost[:, state, action]}
        return self._state, self._reward[state, action], False, self._steps >= self._horizon, info


def env_rewards(environment: TabularEnv, policy: TabularPolicy, discount: float, count: int, seed: int) -> Floats:
    """[count] discounted rewards, one env.step at a time; the costs are summed up as well."""
    rng, choices = np.random.default_rng(seed), _cumulative(policy.probabilities)
    rewards = np.zeros(count)
    for k in range(count):
        state, _ = environment.reset(seed=seed if k == 0 else None)
        weight, cost, truncated = 1.0, 0.0, False
        while not truncated:
            action = choices[state].searchsorted(rng.random(), "right")
            state, reward, _, truncated, info = environment.step(action)
            rewards[k] += weight * reward
            cost += weight * info["cost"]
            weight *= discount
    return rewards


def _cumulative(probabilities: Floats) -> Floats:
    total = np.cumsum(probabilities, axis=-1)
    scaled: Floats = total / total[..., -1:]
    return scaled

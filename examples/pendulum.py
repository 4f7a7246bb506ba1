"""A pendulum of unknown length, swung up by a motor that should not let it race: continuous actions.

Gymnasium's Pendulum with a cost while it turns faster than 6 rad/s, and the same pendulum n times side by side, written
in NumPy: any object with `reset` and `step` will do. Braking is safe for all lengths; pumping swings it up, and short
pendulums then race.

    python examples/pendulum.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

import surefoot as sf
from cartpole import say

# ------------------------------------------------------------------------------------------------------ the environment


def cost(observation: Any, action: Any, after: Any, info: Any) -> Any:
    """Of one pendulum or of n: observations are [cos, sin, speed], or n rows of them."""
    return 1.0 * (np.abs(after[..., 2]) > 6)


def make_env(parameter: Any) -> PendulumEnv:
    env = PendulumEnv()
    env.l = float(parameter[0])
    return env


SYSTEM: dict[str, Any] = {
    "budget": 5.0,  # steps of 100 in which it races
    "horizon": 100,
    "reward_range": (-16.2736045, 0),
    "cost_range": (0, 1),
    "cost": cost,
    "clip_actions": True,  # the motor can do no more than 2 Nm, whatever a controller asks for
    "make_vector": lambda parameter, n: Pendulums(float(parameter[0]), n),
    "lanes": 512,
}


LENGTHS = sf.tasks.Uniform(0.9, 1.3)


def tasks(lengths: Any = LENGTHS) -> sf.tasks.TaskDistribution:
    return sf.tasks.from_gym(make_env, lengths, **SYSTEM)


# --------------------------------------------------------------------------- the same side by side, for the speed of it


class Pendulums:
    """n of them: the equations of Gymnasium's Pendulum on arrays [n]."""

    def __init__(self, length: float, n: int) -> None:
        self.length, self.n = length, n

    def reset(self, *, seed: int | None = None) -> Any:
        rng = np.random.default_rng(seed)
        self.angle, self.speed = rng.uniform(-np.pi, np.pi, self.n), rng.uniform(-1, 1, self.n)
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        angle, torque = (self.angle + np.pi) % (2 * np.pi) - np.pi, action[:, 0].astype(np.float64)
        reward = -(angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        push = 15 / self.length * np.sin(self.angle) + 3 / self.length**2 * torque
        self.speed = np.clip(self.speed + 0.05 * push, -8, 8)
        self.angle = self.angle + 0.05 * self.speed
        never = np.zeros(self.n, dtype=bool)
        return self.seen(), reward, never, never, {}

    def seen(self) -> Any:
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], axis=1).astype(np.float32)


# ------------------------------------------------------------------------------------------------------ the controllers


def braking(observation: Any) -> Any:
    return -2 * observation[..., 2:]


def pumping(torque: float) -> Any:
    """Push the way it turns until it has the energy to stand upright, and hold it there."""

    def law(observation: Any) -> Any:
        upright, angle, speed = (
            observation[..., 0],
            np.arctan2(observation[..., 1], observation[..., 0]),
            observation[..., 2],
        )
        lacking = speed**2 / 6 - 5 * (1 - upright)
        swing = torque * np.sign(speed) * (1.0 * (lacking < 0) - 1.0 * (lacking > 0.5))
        return np.where(np.abs(angle) < 0.5, -10 * angle - 3 * speed, swing)[..., None]

    return law


SAFE = sf.controller(braking, name="brake", vectorised=True)
CANDIDATES = [sf.controller(pumping(torque), name=f"pump with {torque} Nm", vectorised=True) for torque in (0.5, 1.0)]
ENVELOPES = sf.Envelopes(cells=8, holdout=129, uncovered=0.05, episodes=400)


def main(lengths: Any = LENGTHS, episodes: int = 2000, envelopes: sf.Envelopes = ENVELOPES, seed: int = 0) -> sf.Run:
    sf.check_env(make_env, 1.0, **SYSTEM)
    pendulums = tasks(lengths)
    policies = sf.policy_set(pendulums, safe=SAFE, candidates=CANDIDATES, seed=seed, envelopes=envelopes)
    length = pendulums.sample(1, np.random.default_rng(seed))[0]
    run = sf.adapt(policies, pendulums.task(length), method="certified", episodes=episodes, risk=0.1, seed=seed)
    say(pendulums, f"a pendulum of {length[0]:.2f} m", run)
    return run


if __name__ == "__main__":
    main()

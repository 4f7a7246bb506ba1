"""A wheel that is to be kept upright, known through its simulator only and steered by anything that acts.

    angle₀ = 0,  angleₜ₊₁ = 0.5·angleₜ + push·uₜ + 0.2·noise,  u = 0 or 1,  reward u,  cost 1 if |angle| > 1.

Written as somebody would who has a simulator and controllers, and no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

STEPS = 6
UNITS = Units(1.0, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.5]), horizon=STEPS)


@dataclass(frozen=True)
class Wheel:
    push: float
    units: Units = UNITS
    spaces: str = "an angle and its last push; one of two actions"

    def digest(self) -> str:
        return sha256(repr((self.push, self.units)).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Turns:
        return Turns(self, policy, min(steps, STEPS))


@dataclass(frozen=True)
class Turns:
    task: Wheel
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        state, reward, cost = np.zeros((episodes, 2)), np.zeros(episodes), np.zeros((episodes, 1))
        for step in range(self.steps):
            action = np.asarray(self.policy.act(state, np.full(episodes, step), rng))
            assert action.shape == (episodes,)
            assert action.dtype.kind == "i"
            reward += action
            angle = 0.5 * state[:, 0] + self.task.push * action + 0.2 * rng.normal(size=episodes)
            cost[:, 0] += np.abs(angle) > 1
            state = np.column_stack([angle, action])
        return Outcomes(reward, cost)


def _wheel(parameter: Floats) -> Wheel:
    return Wheel(float(parameter[0]))


def wheels() -> TaskDistribution:
    return family(_wheel, Uniform(0.2, 1.2))


class Pushes:
    """As a recurrent model: rests in every second step."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        turn = np.zeros(len(observation), int) if state is None else np.where(episode_start, 0, state)
        return turn % 2, turn + 1


CONTROLLERS: dict[str, Any] = {
    "rest": lambda observation: 0,
    "careful": lambda observation: int(observation[0] < 0.2),
    "every second": Pushes(),
}
QUICK = sf.Envelopes(cells=4, holdout=39, uncovered=0.2, episodes=80)


@cache
def wheel_set() -> sf.PolicyValueSet:
    safe, *others = (sf.controller(function, name=name) for name, function in CONTROLLERS.items())
    return sf.policy_set(wheels(), safe=safe, candidates=others, seed=1, envelopes=QUICK, progress=False)

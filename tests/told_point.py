"""The point mass of point_mass.py with a meter: episodes are told step by step, with what every step paid, and end
early where the mass is thrown off its lane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contracts.made_up import made_up_set
from point_mass import EDGE, JITTER, NOISE, PULL, START, PointMass, Rollouts, lane, network, speed
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.policyset.policy_value_set import PolicyValueSet

STEPS = 12
THROWN = 1.6  # beyond which an episode ends


class ToldPointMass(PointMass):
    def episodes(self, policy: Policy, steps: int) -> ToldRollouts:
        return ToldRollouts(self, network(policy), min(steps, STEPS))


@dataclass(frozen=True)
class ToldRollouts(Rollouts):
    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        x, running = START * rng.standard_normal(episodes), np.ones(episodes, np.bool_)
        seen, acted, paid, steps = [x[:, None]], [], [], np.zeros(episodes, np.int64)
        for _ in range(self.steps):
            action = self.policy.mean(x[:, None]) + JITTER * rng.standard_normal((episodes, len(self.task.drift)))
            numbers = np.stack([np.clip(action.sum(axis=1), 0.0, 1.0), (np.abs(x) > EDGE).astype(np.float64)], axis=1)
            x = PULL * x + action @ self.task.drift + NOISE * rng.standard_normal(episodes)
            steps += running
            paid.append(np.where(running[:, None], numbers, np.nan))
            acted.append(action)
            seen.append(x[:, None])
            running &= np.abs(x) < THROWN
        weights = self.task.units.discount ** np.arange(self.steps)
        told = np.stack(paid, axis=1)
        sums = np.nansum(told * weights[:, None], axis=1)
        shown = Observed(np.stack(seen, axis=1), np.stack(acted, axis=1), steps, told)
        return Outcomes(sums[:, 0], sums[:, 1:], observed=shown if transitions else None)


def told_task(drift: float = 0.3) -> ToldPointMass:
    return ToldPointMass([drift], lane(budget=1.0, discount=0.95, horizon=STEPS))


def told_set() -> PolicyValueSet:
    policies = [speed(0.2), speed(0.6)]
    return made_up_set(told_task().units, [(0.5, [0.1], 0.3, [0.5])], epsilon=0.01, policies=policies)  # type: ignore[arg-type]

"""A point mass on a lane, known through its simulator only, and what its policies are really worth, in closed form.

    x₀ ~ N(0, 0.2²),   xₜ₊₁ = 0.8·xₜ + drift·uₜ + 0.1·ξₜ,   reward clip(uₜ, 0, 1),   cost 1 if |xₜ| > 1.

Policies are networks without a hidden layer: u = w·x + b + s·noise. States and actions are then normally distributed with
means and variances that follow from each other, so that every expectation is a few values of the normal distribution.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.cmdp.values import Values
from surefoot.control.mlp_policy import MLPPolicy

START, PULL, NOISE, EDGE = 0.2, 0.8, 0.1, 1.0


def speed(level: float, gain: float = 0.0) -> MLPPolicy:
    """u = level + gain·x + 0.05·noise."""
    return MLPPolicy(
        (np.array([[10 * gain]]),), (np.array([level]),), np.log([0.05]), shift=np.zeros(1), scale=np.array([10.0])
    )


@dataclass(frozen=True)
class PointMass:
    """Only a simulator."""

    drift: float
    units: Units
    spaces: tuple[int, int] = (1, 1)

    def digest(self) -> str:
        return hashlib.sha256(repr((self.drift, self.units)).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Rollouts:
        if not isinstance(policy, MLPPolicy):
            raise TypeError(f"a point mass is steered by networks, got {policy.kind}")
        return Rollouts(self, policy, steps)


@dataclass(frozen=True)
class Rollouts:
    task: PointMass
    policy: MLPPolicy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        x, reward, cost = START * rng.standard_normal(episodes), np.zeros(episodes), np.zeros(episodes)
        jitter = np.exp(self.policy.log_std) * rng.standard_normal((self.steps, episodes))
        pushes = NOISE * rng.standard_normal((self.steps, episodes))
        for t in range(self.steps):
            action = self.policy.mean(x[:, None])[:, 0] + jitter[t]
            reward += self.task.units.discount**t * np.clip(action, 0.0, 1.0)
            cost += self.task.units.discount**t * (np.abs(x) > EDGE)
            x = PULL * x + self.task.drift * action + pushes[t]
        return Outcomes(reward, cost[:, None])


class ReadablePointMass(PointMass):
    """The same with its formulas: a task that can be read and is no table."""

    def values(self, policy: Policy) -> Values:
        return true_values(self, policy)

    def optimum(self) -> float:
        return float("nan")


def true_values(task: PointMass, policy: Policy) -> Values:
    """Exact values, for the episode that never ends or ends at the horizon (`steps` leaves 1e-12 of the former)."""
    if not isinstance(policy, MLPPolicy):
        raise TypeError(f"a point mass is steered by networks, got {policy.kind}")
    gain, level = policy.weights[0][0, 0] / policy.scale[0], policy.biases[0][0]
    units, jitter = task.units, float(np.exp(policy.log_std[0]))
    steps = units.horizon or int(np.ceil(np.log(1e-12) / np.log(units.discount)))
    mean, variance, reward, cost = 0.0, START**2, 0.0, 0.0
    for t in range(steps):
        reward += units.discount**t * clipped_mean(gain * mean + level, gain**2 * variance + jitter**2)
        cost += units.discount**t * beyond(mean, variance)
        mean = (PULL + task.drift * gain) * mean + task.drift * level
        variance = (PULL + task.drift * gain) ** 2 * variance + (task.drift * jitter) ** 2 + NOISE**2
    return Values(reward, np.array([cost]), units.budget - cost)


def beyond(mean: float, variance: float) -> float:
    """P(|X| > EDGE) for X ~ N(mean, variance)."""
    deviation = np.sqrt(variance)
    return float(ndtr((mean - EDGE) / deviation) + ndtr((-EDGE - mean) / deviation))


def clipped_mean(mean: float, variance: float) -> float:
    """E clip(X, 0, 1) = ∫₀¹ P(X > y) dy, and ∫ Φ(z) dz = zΦ(z) + φ(z)."""
    deviation = np.sqrt(variance)

    def integral(z: float) -> float:
        return float(z * ndtr(z) + np.exp(-z * z / 2) / np.sqrt(2 * np.pi))

    return float(deviation * (integral(mean / deviation) - integral((mean - 1) / deviation)))


def lane(budget: float, discount: float = 0.5, horizon: int | None = None) -> Units:
    return Units(discount, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([budget]), horizon)


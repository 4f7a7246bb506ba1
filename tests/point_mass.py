"""A point mass on a lane, known through its simulator only, and what its policies are really worth, in closed form.

    x₀ ~ N(0, 0.2²),   xₜ₊₁ = 0.8·xₜ + Σ_k drift_k·uₜₖ + 0.1·ξₜ,   reward clip(Σ_k uₜₖ, 0, 1),   cost 1 if |xₜ| > 1.

Policies are networks without a hidden layer: u_k = w_k·x + b_k + s·noise. States and actions are then normally
distributed, with means and variances that follow from each other, and every expectation is a few values of the normal
distribution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Values
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import MLPPolicy

START, PULL, NOISE, EDGE, JITTER = 0.2, 0.8, 0.1, 1.0, 0.05


def speed(*level: float, gain: float = 0.0) -> MLPPolicy:
    """u_k = level_k + gain·x + 0.05·noise."""
    engines = len(level)
    return MLPPolicy(
        (np.full((engines, 1), 10 * gain),),
        (np.array(level),),
        np.full(engines, np.log(JITTER)),
        shift=np.zeros(1),
        scale=np.array([10.0]),
    )


def lane(budget: float, discount: float = 0.5, horizon: int | None = None) -> Units:
    return Units(discount, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([budget]), horizon)


class PointMass:
    """Only a simulator."""

    def __init__(self, drift: ArrayLike, units: Units) -> None:
        self.drift, self.units = np.atleast_1d(np.asarray(drift, dtype=np.float64)), units

    @property
    def spaces(self) -> tuple[int, int]:
        return 1, len(self.drift)

    def digest(self) -> str:
        return hashlib.sha256(repr((self.drift.tolist(), self.units)).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Rollouts:
        return Rollouts(self, network(policy), steps)


@dataclass(frozen=True)
class Rollouts:
    task: PointMass
    policy: MLPPolicy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        x, reward, cost = START * rng.standard_normal(episodes), np.zeros(episodes), np.zeros(episodes)
        jitter = JITTER * rng.standard_normal((self.steps, episodes, len(self.task.drift)))
        pushes = NOISE * rng.standard_normal((self.steps, episodes))
        for t in range(self.steps):
            action = self.policy.mean(x[:, None]) + jitter[t]
            reward += self.task.units.discount**t * np.clip(action.sum(axis=1), 0.0, 1.0)
            cost += self.task.units.discount**t * (np.abs(x) > EDGE)
            x = PULL * x + action @ self.task.drift + pushes[t]
        return Outcomes(reward, cost[:, None])


class ReadablePointMass(PointMass):
    """The same with its formulas: a task that can be read and is no table."""

    def values(self, policy: Policy) -> Values:
        return true_values(self, policy)

    def optimum(self) -> float:
        return float("nan")


def network(policy: Policy) -> MLPPolicy:
    if not isinstance(policy, MLPPolicy):
        raise TypeError(f"a point mass is steered by networks, got {policy.kind}")
    return policy


# -------------------------------------------------------------------------------------------------- what is really true


def true_values(task: PointMass, policy: Policy) -> Values:
    """Exact values of whole episodes; those without a horizon are summed until 1e-12 of them is left."""
    (weights,), (level,), units, drift = network(policy).weights, network(policy).biases, task.units, task.drift
    gain = weights[:, 0] / network(policy).scale[0]
    steps = units.horizon or int(np.ceil(np.log(1e-12) / np.log(units.discount)))
    mean, variance, reward, cost = 0.0, START**2, 0.0, 0.0
    for t in range(steps):
        together = gain.sum() * mean + level.sum(), gain.sum() ** 2 * variance + len(drift) * JITTER**2
        reward += units.discount**t * clipped_mean(*together)
        cost += units.discount**t * beyond(mean, variance)
        mean = (PULL + drift @ gain) * mean + drift @ level
        variance = (PULL + drift @ gain) ** 2 * variance + (drift @ drift) * JITTER**2 + NOISE**2
    return Values(reward, np.array([cost]), units.budget - cost)


def true_margins(task: PointMass, policies: Sequence[Policy]) -> np.ndarray:
    """[P] of the one constraint."""
    return np.array([true_values(task, policy).margin[0] for policy in policies])


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

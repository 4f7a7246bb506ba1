"""A task that can only be simulated, written as a user would: a point that drifts towards a target on a line.

The state is Gaussian at every step, so that the truth is known in closed form to the tests and to nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from scipy.stats import norm

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

STEPS, GAIN, NOISE, DISCOUNT = 8, 0.5, 0.2, 0.9
PAYS, HURTS = 0.5, 1.0  # reward 1 for every step beyond the first place, cost 1 for every step beyond the second
UNITS = Units(DISCOUNT, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.0]))  # an episode is over after STEPS


def towards(target: float) -> MLPPolicy:
    """Moves by half of the way that is left."""
    gain, nothing = np.array([[-GAIN]]), np.zeros(1)
    return MLPPolicy((gain,), (np.array([GAIN * target]),), nothing, nothing, np.ones(1), clip=1e6)


@dataclass(frozen=True)
class PointMass:
    """A wind pushes the point by `wind` in every step."""

    wind: float
    units: Units = UNITS
    spaces: str = "a point on a line"

    def digest(self) -> str:
        return sha256(str(self.wind).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Drifts:
        assert isinstance(policy, MLPPolicy)
        return Drifts(self.wind, policy, steps)


@dataclass(frozen=True)
class Drifts:
    wind: float
    policy: MLPPolicy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        place, reward, cost = np.zeros((episodes, 1)), np.zeros(episodes), np.zeros((episodes, 1))
        for step in range(min(self.steps, STEPS)):
            place = place + self.policy.mean(place) + self.wind + NOISE * rng.normal(size=place.shape)
            reward += DISCOUNT**step * (place[:, 0] > PAYS)
            cost += DISCOUNT**step * (place > HURTS)
        return Outcomes(reward, cost)


def truth(wind: float, target: float) -> Floats:
    """[2] reward and margin of `towards(target)`, from the normal distribution of the place after each step."""
    mean, variance, total = 0.0, 0.0, np.zeros(2)
    for step in range(STEPS):
        mean = (1 - GAIN) * mean + GAIN * target + wind
        variance = (1 - GAIN) ** 2 * variance + NOISE**2
        total += DISCOUNT**step * norm.sf([PAYS, HURTS], mean, np.sqrt(variance))
    return np.array([total[0], UNITS.budget[0] - total[1]])


OPTIONS: dict[str, str] = {}  # of `masses` on the command line


def masses() -> TaskDistribution:
    return family(lambda wind: PointMass(float(wind[0])), Uniform(-0.05, 0.05), recipe={"family": "point-mass"})


def policy_set(*targets: float) -> PolicyValueSet:
    """A safe policy that stays at 0.4, and one towards each target, with their values at no wind."""
    safe_reward, safe_margin = truth(0.0, 0.4)
    entries = tuple(
        Entry(np.zeros(1), towards(target), reward, np.array([margin]), safe_reward, np.array([safe_margin]))
        for target in targets
        for reward, margin in [truth(0.0, target)]
    )
    tasks = masses()
    return PolicyValueSet(entries, towards(0.4), UNITS, 0.05, 0.05, 0.1, tasks.digest(), tasks.recipe, {"samples": 1})

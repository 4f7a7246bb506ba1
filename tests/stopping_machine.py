"""A machine that stops by itself, known through its simulator only, and what running it costs, in closed form.

Each step costs 1, or is a credit of 1, and earns what the policy earns; after it the machine stops with a small
probability, its hazard, and then nothing is earned or paid any more. Of an episode of H steps Σ_{t<H} (1-hazard)^t are
expected to be run. Nobody thinks of steps that are not run when ranges are declared: 0 is not in that of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution, family
from surefoot.training.policy_set import policy_set

STEPS = 20
GENTLE, FAST = (TabularPolicy(np.eye(2)[[k]]) for k in range(2))


@dataclass(frozen=True, eq=False)
class Kind:
    """What a step costs, and the way in which another machine is worse: it stops less often, or more often.

    Attributes:
        cost, cost_range, budget: of a step, and on the sum.
        hazard: [2] of the gentle and the fast way to run it.
        worse: sign of the change in hazard by which an episode costs more.
        earned, reward_range: [2] of a step, with either policy.
    """

    cost: float
    cost_range: tuple[float, float]
    budget: float
    hazard: Floats
    worse: int
    earned: Floats
    reward_range: tuple[float, float] = (0.0, 1.0)

    @property
    def units(self) -> Units:
        return Units(1.0, self.reward_range, np.array([self.cost_range]), np.array([self.budget]), horizon=STEPS)


COSTLY = Kind(1.0, (0.95, 1.0), 19.0, np.array([0.0125, 0.0074]), -1, np.array([0.5, 1.0]))
CREDITED = Kind(-1.0, (-1.0, -0.95), -17.5, np.array([0.004, 0.0128]), 1, np.array([0.5, 1.0]))
STEADY = replace(COSTLY, earned=np.ones(2), reward_range=(1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Machine:
    """One of a kind, with hazards [2] of its own."""

    kind: Kind
    hazard: Floats

    @property
    def units(self) -> Units:
        return self.kind.units

    @property
    def spaces(self) -> str:
        return "a machine and two ways to run it"

    def digest(self) -> str:
        return sha256(repr((self.hazard.tolist(), self.units)).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Days:
        assert isinstance(policy, TabularPolicy)
        return Days(self, int(policy.probabilities[0].argmax()), steps)

    @property
    def margin(self) -> Floats:
        """[2] exactly."""
        run = ((1 - self.hazard[:, None]) ** np.arange(STEPS)).sum(axis=1)
        margin: Floats = self.kind.budget - self.kind.cost * run
        return margin

    def moved(self, shift: float) -> Machine:
        """The worst one at the distance `shift`, since nothing but the hazard has changed."""
        return Machine(self.kind, self.hazard + self.kind.worse * shift)


@dataclass(frozen=True)
class Days:
    machine: Machine
    policy: int
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        run = np.minimum(rng.geometric(self.machine.hazard[self.policy], episodes), self.steps).astype(np.float64)
        kind = self.machine.kind
        return Outcomes(kind.earned[self.policy] * run, kind.cost * run[:, None])


def machines(kind: Kind) -> TaskDistribution:
    """Three that differ a little in their hazard."""
    return family(lambda theta: Machine(kind, kind.hazard + 0.0004 * theta[0]), Finite([0.0, 0.5, 1.0]))


def trained(kind: Kind, seed: int, episodes: int = 30_000) -> PolicyValueSet:
    bounds = Envelopes(uncovered=0.02, episodes=episodes)
    given = {"safe": GENTLE, "candidates": {"fast": FAST}}
    return policy_set(machines(kind), **given, seed=seed, envelopes=bounds, signals=False, progress=False)

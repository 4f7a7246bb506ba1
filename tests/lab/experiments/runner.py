"""A robot in one line: it pushes with u, motors of unknown gain s make s·u of it, and it runs at v = s·u + noise.

Ten steps; reward v, cost (s·u)², both over ten, budget 0.5. Policies push with a constant k and a jitter, so that
E[reward] = s·k and E[cost] = s²(k² + jitter²), but for what is cut off far outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.lab.experiments.locomotion.settings import LocomotionFamily
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

STEPS, NOISE, JITTER, BUDGET = 10, 0.1, 0.05, 0.5
LOW, HIGH, MOST = 0.0, 2.0, 2.5  # of a velocity and of a cost, before they are divided by the steps
UNITS = Units(1.0, (LOW / STEPS, HIGH / STEPS), np.array([[0.0, MOST / STEPS]]), np.array([BUDGET]), STEPS)


@dataclass(frozen=True, eq=False)
class Runner:
    parameter: Floats
    units: Units = UNITS

    @property
    def spaces(self) -> str:
        return "one velocity, one motor"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (1,)

    def digest(self) -> str:
        return hashlib.sha256(np.asarray(self.parameter).tobytes()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Runs:
        return Runs(self, policy)


@dataclass(frozen=True, eq=False)
class Runs:
    task: Runner
    policy: Policy

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        gain, seen, done, paid = float(self.task.parameter[0]), [np.zeros((episodes, 1))], [], []
        for step in range(STEPS):
            push = np.asarray(self.policy.act(seen[-1], step, rng))
            speed = gain * push + NOISE * rng.standard_normal((episodes, 1))
            paid.append(np.hstack([np.clip(speed, LOW, HIGH), np.minimum((gain * push) ** 2, MOST)]) / STEPS)
            done.append(push)
            seen.append(speed)
        sums = np.sum(paid, axis=0)
        if not transitions:
            return Outcomes(sums[:, 0], sums[:, 1:])
        told = Observed(
            np.stack(seen, axis=1), np.stack(done, axis=1), np.full(episodes, STEPS), np.stack(paid, axis=1)
        )
        return Outcomes(sums[:, 0], sums[:, 1:], observed=told)


def pushing(level: float) -> MLPPolicy:
    return MLPPolicy((np.zeros((1, 1)),), (np.array([level]),), np.log([JITTER]), np.zeros(1), np.ones(1))


def true_values(gain: float, levels: Sequence[float]) -> Floats:
    """[P, 2] expected reward and cost."""
    pushes = np.array(levels)
    return np.column_stack([gain * pushes, gain**2 * (pushes**2 + JITTER**2)])


def runners() -> TaskDistribution:
    return TaskDistribution(Runner, Uniform(0.6, 1.4))


LEVELS = (0.45, 0.55, 0.65, 0.8, 1.05)  # the first keeps the budget for all gains, each of the others for some
FAMILY = LocomotionFamily("Runner, unknown motors", runners, 0.1, 0.05, 1000, 500, 2000)


def policy_set() -> PolicyValueSet:
    """As if trained: with an accuracy, so that the methods of the paper accept it."""
    given = sf.policy_set(
        runners(),
        safe=pushing(LEVELS[0]),
        candidates={f"push {level:g}": pushing(level) for level in LEVELS[1:]},
        seed=0,
        envelopes=Envelopes(cells=20, holdout=60, uncovered=0.1, episodes=100),
        signals=LearnedSignals(tasks=16, episodes=8),
        progress=False,
    )
    return replace(given, epsilon=0.05, delta=0.02, xi=0.05)

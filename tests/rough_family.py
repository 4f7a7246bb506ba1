"""A family of one-step tasks that can only be simulated, whose values and means of signals are known exactly.

Three levers: one that is always safe and two that pay and cost more than the budget on every task, so that the best
mixture lies on it and the true cell is all that keeps it safe. What a pull costs changes with the parameter θ smoothly
and, on top, so roughly that no surface follows; what a pull shows (one of BINS readings, told apart by a serial number
that means nothing) speaks of θ much more clearly than its cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from held_out import cells_and_places
from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.bounds.simulated import SurrogateBounds
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.signals.signals import Signals
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

BINS = 8
UNITS = Units(1.0, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([0.3]), horizon=1)
LEVERS: tuple[TabularPolicy, ...] = tuple(TabularPolicy(np.eye(3)[[k]]) for k in range(3))
REWARD = np.array([0.1, 0.8, 0.8])


@dataclass(frozen=True)
class Lever:
    theta: float
    roughness: float
    serials: int
    steady: bool = False
    units: Units = UNITS
    spaces: str = "readings and three levers"

    def digest(self) -> str:
        return sha256(repr((self.theta, self.roughness, self.serials, self.steady)).encode()).hexdigest()

    @property
    def cost(self) -> Floats:
        """[3] the probability that a pull costs 1."""
        rough = self.roughness * np.sin(400 * self.theta + np.arange(3))
        return np.array([0.0, 0.35 + 0.4 * self.theta, 0.75 - 0.4 * self.theta]) + rough * [0.0, 1.0, 1.0]

    @property
    def shown(self) -> Floats:
        """[BINS] the probability of each reading."""
        weights = np.exp(-(((np.arange(BINS) + 0.5) / BINS - self.theta) ** 2) / (2 * 0.15**2))
        likely: Floats = weights / weights.sum()
        return likely

    def episodes(self, policy: Policy, steps: int) -> Pulls:
        assert isinstance(policy, TabularPolicy)
        return Pulls(self, int(policy.probabilities[0].argmax()))


@dataclass(frozen=True)
class Pulls:
    task: Lever
    lever: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """State 0 is the start, 1 + serial·BINS + reading what a pull shows."""
        luck, task = rng.random((episodes, 4)), self.task
        means = np.array([REWARD[self.lever], task.cost[self.lever]])
        sums = np.tile(means, (episodes, 1)) if task.steady else (luck[:, :2] < means).astype(np.float64)
        reading = np.searchsorted(np.cumsum(task.shown)[:-1], luck[:, 2])
        state = 1 + reading + BINS * (luck[:, 3] * task.serials).astype(np.int64)
        states = np.column_stack([np.zeros_like(state), state])
        actions = np.full((episodes, 1), self.lever)
        told = (states, actions) if transitions else (None, None)
        return Outcomes(sums[:, 0], sums[:, 1:], *told)


def levers(roughness: float = 0.05, serials: int = 1, steady: bool = False) -> TaskDistribution:
    """Steady ones pay and cost the same each time."""
    return family(lambda theta: Lever(float(theta[0]), roughness, serials, steady), Uniform(0.0, 1.0))


def true_numbers(task: Lever, signals: Signals | None) -> Floats:
    """[3, k'] the exact means of an episode's numbers: reward, cost, signals."""
    sums = np.column_stack([REWARD, task.cost])
    return sums if signals is None else np.concatenate([sums, true_signals(task, signals)], axis=1)


def true_signals(task: Lever, signals: Signals) -> Floats:
    """[3, q]: every reading with every serial number once, weighted by its probability."""
    states = np.arange(BINS * task.serials)
    likely = np.tile(task.shown, task.serials) / task.serials
    found = []
    for lever in range(3):
        shown = np.column_stack([np.zeros_like(states), 1 + states])
        every = Observed(shown, np.full((len(states), 1), lever), np.ones(len(states), np.int64))
        found.append(likely @ signals.of(lever, every))
    return np.stack(found)


def broken(cells: Cells, j: int, task: Lever) -> bool:
    """Whether a task breaks the bounds of cell j, on values or on means of signals."""
    readings = cells.readings
    numbers = true_numbers(task, None if readings is None else readings.signals)
    values = np.column_stack([REWARD, UNITS.budget - task.cost])
    outside = bool(((values < cells.lower[j] - 1e-9) | (values > cells.upper[j] + 1e-9)).any())
    if readings is None:
        return outside
    signals = numbers[:, 2:]
    return outside or bool(((signals < readings.lower[j] - 1e-9) | (signals > readings.upper[j] + 1e-9)).any())


def trained(
    tasks: TaskDistribution, seed: int, envelopes: Envelopes, signals: LearnedSignals | None
) -> tuple[PolicyValueSet, SurrogateBounds]:
    """A policy set of the levers, and which task belongs to which of its cells."""
    cells, base = cells_and_places(tasks, LEVERS, seed, envelopes, signals)
    middle = tasks.task([0.5])
    margin: Sequence[float] = (UNITS.budget - middle.cost).tolist()
    entries = tuple(
        Entry(np.array([0.5]), LEVERS[k], REWARD[k], np.array([margin[k]]), REWARD[0], np.array([margin[0]]))
        for k in (1, 2)
    )
    return PolicyValueSet(entries, LEVERS[0], UNITS, 0.1, 0.1, 0.0, tasks.digest(), {}, {}, cells), base

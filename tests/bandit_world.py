"""A world whose best constrained policy is known: every step shows a fresh number x ~ N(0, 1); reward -(a - x)², cost
gain²·a². Of the policies a = kx, E[cost] = gain²k², so the best within a budget d per step has k = min(1, √d/gain).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Actions, Shapes, Stepped
from surefoot.errors import InvalidInput

STEPS = 10
BUDGET = 0.25  # per step


class BanditWorld:
    def __init__(self, gains: Floats, discrete: bool = False) -> None:
        self.gains, self.rng = np.asarray(gains, np.float64), np.random.default_rng(0)
        self.lanes = len(self.gains)
        self.shapes = Shapes(1, 2 if discrete else 1, discrete)
        self.units = Units(1.0, (-100.0, 0.0), (0.0, 100.0), BUDGET * STEPS, STEPS, cost_sum_range=(0.0, 60.0))
        self.x, self.t, self.sums = np.zeros(self.lanes), np.zeros(self.lanes, np.int64), np.zeros((self.lanes, 2))

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        self.rng = rng
        self.x[lanes], self.t[lanes], self.sums[lanes] = rng.standard_normal(int(lanes.sum())), 0, 0.0
        return self.x[:, None].copy()

    def step(self, actions: Actions) -> Stepped:
        a, running = self.taken(actions), self.t < STEPS
        numbers = np.stack([-((a - self.x) ** 2), np.minimum((self.gains * a) ** 2, 6.0)], axis=1) * running[:, None]
        self.sums += numbers
        self.t += running
        self.x = np.where(running, self.rng.standard_normal(self.lanes), self.x)
        never = np.zeros(self.lanes, np.bool_)
        return Stepped(self.x[:, None].copy(), numbers[:, 0], numbers[:, 1:], self.sums.copy(), never, self.t == STEPS)

    def taken(self, actions: Actions) -> Floats:
        """[n]"""
        if np.shape(actions) != ((self.lanes,) if self.shapes.discrete else (self.lanes, 1)):
            raise InvalidInput(f"actions must be one per lane ({self.lanes}), got shape {np.shape(actions)}")
        return actions.astype(np.float64) if self.shapes.discrete else actions[:, 0]


@dataclass(frozen=True, eq=False)
class BanditTask:
    """The same as a task, its parameter the gain [1]."""

    parameter: Floats

    @property
    def units(self) -> Units:
        return BanditWorld(self.parameter).units

    @property
    def spaces(self) -> str:
        return "one number, one action"

    def digest(self) -> str:
        return hashlib.sha256(self.parameter.tobytes()).hexdigest()

    def world(self, lanes: int, *others: BanditTask) -> BanditWorld:
        return BanditWorld(np.repeat([self.parameter[0], *(other.parameter[0] for other in others)], lanes))

    def episodes(self, policy: Policy, steps: int) -> BanditEpisodes:
        return BanditEpisodes(self, policy)


@dataclass(frozen=True, eq=False)
class BanditEpisodes:
    task: BanditTask
    policy: Policy

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        world = self.task.world(episodes)
        seen, done = [world.begin(np.ones(episodes, np.bool_), rng)], []
        for t in range(STEPS):
            done.append(self.policy.act(seen[-1], t, rng))
            step = world.step(done[-1])
            seen.append(step.observation)
        observed = Observed(np.stack(seen, axis=1), np.stack(done, axis=1), np.full(episodes, STEPS))
        return Outcomes(step.sums[:, 0], step.sums[:, 1:], observed=observed if transitions else None)

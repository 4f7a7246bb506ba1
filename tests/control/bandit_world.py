"""A world whose best constrained policy is known: every step shows a fresh number x ~ N(0, 1); reward -(a - x)², cost
gain²·a². Of the policies a = kx, E[cost] = gain²k², so the best within a budget d per step has k = min(1, √d/gain).
"""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Actions, Shapes, Stepped

STEPS = 10
BUDGET = 0.25  # per step


class BanditWorld:
    def __init__(self, gains: Floats, discrete: bool = False) -> None:
        self.gains, self.rng = np.asarray(gains, np.float64), np.random.default_rng(0)
        self.lanes = len(self.gains)
        self.shapes = Shapes(1, 2 if discrete else 1, discrete)
        self.units = Units(1.0, (-1e3, 0.0), (0.0, 1e3), BUDGET * STEPS, STEPS)
        self.x, self.t, self.sums = np.zeros(self.lanes), np.zeros(self.lanes, np.int64), np.zeros((self.lanes, 2))

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        self.rng = rng
        self.x[lanes], self.t[lanes], self.sums[lanes] = rng.standard_normal(int(lanes.sum())), 0, 0.0
        return self.x[:, None].copy()

    def step(self, actions: Actions) -> Stepped:
        a = actions.astype(np.float64) if self.shapes.discrete else actions[:, 0]
        numbers = np.stack([-((a - self.x) ** 2), (self.gains * a) ** 2], axis=1)
        self.sums += numbers
        self.t += 1
        self.x = self.rng.standard_normal(self.lanes)
        never = np.zeros(self.lanes, np.bool_)
        return Stepped(self.x[:, None].copy(), numbers[:, 0], numbers[:, 1:], self.sums.copy(), never, self.t == STEPS)

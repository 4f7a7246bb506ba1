"""A distribution of parameters as a user of the library might write one: its support is no box."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats


@dataclass(frozen=True)
class UniformSimplex:
    """Uniform on {θ ≥ 0, Σ θ ≤ unit} in `dimension` coordinates."""

    dimension: int
    unit: float = 1.0

    @property
    def support(self) -> Floats:
        return np.tile([0.0, self.unit], (self.dimension, 1))

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        return self.unit * rng.dirichlet(np.ones(self.dimension + 1), size=n)[:, :-1]

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        """P(low ≤ θ ≤ high) from the distribution function, by inclusion and exclusion over the corners."""
        ends = np.clip(np.array([low, high], dtype=np.float64) / self.unit, 0.0, 1.0)
        corners = product((0, 1), repeat=self.dimension)
        total = sum(
            (-1.0) ** (self.dimension - sum(corner)) * self._below(ends[list(corner), range(self.dimension)])
            for corner in corners
        )
        return float(np.clip(total, 0.0, 1.0))

    def probes(self) -> Floats:
        """The corners and the centre."""
        corners = np.vstack([np.zeros(self.dimension), np.eye(self.dimension)])
        return self.unit * np.vstack([corners, corners.mean(axis=0)])

    def describe(self) -> dict[str, Any]:
        return {"kind": "uniform simplex", "dimension": self.dimension, "unit": self.unit}

    def _below(self, corner: Floats) -> float:
        """P(θ ≤ corner) = Σ over subsets A of (-1)^|A| (1 - Σ_A corner)₊^d, for unit 1."""
        chosen = np.array(list(product((0, 1), repeat=self.dimension)))
        rest = np.maximum(1 - chosen @ corner, 0.0) ** self.dimension
        return float(((-1.0) ** chosen.sum(axis=1)) @ rest)

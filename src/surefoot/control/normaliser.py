"""Running means and spreads of what was observed, which become part of the policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats

CLIP = 5.0  # largest normalised observation
LEAST_SCALE = 1e-4


@dataclass(frozen=True, eq=False)
class Normaliser:
    """Of `count` observations [o]: their mean, and the sum of squared differences from it."""

    count: int
    mean: Floats
    squares: Floats

    @classmethod
    def new(cls, size: int) -> Normaliser:
        return cls(0, np.zeros(size), np.zeros(size))

    @classmethod
    def kept(cls, shift: Floats, scale: Floats, count: int) -> Normaliser:
        """That of a policy which was trained before, as after so many observations."""
        return cls(count, shift, scale**2 * count)

    @property
    def shift(self) -> Floats:
        return self.mean

    @property
    def scale(self) -> Floats:
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.squares / self.count), LEAST_SCALE)

    def __call__(self, observations: Floats) -> Floats:
        """[..., o] as the policy's network sees them."""
        return np.clip((observations - self.shift) / self.scale, -CLIP, CLIP)

    def seen(self, observations: Floats) -> Normaliser:
        """After [n, o] more of them (Chan, Golub and LeVeque 1979)."""
        n = len(observations)
        mean, total = observations.mean(axis=0), self.count + n
        apart = mean - self.mean
        squares = self.squares + ((observations - mean) ** 2).sum(axis=0) + apart**2 * self.count * n / total
        return Normaliser(total, self.mean + apart * n / total, squares)

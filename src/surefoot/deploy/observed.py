"""What was observed so far: running means, with intervals that may be looked at after every episode."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot.arrays import Floats
from surefoot.confidence import mixture_boundary

LEVEL = 0.05  # probability that the interval of one mean ever misses


@dataclass(frozen=True)
class RunningMean:
    """The sum of numbers in [low, high] that arrive one by one, and Σ (X_i - the mean before it)² as `squares`."""

    low: float
    high: float
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)

    def told(self, value: float) -> RunningMean:
        away = value - (self.mean if self.count else self._middle)
        return replace(self, count=self.count + 1, total=self.total + value, squares=self.squares + away * away)

    def path(self, values: Floats) -> tuple[Floats, Floats]:
        """`total` and `squares` after each of these values, to the last bit as `told` one after the other."""
        totals = np.cumsum(np.concatenate([[self.total], values]))
        before = totals[:-1] / np.maximum(1, np.arange(self.count, self.count + len(values)))
        if not self.count:
            before[:1] = self._middle
        squares = np.cumsum(np.concatenate([[self.squares], (values - before) ** 2]))
        return totals[1:], squares[1:]

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return self.low, self.high
        radius = float(mixture_boundary(self.squares, self.high - self.low, LEVEL / 2)) / self.count
        return max(self.low, self.mean - radius), min(self.high, self.mean + radius)

    @property
    def _middle(self) -> float:
        return (self.low + self.high) / 2

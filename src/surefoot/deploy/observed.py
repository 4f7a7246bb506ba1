"""What was observed so far: running means, with intervals that may be looked at after every episode."""

from __future__ import annotations

from dataclasses import dataclass, replace

from surefoot.confidence import mixture_boundary

LEVEL = 0.05  # probability that the interval of one mean ever misses


@dataclass(frozen=True)
class RunningMean:
    """The mean of numbers in [low, high] that arrive one by one, and Σ (X_i - the mean before it)² as `squares`."""

    low: float
    high: float
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def told(self, value: float) -> RunningMean:
        predicted = self.mean if self.count else (self.low + self.high) / 2
        count = self.count + 1
        mean = self.mean + (value - self.mean) / count
        return replace(self, count=count, mean=mean, squares=self.squares + (value - predicted) ** 2)

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return self.low, self.high
        radius = float(mixture_boundary(self.squares, self.high - self.low, LEVEL / 2)) / self.count
        return max(self.low, self.mean - radius), min(self.high, self.mean + radius)

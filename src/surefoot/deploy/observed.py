"""What was observed so far: a running mean, with an interval that may be looked at after every episode."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEVEL = 0.05  # probability that the interval of one mean ever misses
GROWTH, POWER = 2.0, 1.4  # η and s of the stitched boundary: epochs double, the k-th gets a share ~ k^-1.4 of the level
ZETA = 3.105547277977041  # ζ(1.4), so that the shares sum to the level


@dataclass
class RunningMean:
    """The mean of numbers in [low, high] that arrive one by one, of which nothing else need be known.

    The policies change, and with them the numbers' expectations. The interval is for the mean of those: what was
    ordered so far costs on average, in expectation. With probability 1 - LEVEL it holds after every number at once
    (Howard, Ramdas, McAuliffe, Sekhon 2021, Theorem 4: empirical Bernstein, each number predicted by the mean before).
    """

    low: float
    high: float
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # Σ (X_i - prediction of X_i)²

    def add(self, value: float) -> None:
        predicted = self.mean if self.count else (self.low + self.high) / 2
        self.squares += (value - predicted) ** 2
        self.count += 1
        self.mean += (value - self.mean) / self.count

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return self.low, self.high
        radius = stitched_boundary(self.squares, self.high - self.low, LEVEL / 2) / self.count
        return max(self.low, self.mean - radius), min(self.high, self.mean + radius)


def stitched_boundary(variance: float, scale: float, error: float) -> float:
    """What a sum that is sub-gamma with this scale exceeds at any time with probability at most `error`, as a function
    of its variance process (the same paper, Theorem 1, with h(k) = (k+1)^s ζ(s) and m = scale²)."""
    least = scale**2
    if least == 0:
        return 0.0
    variance = max(variance, least)
    epoch = math.log(variance / least) / math.log(GROWTH)
    length = POWER * math.log(epoch + 1) + math.log(ZETA / error)
    k1 = (GROWTH**0.25 + GROWTH**-0.25) / math.sqrt(2)
    k2 = (math.sqrt(GROWTH) + 1) / 2
    return math.sqrt(k1**2 * variance * length + (k2 * scale * length) ** 2) + k2 * scale * length

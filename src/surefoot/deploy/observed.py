"""What was observed so far: running means, with intervals that may be looked at after every episode."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats

LEVEL = 0.05  # probability that the interval of one mean ever misses
STAKES = tuple(2.0**k / (1 + 2.0**k) for k in range(-12, 4))  # x = λ·range of the bets, in (0, 1)
HALVINGS = 40


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


def mixture_boundary(squares: ArrayLike, width: float, error: float) -> Floats:
    """[...] what Σ (X_i - E_{i-1} X_i) exceeds at any time with probability at most `error`, from `squares` [...].

    X_i lies in an interval of this width, whatever its conditional expectation; squares = Σ (X_i - X̂_i)² with
    predictions X̂_i from the same interval. Then, with x = λ·width in (0, 1) and ψ(x) = -ln(1-x) - x,

        exp(λ Σ (X_i - E_{i-1} X_i) - ψ(x) squares/width²)

    is a supermartingale (Fan, Grama, Liu 2015, Lemma 4.1; Howard, Ramdas, McAuliffe, Sekhon 2021, Theorem 4), and so is
    the average over STAKES, which by Ville's inequality ever reaches 1/error with probability at most `error`.
    """
    if width <= 0:
        return np.zeros(np.shape(squares))
    stakes = np.array(STAKES)
    bill = -np.log1p(-stakes) - stakes  # ψ
    paid = bill * (np.asarray(squares, dtype=np.float64) / width**2)[..., None]  # [..., k]
    goal = math.log(len(stakes) / error)
    low, high = np.zeros(paid.shape[:-1]), ((goal + paid) / stakes).min(axis=-1)  # one bet alone reaches it at `high`
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = np.logaddexp.reduce(stakes * middle[..., None] - paid, axis=-1) >= goal
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    boundary: Floats = high * width
    return boundary

"""The interval of the observed mean: how often it ever misses, on numbers whose expectation keeps changing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom

from surefoot.confidence import SUM_STAKES, mixture_boundary
from surefoot.deploy.history import LEVEL, RunningMean

RUNS, LENGTH = 1000, 400
LOOKS = set(np.geomspace(2, LENGTH, 30).astype(int).tolist())
FALSE_ALARM = 1e-4


def misses(*factors: float) -> list[int]:
    """Of RUNS sequences, how many ever leave their interval, its radius times a factor: coins whose chances of success
    drift and depend on the coins before; every second sequence is of rare successes."""
    rng = np.random.default_rng(0)
    rare = np.arange(RUNS) % 2 == 0
    mean, expected, squares = np.zeros(RUNS), np.zeros(RUNS), np.zeros(RUNS)
    missed = np.zeros((len(factors), RUNS), dtype=bool)
    for n in range(1, LENGTH + 1):
        chance = np.where(rare, 0.02, 0.5 + 0.4 * np.sin(n / 40) * np.where(mean > 0.5, -1, 1))
        value = (rng.random(RUNS) < chance).astype(float)
        squares += (value - (mean if n > 1 else 0.5)) ** 2
        mean += (value - mean) / n
        expected += (chance - expected) / n
        if n in LOOKS:
            radius = mixture_boundary(squares, 1.0, LEVEL / 2) / n
            missed |= np.abs(mean - expected) > np.multiply.outer(factors, radius)
    return missed.sum(axis=1).tolist()


def test_it_ever_misses_as_rarely_as_it_says_and_a_narrower_one_does_not() -> None:
    most = int(binom.isf(FALSE_ALARM, RUNS, LEVEL))
    right, narrow = misses(1.0, 0.4)  # at 0.5 it would take more runs to tell
    assert right <= most < narrow


@pytest.mark.parametrize("squares", [0.0, 0.3, 7.0, 4e3, 1e7])
def test_the_boundary_solves_its_equation(squares: float) -> None:
    """By another root finder, in other units."""
    width, error = 3.0, 0.01

    def capital(total: float) -> float:
        bets = [x * total / width - (-math.log(1 - x) - x) * squares / width**2 for x in SUM_STAKES]
        return math.log(sum(math.exp(bet - max(bets)) for bet in bets) / len(bets)) + max(bets) + math.log(error)

    assert mixture_boundary(squares, width, error) == pytest.approx(brentq(capital, 0, 1e9, xtol=1e-9), rel=1e-8)


def test_numbers_one_by_one() -> None:
    values: NDArray[np.float64] = np.random.default_rng(1).uniform(-1, 3, 50)
    mean = RunningMean(-1.0, 3.0)
    assert mean.interval == (-1.0, 3.0)
    for value in values:
        mean = mean.add(float(value))
    before = np.concatenate([[1.0], np.cumsum(values)[:-1] / np.arange(1, 50)])
    assert mean.mean == pytest.approx(values.mean())
    assert mean.squares == pytest.approx(((values - before) ** 2).sum())
    assert -1.0 <= mean.interval[0] < values.mean() < mean.interval[1] <= 3.0


def test_what_cannot_vary_is_known() -> None:
    assert RunningMean(2.0, 2.0).add(2.0).interval == (2.0, 2.0)

"""Covering numbers: closed forms, brute force on a lattice, and intervals from samples that hold them."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surefoot.errors import InvalidInput
from surefoot.lab.analysis.covering_number import _most_in_intervals, covering_number, sampled_covering_number
from surefoot.tasks.distribution import Finite, LogUniform, Normal, Uniform


@given(st.floats(0.001, 0.4), st.floats(0.001, 0.5))
def test_uniform_and_normal_parameters_in_closed_form(radius: float, delta: float) -> None:
    whole = (1 - delta) / (2 * radius)
    assert covering_number(Uniform(3.0, 4.0), radius, delta) == math.ceil(whole - 1e-9)
    wide = Normal(0.3, std=1.0, low=-50.0, high=50.0)
    assert covering_number(wide, radius, delta) == math.ceil(stats.norm.ppf(1 - delta / 2) / radius - 1e-9)


def brute(distribution: Normal | Uniform, radius: float, delta: float, places: int) -> int:
    """The least m for which m intervals that begin on a lattice hold enough."""
    low, high = float(distribution.low[0]), float(distribution.high[0])
    begins = np.linspace(low, max(low, high - 2 * radius), places)
    for balls in range(1, 6):
        for chosen in combinations_with_replacement(begins, balls):
            held, until = 0.0, -math.inf
            for begin in chosen:
                start, end = max(begin, np.nextafter(until, math.inf)), begin + 2 * radius
                held, until = held + (distribution.mass([start], [end]) if start < end else 0.0), end
            if held >= 1 - delta:
                return balls
    raise AssertionError("more balls than are tried")


@pytest.mark.parametrize(
    "distribution",
    [
        Normal(0.3, std=0.2, low=0.0, high=1.0, how="truncated"),
        Normal(0.9, std=0.3, low=0.0, high=1.0, how="clipped"),
        Normal(0.5, std=1.0, low=0.0, high=1.0, how="clipped"),
        Uniform(0.0, 1.0),
        LogUniform(0.1, 1.0),
    ],
)
@pytest.mark.parametrize(("radius", "delta"), [(0.15, 0.1), (0.11, 0.3), (0.2, 0.45), (0.4, 0.05)])
def test_the_best_intervals_are_where_they_are_said_to_be(
    distribution: Normal | Uniform, radius: float, delta: float
) -> None:
    """No placement on a lattice needs fewer, and one that is a little larger needs no more."""
    assert covering_number(distribution, radius, delta) <= brute(distribution, radius, delta, 21)
    assert covering_number(distribution, radius, delta) >= brute(distribution, radius + 0.025, delta, 41)


@given(st.integers(0, 10**6), st.integers(1, 9), st.floats(0.01, 1.0))
def test_the_most_that_intervals_hold_by_trying_all(seed: int, count: int, length: float) -> None:
    points = np.sort(np.random.default_rng(seed).random(count))
    found = _most_in_intervals(points, length)
    for balls in range(1, len(found) + 1):
        best = 0
        for begins in combinations_with_replacement(points, balls):
            held = np.zeros(count, dtype=bool)
            for begin in begins:
                held |= (points >= begin) & (points <= begin + length + 1e-12)
            best = max(best, int(held.sum()))
        assert found[balls - 1] == best


@pytest.mark.parametrize("distribution", [Uniform(0.0, 1.0), Normal(0.5, std=0.1, low=0.0, high=1.0)])
def test_intervals_from_samples_hold_the_number(distribution: Normal | Uniform) -> None:
    wrong, widths = 0, []
    truth = covering_number(distribution, 0.05, 0.1)
    for seed in range(40):
        points = distribution.sample(20_000, np.random.default_rng(seed))
        lower, upper = sampled_covering_number(points, 0.05, 0.1, error=0.2)
        wrong += not lower <= truth <= upper
        widths.append((upper - lower) / truth)
    assert stats.binomtest(wrong, 40, 0.2, alternative="greater").pvalue > 1e-3
    assert np.mean(widths) < 0.6


def test_in_two_dimensions() -> None:
    """A unit square and boxes of side 0.5: four hold all of it, three no more than three quarters."""
    points = Uniform([0.0, 0.0], [1.0, 1.0]).sample(40_000, np.random.default_rng(0))
    lower, upper = sampled_covering_number(points, 0.25, 0.1)
    assert lower <= 4 <= upper <= 8


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"points must be more to show that \d+ balls hold"):
        sampled_covering_number(np.linspace(0, 1, 20)[:, None], 0.1, 0.05)


def test_other_distributions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="distribution must be that of one normal or uniform parameter"):
        covering_number(Finite([1.0, 2.0]), 0.1, 0.1)
    with pytest.raises(InvalidInput, match="radius must be positive, got 0"):
        covering_number(Uniform(0.0, 1.0), 0.0, 0.1)

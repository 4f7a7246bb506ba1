"""C_ε(D, δ): how many balls of radius ε in the paper's distance hold all but δ of the tasks. Exactly for one normal or
uniform parameter, and from samples of any family with coordinates, with a confidence interval.

With coordinates a ball is a box of half width ε (`TaskDistribution.coordinates`); in one dimension an interval.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import product
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats, Integers, check_unit_interval
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.tasks.distribution import Normal, ParameterDistribution, Uniform
from surefoot.training.cover import greedy_cover

MOST_BALLS = 2**40  # that are looked for
MOST_CANDIDATES = 5_000  # samples that may become centres


def covering_number(distribution: ParameterDistribution, radius: float, delta: float) -> int:
    """C of one parameter whose tasks are as far apart as |θ - θ'|: the least m for which m intervals of length 2·radius
    hold 1-δ of the distribution.

    Its density falls from where it is largest, so that the best intervals lie side by side there; of a clipped normal
    each end, which has a probability of its own, may have one to itself.
    """
    if not isinstance(distribution, Normal | Uniform) or distribution.dimension != 1:
        raise InvalidInput(f"distribution must be that of one normal or uniform parameter, got {distribution!r}")
    _check(radius, delta)

    def enough(balls: int) -> bool:
        return _max_covered_mass(distribution, radius, balls) >= 1 - delta - 1e-12

    return 1 + bisect_left(range(1, MOST_BALLS), True, key=enough)


class Covering(NamedTuple):
    """Bounds on C that hold together with probability 1-error."""

    lower: int
    upper: int


def sampled_covering_number(points: Floats, radius: float, delta: float, error: float = 0.05) -> Covering:
    """Of tasks drawn independently, with coordinates [n, d].

    Above: balls are chosen on one half of the tasks and counted on the other. They are nested, so that no more than one
    of these counts can be the one that misleads. Below: no m balls hold more of the distribution than of the sample, up
    to what all unions of intervals, or in several dimensions all boxes, can be off by at once.
    """
    _check(radius, delta)
    check_unit_interval("error", error)
    one, other = np.split(points, [len(points) // 2])
    return Covering(_at_least(points, radius, delta, error / 2), _at_most(one, other, radius, delta, error / 2))


# ------------------------------------------------------------------------------------------------- parts, in call order


def _check(radius: float, delta: float) -> None:
    check_unit_interval("delta", delta)
    if not radius > 0:
        raise InvalidInput(f"radius must be positive, got {radius!r}")


def _max_covered_mass(distribution: Normal | Uniform, radius: float, balls: int) -> float:
    """The most that so many intervals can hold."""
    clipped = isinstance(distribution, Normal) and distribution.how == "clipped"
    ends = [(0, 0), (0, 1), (1, 0), (1, 1)] if clipped else [(0, 0)]
    return max(_covered_mass(distribution, radius, balls, *each) for each in ends if sum(each) <= balls)


def _covered_mass(distribution: Normal | Uniform, radius: float, balls: int, left: int, right: int) -> float:
    """With an interval at either end or not, and all others side by side where the density is largest. Intervals may
    touch: between the ends no single point has a probability."""
    low, high = float(distribution.low[0]), float(distribution.high[0])
    if 2 * radius * balls >= high - low:
        return 1.0
    first, last = low + 2 * radius * left, high - 2 * radius * right
    length = 2 * radius * (balls - left - right)
    mode = float(distribution.mean[0]) if isinstance(distribution, Normal) else low
    begin = min(max(mode - length / 2, first), last - length)
    intervals = [(begin, begin + length)] if length else []
    intervals += [(low, first)] * left + [(last, high)] * right
    return sum(distribution.mass([start], [end]) for start, end in intervals)


def _at_most(chosen_on: Floats, counted_on: Floats, radius: float, delta: float, error: float) -> int:
    centres = chosen_on[greedy_cover(chosen_on, radius, uncovered=delta / 4, candidates=_candidates(len(chosen_on)))]
    reached = np.full(len(counted_on), len(centres))  # by which of the centres first
    for k in reversed(range(len(centres))):
        reached[np.abs(counted_on - centres[k]).max(axis=1) <= radius] = k
    missed = len(counted_on) - np.cumsum(np.bincount(reached, minlength=len(centres) + 1)[:-1])
    enough = [binomial_upper(int(count), len(counted_on), error) <= delta for count in missed]
    if not enough[-1]:
        raise InvalidInput(
            f"points must be more to show that {len(centres)} balls hold 1-δ of the tasks, got {len(counted_on)} to "
            "count on"
        )
    return 1 + enough.index(True)


def _candidates(count: int) -> Integers:
    return np.arange(min(count, MOST_CANDIDATES))


def _at_least(points: Floats, radius: float, delta: float, error: float) -> int:
    n, dimension = points.shape
    if dimension == 1:
        off_by = math.sqrt(math.log(2 / error) / (2 * n))  # of F, on either side (Massart 1990)
        for balls, held in enumerate(_most_in_intervals(np.sort(points[:, 0]), 2 * radius), start=1):
            if held / n + 2 * balls * off_by >= 1 - delta:
                return balls  # at the latest when all are held
    shatter = 2 * dimension * math.log(2 * math.e * n / (2 * dimension)) + math.log(4 / error)
    largest = _largest_box(points, radius) / n + math.sqrt(8 * shatter / n)  # of all boxes (Vapnik & Chervonenkis)
    return max(1, math.ceil((1 - delta) / min(1.0, float(largest))))


def _most_in_intervals(sorted_points: Floats, length: float) -> list[int]:
    """How many of the points 1, 2, ... intervals of this length hold at most, until all are held."""
    n = len(sorted_points)
    first = np.searchsorted(sorted_points, sorted_points - length - 1e-12, side="left")  # in reach of each as the last
    inside = np.arange(1, n + 1) - first
    held, found = np.zeros(n + 1, dtype=np.int64), list[int]()
    while not found or found[-1] < n:
        held = np.append(0, np.maximum.accumulate(held[first] + inside))
        found.append(int(held[-1]))
    return found


def _largest_box(points: Floats, radius: float) -> int:
    """How many points a box of half width `radius` holds at most: as many as the fullest of all blocks of 2^d cells of
    a lattice, in one of which every such box lies."""
    cells, count = np.unique(np.floor(points / (2 * radius)).astype(np.int64), axis=0, return_counts=True)
    corners = np.concatenate([cells - offset for offset in product((0, 1), repeat=points.shape[1])])
    _, block = np.unique(corners, axis=0, return_inverse=True)
    return int(np.bincount(block.ravel(), np.tile(count, len(corners) // len(cells))).max())

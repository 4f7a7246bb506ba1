"""Greedy cover of the sampled tasks: the paper's appendix subroutine "Finding a CMDP set".

One loop over three ways to know who covers whom. Points never meet an N x N matrix, yet they get the very centres
that the matrix would give: the predicate is the floating-point |x_i - x_j| <= radius, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from surefoot.errors import InvalidInput

_TILE = 1024  # points that `_count_in_boxes` gets at once; a multiple of 64, chosen by timing
_Test = Callable[[slice | np.ndarray, np.ndarray], np.ndarray]


def greedy_cover(
    points_or_matrix: npt.ArrayLike,
    radius: float | None = None,
    *,
    uncovered: float,
    candidates: npt.ArrayLike | None = None,
    observer: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Choose centres until at most a share `uncovered` of the N tasks is within reach of none of them.

    Args:
        points_or_matrix: with `radius`, task parameters [N] or [N, d]; without, the closeness oracle's answers
            A [N, N], booleans or 0 and 1, where A[i, j] says whether task i is within reach of task j.
        radius: task i is within reach of task j when max_k |x_ik - x_jk| <= radius, evaluated in float64.
        uncovered: share of the tasks that may stay uncovered, in [0, 1); 3δ in the paper.
        candidates: [M] indices of the tasks that may become centres; all N by default.
        observer: called with the number of tasks covered so far, for progress bars.

    Returns:
        Indices of the centres in order of choice. Ties go to the lowest index; a covered task may become a centre.
    """
    if not 0 <= uncovered < 1:
        raise InvalidInput(f"uncovered must be a share in [0, 1), got {uncovered}")
    relation, total = _relation(points_or_matrix, radius, candidates)
    ranking = _Ranking(relation.initial_gains(), relation.index, total)
    remaining = total
    centres: list[int] = []
    while remaining > uncovered * total:
        position, gain = ranking.best()
        if gain == 0:
            raise InvalidInput(
                f"no candidate reaches any of the {remaining} of {total} tasks that stay uncovered, but uncovered="
                f"{uncovered} allows only {math.floor(uncovered * total)}; give more candidates or a wider reach"
            )
        centres.append(int(relation.index[position]))
        remaining -= gain
        for first, loss in relation.cover(position):
            ranking.lower(first, loss)
        if observer is not None:
            observer(total - remaining)
    return np.array(centres, dtype=np.intp)


class _Relation(Protocol):
    """Who covers whom. Candidates have positions 0 ... M-1, in whatever order suits the relation."""

    index: np.ndarray  # [M] task index of each candidate

    def initial_gains(self) -> np.ndarray:
        """[M] number of tasks that each candidate covers."""

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        """Cover all that a candidate reaches; yield (first, loss): positions first, ... gain loss[0], ... less."""


def _relation(
    points_or_matrix: npt.ArrayLike, radius: float | None, candidates: npt.ArrayLike | None
) -> tuple[_Relation, int]:
    """The relation that the arguments describe, once they are known to be right, and N."""
    if radius is None:
        matrix = _checked_matrix(np.asarray(points_or_matrix))
        return _Matrix(matrix, _checked_candidates(candidates, len(matrix))), len(matrix)
    if not radius >= 0:
        raise InvalidInput(f"radius must be a number >= 0, got {radius}")
    points = _checked_points(np.asarray(points_or_matrix, dtype=np.float64))
    # No difference exceeds the spread, so this changes no answer, and it makes an infinite radius finite.
    radius = min(float(radius), float(np.ptp(points, axis=0).max()))
    kind = _Line if points.shape[1] == 1 else _Boxes
    return kind(points, radius, _checked_candidates(candidates, len(points))), len(points)


def _checked_matrix(matrix: np.ndarray) -> np.ndarray:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InvalidInput(f"points_or_matrix must be [N, N] when radius is None, got shape {matrix.shape}")
    wrong = matrix[(matrix != 0) & (matrix != 1)]
    if wrong.size:
        raise InvalidInput(f"points_or_matrix must hold only 0 and 1 when radius is None, got {wrong[0]}")
    return matrix.astype(bool)


def _checked_points(points: np.ndarray) -> np.ndarray:
    """The points as [N, d]."""
    if points.ndim not in (1, 2) or points.size == 0:
        raise InvalidInput(f"points_or_matrix must be non-empty points [N] or [N, d], got shape {points.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.ptp(points, axis=0).max()
    if not np.isfinite(spread):
        wrong = np.append(points[~np.isfinite(points)], spread)[0]
        raise InvalidInput(f"points_or_matrix must hold points with finite coordinates and spread, got {wrong}")
    return points.reshape(len(points), -1)


def _checked_candidates(candidates: npt.ArrayLike | None, total: int) -> np.ndarray:
    """The candidates [M] in ascending order without repetition."""
    if candidates is None:
        return np.arange(total)
    index = np.asarray(candidates)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise InvalidInput(f"candidates must be integers [M], M >= 1, got {index.dtype} of shape {index.shape}")
    wrong = index[(index < 0) | (index >= total)]
    if wrong.size:
        raise InvalidInput(f"candidates must be task indices in [0, {total}), got {wrong[0]}")
    return np.unique(index).astype(np.intp)


class _Ranking:
    """The candidates' gains, in blocks so that finding the best and lowering a few do not read all M."""

    def __init__(self, gains: np.ndarray, index: np.ndarray, total: int) -> None:
        self._total = total
        self._width = math.isqrt(len(gains)) + 1
        # One integer orders by gain first and by lowest task index second; the padding of the last block never wins.
        self._keys = np.full(-(-len(gains) // self._width) * self._width, -1, dtype=np.int64)
        self._keys[: len(gains)] = gains * total + (total - 1 - index)
        self._blocks = self._keys.reshape(-1, self._width)
        self._tops = self._blocks.max(axis=1)

    def best(self) -> tuple[int, int]:
        """Position and gain of the candidate that covers most of the uncovered tasks."""
        block = int(self._tops.argmax())
        return block * self._width + int(self._blocks[block].argmax()), int(self._tops[block]) // self._total

    def lower(self, first: int, loss: np.ndarray) -> None:
        """Lower the gains at positions first, first+1, ... by loss [n]."""
        self._keys[first : first + len(loss)] -= loss * self._total
        touched = slice(first // self._width, -(-(first + len(loss)) // self._width))
        self._tops[touched] = self._blocks[touched].max(axis=1)


class _Matrix:
    """A general oracle's answers."""

    def __init__(self, matrix: np.ndarray, candidates: np.ndarray) -> None:
        self.index = candidates
        self._reach = matrix[:, candidates]  # [N, M]
        self._open = np.ones(len(matrix), dtype=bool)  # [N] still uncovered

    def initial_gains(self) -> np.ndarray:
        gains: np.ndarray = self._reach.sum(axis=0, dtype=np.int64)
        return gains

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        fresh = self._open & self._reach[:, position]
        self._open &= ~fresh
        yield 0, self._reach[fresh].sum(axis=0, dtype=np.int64)


class _Line:
    """Points on a line: a candidate covers a window of the sorted distinct values, and windows move with it.

    A stretch of one radius gets at most three centres: the first covers it, one more each way takes all that the
    stretch can still reach. So `cover` touches each value a bounded number of times, however many centres there are.
    """

    def __init__(self, points: np.ndarray, radius: float, candidates: np.ndarray) -> None:
        first, self._open = _distinct(points)  # [U] uncovered tasks at each value
        self.index = first if len(candidates) == len(points) else candidates[_distinct(points[candidates])[0]]
        self._start, self._end = _windows(points[self.index, 0], points[first, 0], radius)  # [M], both ascending

    def initial_gains(self) -> np.ndarray:
        return self._shared(0, len(self._open), slice(None))

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        start, end = int(self._start[position]), int(self._end[position])
        touched = slice(int(self._end.searchsorted(start, "right")), int(self._start.searchsorted(end, "left")))
        loss = self._shared(start, end, touched)
        self._open[start:end] = 0
        yield touched.start, loss

    def _shared(self, start: int, end: int, touched: slice) -> np.ndarray:
        """Uncovered tasks that the windows at positions `touched`, which meet [start, end), have within it."""
        below = np.zeros(end - start + 1, dtype=np.int64)
        np.cumsum(self._open[start:end], out=below[1:])
        shared: np.ndarray = below[np.minimum(self._end[touched], end) - start]
        shared -= below[np.maximum(self._start[touched], start) - start]
        return shared


class _Boxes:
    """Points in d >= 2 dimensions; points and candidates in order of their first coordinate."""

    def __init__(self, points: np.ndarray, radius: float, candidates: np.ndarray) -> None:
        self.index = candidates[_distinct(points[candidates])[0]]
        self._centres = points[self.index]  # [M, d]
        self._points = points[points[:, 0].argsort()]  # [N, d]
        self._centres_0, self._points_0 = self._centres[:, 0].copy(), self._points[:, 0].copy()  # for `_windows`
        self._open = np.ones(len(points), dtype=bool)  # [N] still uncovered
        self._radius = radius

    def initial_gains(self) -> np.ndarray:
        gains = np.zeros(len(self.index), dtype=np.int64)
        for first, share in self._shares(self._points):
            gains[first : first + len(share)] += share
        return gains

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        centre = self._centres[position]
        (start,), (end,) = _windows(centre[:1], self._points_0, self._radius)
        near = start + np.flatnonzero(self._open[start:end])
        fresh = near[(np.abs(self._points[near] - centre) <= self._radius).all(axis=1)]
        self._open[fresh] = False
        yield from self._shares(self._points[fresh])

    def _shares(self, points: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """How many of `points` [P, d] each candidate covers, in runs (first, share) to be added up."""
        order = cKDTree(points, leafsize=_TILE).indices  # near in this order is near in space
        for tile in (points[order[i : i + _TILE]] for i in range(0, len(points), _TILE)):
            low, high = tile.min(axis=0), tile.max(axis=0)
            (start, _), (_, end) = _windows(np.array([low[0], high[0]]), self._centres_0, self._radius)
            centres = self._centres[start:end]
            # Rounding is monotone, so corners in or out of reach answer for the whole tile without error.
            meets = ((low - centres <= self._radius) & (centres - high <= self._radius)).all(axis=1)
            holds = ((centres - low <= self._radius) & (high - centres <= self._radius)).all(axis=1)
            share = np.where(holds, len(tile), 0)
            partly = np.flatnonzero(meets & ~holds)
            share[partly] = _count_in_boxes(tile, centres[partly], self._radius)
            yield int(start), share


def _distinct(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest index and multiplicity of each distinct row of points [N, d], rows in lexicographic order."""
    order = np.lexsort(points.T[::-1])  # stable, so equal rows keep the order of their indices
    ordered = points[order]
    starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return order[starts], np.diff(starts, append=len(points))


def _windows(centres: np.ndarray, values: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """First and past-the-last position in ascending `values` [U] of those within `radius` of each centre [M].

    centre ± radius rounds differently from the predicate, so its position is only a guess.
    """
    with np.errstate(over="ignore"):
        left, right = values.searchsorted(centres - radius), values.searchsorted(centres + radius, "right")
    start = _first_true(lambda m, u: centres[m] - values[u] <= radius, left, len(values))
    return start, _first_true(lambda m, u: values[u] - centres[m] > radius, right, len(values))


def _first_true(test: _Test, guess: np.ndarray, size: int) -> np.ndarray:
    """[M] first position u in [0, size) with test(m, u), or `size`; test(m, .) is ascending and guess(m) is near.

    Wrong guesses are replaced by bisection: any number of values can lie within one rounding error.
    """
    late = (guess > 0) & test(slice(None), np.maximum(guess - 1, 0))
    early = (guess < size) & ~test(slice(None), np.minimum(guess, size - 1))
    wrong = np.flatnonzero(late | early)
    low, high = np.zeros(len(wrong), dtype=np.intp), np.full(len(wrong), size)
    while (active := low < high).any():
        middle = (low + high) // 2
        true = test(wrong, np.minimum(middle, size - 1))
        high = np.where(active & true, middle, high)
        low = np.where(active & ~true, middle + 1, low)
    guess[wrong] = low
    return guess


def _count_in_boxes(points: np.ndarray, centres: np.ndarray, radius: float) -> np.ndarray:
    """[M] number of points [P, d] within `radius` of each centre [M, d].

    In every dimension a box holds a window of the sorted points. As sets of bits, 64 points per word, a window is
    the difference of two prefixes and a box the intersection of its windows; a tree with this predicate is slower.
    """
    size = len(points)
    inside = np.full((len(centres), -(-size // 64)), ~np.uint64(0))
    for k in range(points.shape[1]):
        order = points[:, k].argsort()
        prefix = np.zeros((size + 1, inside.shape[1]), dtype=np.uint64)
        prefix[np.arange(1, size + 1), order // 64] = np.uint64(1) << (order % 64).astype(np.uint64)
        np.cumsum(prefix, axis=0, out=prefix)
        start, end = _windows(centres[:, k], points[order, k], radius)
        inside &= prefix[end] ^ prefix[start]
    counts: np.ndarray = np.bitwise_count(inside).sum(axis=1, dtype=np.int64)
    return counts

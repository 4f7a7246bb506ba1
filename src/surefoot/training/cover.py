"""The cover of Algorithm 1: sampled tasks of which one is close to nearly every task that may be drawn.

Where parameters have coordinates the paper's loop is followed to the letter: its samples cost nothing. Elsewhere every
sample may have to be built and compared, and the paper's rule asks for very many of them, since it tests the cover on
the sample it was chosen from. There the cover is chosen from one sample and tested on another.

One greedy loop, the appendix's subroutine "Finding a CMDP set", has three ways to know who covers whom. Points never
meet an N x N matrix, yet get the very centres that it would give: by |x_i - x_j| <= radius, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from surefoot import theory
from surefoot.arrays import Floats, Integers, Mask
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.oracles.exact import BatchDistance, ParameterDistance
from surefoot.oracles.interface import CheckOracle
from surefoot.progress import Progress, silent
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

# In several dimensions the cover takes time in proportion to the samples that may become centres.
MOST_CANDIDATES = 5_000

# The first sample that a cover is chosen from holds so many tasks over δ, and so does the one that it is tested on.
SAMPLED = 50
# Samples for each centre, at least, before a cover is tested.
TENFOLD = 10
# Candidates for centres that are compared with all samples at once; fewer where each pair is a question of its own.
AT_ONCE, ASKED_AT_ONCE = 500, 25

_TILE = 1024  # points that `_count_in_boxes` gets at once; a multiple of 64, chosen by timing


def cover_tasks(
    tasks: TaskDistribution,
    epsilon: float,
    delta: float,
    check: CheckOracle,
    rng: np.random.Generator,
    show: Progress,
) -> tuple[Floats, Integers]:
    """Parameters [N, d] of sampled tasks and the indices of U among them, which covers all but 4δ of the tasks."""
    if isinstance(tasks.distribution, Finite) or isinstance(check, ParameterDistance):
        return _cover_as_published(tasks, epsilon, delta, check, rng, show)
    return _cover_with_holdout_test(tasks, epsilon, delta, check, rng, show)


# --------------------------------------------------------------------------------------------------------- as published


def _cover_as_published(
    tasks: TaskDistribution, epsilon: float, delta: float, check: CheckOracle, rng: np.random.Generator, show: Progress
) -> tuple[Floats, Integers]:
    """N doubles until U, which covers all but 3δ of the N samples, is small enough for that to say something of D."""
    samples = theory.initial_sample_size(delta)
    while True:
        show(f"covering {samples} sampled tasks", 0, 0)
        parameters = tasks.sample(samples, rng)
        if isinstance(check, ParameterDistance):
            centres = cover_points(check.coordinates(parameters), epsilon, 3 * delta, show)
        else:
            compare = Comparison(tasks, check, epsilon, delta / len(parameters) ** 2, rng)
            centres = cover_by_comparison(compare, parameters, 3 * delta, show)
        if theory.coverage_error(len(centres), samples, delta) <= delta:
            return parameters, centres
        samples *= 2


def cover_points(points: Floats, epsilon: float, uncovered: float, show: Progress = silent) -> Integers:
    """Centres among the first samples where these suffice: they are independent of the rest, so they will mostly do."""

    def report(done: int) -> None:
        show(f"covering {len(points)} sampled tasks", done, math.ceil((1 - uncovered) * len(points)))

    if points.shape[1] > 1 and len(points) > MOST_CANDIDATES:
        try:
            some = np.arange(MOST_CANDIDATES)
            return greedy_cover(points, epsilon, uncovered=uncovered, candidates=some, observer=report)
        except InvalidInput:  # thin regions hold none of them
            pass
    return greedy_cover(points, epsilon, uncovered=uncovered, observer=report)


def cover_by_comparison(compare: Comparison, parameters: Floats, uncovered: float, show: Progress) -> Integers:
    """Centres among the tasks of parameters [N, d]. Equal parameters are equal tasks: each pair of different ones is
    compared once, a task weighs as much as it was drawn often, and the first draw of it is the one that may become a
    centre."""
    distinct, first, repeats = np.unique(parameters, axis=0, return_index=True, return_counts=True)
    near = compare.all_pairs(compare.prepare(distinct, show))
    return _cover(_Matrix(near, first, repeats), len(parameters), uncovered)


# ---------------------------------------------------------------------------------------- tested on a sample of its own


def _cover_with_holdout_test(
    tasks: TaskDistribution, epsilon: float, delta: float, check: CheckOracle, rng: np.random.Generator, show: Progress
) -> tuple[Floats, Integers]:
    """U covers all but 3δ of one sample; that it covers all but 4δ of D is then tested on another.

    Given the first sample the second one is independent of U, so that the number of its tasks in no centre's reach is
    binomial, and no union over all the covers that could have been chosen is due, as it is in the paper's rule. The
    k-th test is wrong with probability at most δ/2ᵏ, all of them together with δ. If one fails, both samples together
    are the next one to choose from. No task is built twice.
    """
    size, attempt = math.ceil(SAMPLED / delta), 1
    compare = Comparison(tasks, check, epsilon, delta / (4 * size**2), rng)
    parameters = tasks.sample(size, rng)
    pool = compare.prepare(parameters, show)
    while True:
        centres = cover_in_batches(compare, pool, 3 * delta, show)
        fresh = tasks.sample(size, rng)
        holdout = compare.prepare(fresh, show)
        if len(centres) < size / TENFOLD:  # a cover that fits its own sample too well would fail
            missed = size - int(compare.near([pool[int(k)] for k in centres], holdout).any(axis=0).sum())
            if binomial_upper(missed, size, delta / 2**attempt) <= 4 * delta:
                return parameters, centres
        parameters, pool = np.concatenate([parameters, fresh]), [*pool, *holdout]
        size, attempt = len(parameters), attempt + 1


def expected_samples(cover_size: int, delta: float) -> int:
    """About how many samples a cover of this size will be chosen from where it is tested on others: tenfold, so that
    few of them are in it."""
    samples = math.ceil(SAMPLED / delta)
    while samples <= TENFOLD * cover_size:
        samples *= 2
    return samples


def cover_in_batches(compare: Comparison, pool: Sequence[Any], uncovered: float, show: Progress) -> Integers:
    """Indices of tasks that cover all but a share `uncovered` of the pool, greedily among the first few; where these
    leave too much open, then among those that they leave open."""
    open_tasks, allowed = np.ones(len(pool), dtype=np.int64), uncovered * len(pool)
    centres: list[int] = []
    while (remaining := int(open_tasks.sum())) > allowed:
        candidates = np.flatnonzero(open_tasks)[: compare.at_once]
        near = compare.near([pool[int(k)] for k in candidates], pool)
        for centre, gain in _greedy_centres(_Matrix(near.T, candidates, open_tasks), len(pool)):
            centres.append(centre)
            remaining -= gain
            show("covering sampled tasks", len(pool) - remaining, len(pool))
            if remaining <= allowed:
                break
    return np.array(centres, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Who is within ε of whom, of many tasks at once, whatever the oracle."""

    tasks: TaskDistribution
    check: CheckOracle
    epsilon: float
    delta: float
    rng: np.random.Generator

    @property
    def at_once(self) -> int:
        """Candidates that are compared with all samples."""
        return AT_ONCE if isinstance(self.check, BatchDistance) else ASKED_AT_ONCE

    def prepare(self, parameters: Floats, show: Progress) -> list[Any]:
        """What is compared of the tasks of parameters [n, d]."""
        prepare = self.check.prepare if isinstance(self.check, BatchDistance) else self.tasks.task
        found = []
        for done, parameter in enumerate(parameters):
            show("building sampled tasks", done, len(parameters))
            found.append(prepare(parameter))
        return found

    def near(self, first: Sequence[Any], second: Sequence[Any]) -> Mask:
        """[n, m]"""
        if isinstance(self.check, BatchDistance):
            return self.check.within(first, second, self.epsilon)
        return np.array([[self._ask(a, b) for b in second] for a in first])

    def all_pairs(self, batch: Sequence[Any]) -> Mask:
        """[n, n], each pair compared once."""
        if isinstance(self.check, BatchDistance):
            return self.near(batch, batch)
        near = np.eye(len(batch), dtype=bool)
        for i, j in combinations(range(len(batch)), 2):
            near[i, j] = near[j, i] = self._ask(batch[i], batch[j])
        return near

    def _ask(self, first: Any, second: Any) -> bool:
        return self.check(first, second, self.epsilon, self.delta, self.rng)


# ------------------------------------------------------------------------------------------------------ the greedy loop


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
    return _cover(*_relation(points_or_matrix, radius, candidates), uncovered, observer)


def _cover(
    relation: _Relation, total: int, uncovered: float, observer: Callable[[int], None] | None = None
) -> np.ndarray:
    """The centres of `greedy_cover` among candidates that cover parts of `total` tasks."""
    remaining, centres = total, []
    for centre, gain in _greedy_centres(relation, total):
        centres.append(centre)
        remaining -= gain
        if observer is not None:
            observer(total - remaining)
        if remaining <= uncovered * total:
            return np.array(centres, dtype=np.intp)
    raise InvalidInput(
        f"no candidate reaches any of the {remaining} of {total} tasks that stay uncovered, but uncovered="
        f"{uncovered} allows only {math.floor(uncovered * total)}; give more candidates or a wider reach"
    )


def _greedy_centres(relation: _Relation, total: int) -> Iterator[tuple[int, int]]:
    """Centres, each the candidate that covers most of what those before leave, and how many tasks these are; until
    nobody covers any more."""
    ranking = _Ranking(relation.initial_gains(), relation.index, total)
    while True:
        position, gain = ranking.best()
        if gain == 0:
            return
        for first, loss in relation.cover(position):
            ranking.lower(first, loss)
        yield int(relation.index[position]), gain


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
        matrix = _as_matrix(np.asarray(points_or_matrix))
        index = _as_candidates(candidates, len(matrix))
        return _Matrix(matrix[:, index], index, np.ones(len(matrix), dtype=np.int64)), len(matrix)
    if not radius >= 0:
        raise InvalidInput(f"radius must be a number >= 0, got {radius}")
    points = _as_points(np.asarray(points_or_matrix, dtype=np.float64))
    # No difference exceeds the spread, so this changes no answer, and it makes an infinite radius finite.
    radius = min(float(radius), float(np.ptp(points, axis=0).max()))
    kind = _Line if points.shape[1] == 1 else _Boxes
    return kind(points, radius, _as_candidates(candidates, len(points))), len(points)


def _as_matrix(matrix: np.ndarray) -> np.ndarray:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InvalidInput(f"points_or_matrix must be [N, N] when radius is None, got shape {matrix.shape}")
    wrong = matrix[(matrix != 0) & (matrix != 1)]
    if wrong.size:
        raise InvalidInput(f"points_or_matrix must hold only 0 and 1 when radius is None, got {wrong[0]}")
    return matrix.astype(bool)


def _as_points(points: np.ndarray) -> np.ndarray:
    """The points as [N, d]."""
    if points.ndim not in (1, 2) or points.size == 0:
        raise InvalidInput(f"points_or_matrix must be non-empty points [N] or [N, d], got shape {points.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.ptp(points, axis=0).max()
    if not np.isfinite(spread):
        wrong = np.append(points[~np.isfinite(points)], spread)[0]
        raise InvalidInput(f"points_or_matrix must hold points with finite coordinates and spread, got {wrong}")
    return points.reshape(len(points), -1)


def _as_candidates(candidates: npt.ArrayLike | None, total: int) -> np.ndarray:
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
    """A general oracle's answers: reach [n, M] says which of n kinds of tasks each candidate covers. Of each kind there
    are so many [n] still uncovered: these numbers fall to 0 in the array that is given."""

    def __init__(self, reach: np.ndarray, index: np.ndarray, uncovered: np.ndarray) -> None:
        self.index = index
        self._reach, self._open = reach, uncovered

    def initial_gains(self) -> np.ndarray:
        return _weighted_sum(self._open, self._reach)

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        fresh = np.flatnonzero(self._reach[:, position] & (self._open > 0))
        loss = _weighted_sum(self._open[fresh], self._reach[fresh])
        self._open[fresh] = 0
        yield 0, loss


def _weighted_sum(weights: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """[M] of integer weights [n] over what each candidate reaches; `@` would make integers of the whole matrix."""
    return np.einsum("i,ij->j", weights, reach)  # type: ignore[no-any-return]


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
        return self._count_shared(0, len(self._open), slice(None))

    def cover(self, position: int) -> Iterator[tuple[int, np.ndarray]]:
        start, end = int(self._start[position]), int(self._end[position])
        touched = slice(int(self._end.searchsorted(start, "right")), int(self._start.searchsorted(end, "left")))
        loss = self._count_shared(start, end, touched)
        self._open[start:end] = 0
        yield touched.start, loss

    def _count_shared(self, start: int, end: int, touched: slice) -> np.ndarray:
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


def _first_true(
    test: Callable[[slice | np.ndarray, np.ndarray], np.ndarray], guess: np.ndarray, size: int
) -> np.ndarray:
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

"""The cover of Algorithm 1: sampled tasks of which one is close to nearly every task that may be drawn.

Where parameters have coordinates the paper's loop is followed to the letter: its samples cost nothing. Elsewhere every
sample may have to be built and compared, and the paper's rule asks for very many of them, since it tests the cover on
the sample it was chosen from. There the cover is chosen from one sample and tested on another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot import theory
from surefoot.arrays import Floats, Integers, Mask
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.oracles.exact import BatchDistance, ParameterDistance
from surefoot.oracles.interface import CheckOracle
from surefoot.progress import Progress, silent
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.greedy_cover import greedy_cover

# In several dimensions the cover takes time in proportion to the samples that may become centres.
MOST_CANDIDATES = 5_000

# The first sample that a cover is chosen from holds so many tasks over δ, and so does the one that it is tested on.
SAMPLED = 50
# Samples for each centre, at least, before a cover is tested.
TENFOLD = 10
# Candidates for centres that are compared with all samples at once; fewer where each pair is a question of its own.
AT_ONCE, ASKED_AT_ONCE = 500, 25


def cover_until_enough(
    tasks: TaskDistribution,
    epsilon: float,
    delta: float,
    check: CheckOracle,
    rng: np.random.Generator,
    show: Progress,
) -> tuple[Floats, NDArray[np.integer]]:
    """Parameters [N, d] of sampled tasks and the indices of U among them, which covers all but 4δ of the tasks."""
    if isinstance(tasks.distribution, Finite) or isinstance(check, ParameterDistance):
        return _as_published(tasks, epsilon, delta, check, rng, show)
    return _tested_afresh(tasks, epsilon, delta, check, rng, show)


# --------------------------------------------------------------------------------------------------------- as published


def _as_published(
    tasks: TaskDistribution, epsilon: float, delta: float, check: CheckOracle, rng: np.random.Generator, show: Progress
) -> tuple[Floats, NDArray[np.integer]]:
    """N doubles until U, which covers all but 3δ of the N samples, is small enough for that to say something of D."""
    samples = theory.initial_sample_size(delta)
    while True:
        show(f"covering {samples} sampled tasks", 0, 0)
        parameters = tasks.sample(samples, rng)
        centres = _cover(tasks, parameters, epsilon, delta, check, rng, show)
        if theory.coverage_error(len(centres), samples, delta) <= delta:
            return parameters, centres
        samples *= 2


def _cover(
    tasks: TaskDistribution,
    parameters: Floats,
    epsilon: float,
    delta: float,
    check: CheckOracle,
    rng: np.random.Generator,
    show: Progress,
) -> NDArray[np.integer]:
    """Indices of U (the appendix's subroutine): by coordinates when distances are known, else by asking about pairs."""
    if isinstance(check, ParameterDistance):
        return cover_points(check.coordinates(parameters), epsilon, 3 * delta, show)
    # Equal parameters are equal tasks: one question per pair of different ones, and no N x N matrix of the answers.
    distinct, first, repeats = np.unique(parameters, axis=0, return_index=True, return_counts=True)
    compared = Compared(tasks, check, epsilon, delta / len(parameters) ** 2, rng)
    near = compared.symmetric(compared.prepared(distinct, show))
    return cover_repeated(near, first, repeats, 3 * delta)


def cover_points(points: Floats, epsilon: float, uncovered: float, show: Progress = silent) -> NDArray[np.integer]:
    """Centres among the first samples where these suffice: they are independent of the rest, so they will mostly do."""

    def covered(done: int) -> None:
        show(f"covering {len(points)} sampled tasks", done, math.ceil((1 - uncovered) * len(points)))

    if points.shape[1] > 1 and len(points) > MOST_CANDIDATES:
        try:
            some = np.arange(MOST_CANDIDATES)
            return greedy_cover(points, epsilon, uncovered=uncovered, candidates=some, observer=covered)
        except InvalidInput:  # thin regions hold none of them
            pass
    return greedy_cover(points, epsilon, uncovered=uncovered, observer=covered)


def cover_repeated(
    near: NDArray[np.bool_], first: NDArray[np.integer], repeats: NDArray[np.integer], uncovered: float
) -> NDArray[np.integer]:
    """The centres that `greedy_cover` finds in the [N, N] matrix of all samples, from that of the n different ones.

    Args:
        near: [n, n] who covers whom.
        first: [n] index of the first sample of each kind, which is the one that becomes a centre.
        repeats: [n] number of samples of each kind.
    """
    order = np.argsort(first)  # so that ties go to the lowest sample
    near, first, remaining = near[np.ix_(order, order)], first[order], repeats[order].copy()
    allowed = uncovered * remaining.sum()
    centres = []
    while remaining.sum() > allowed:
        best = int(np.argmax(remaining @ near))
        centres.append(first[best])
        remaining[near[:, best]] = 0
    return np.array(centres)


# -------------------------------------------------------------------------------------------------------- tested afresh


def _tested_afresh(
    tasks: TaskDistribution, epsilon: float, delta: float, check: CheckOracle, rng: np.random.Generator, show: Progress
) -> tuple[Floats, NDArray[np.integer]]:
    """U covers all but 3δ of one sample; that it covers all but 4δ of D is then tested on another.

    Given the first sample the second one is independent of U, so that the number of its tasks in no centre's reach is
    binomial, and no union over all the covers that could have been chosen is due, as it is in the paper's rule. The
    k-th test is wrong with probability at most δ/2ᵏ, all of them together with δ. If one fails, both samples together
    are the next one to choose from. No task is built twice.
    """
    size, attempt = math.ceil(SAMPLED / delta), 1
    compared = Compared(tasks, check, epsilon, delta / (4 * size**2), rng)
    parameters = tasks.sample(size, rng)
    pool = compared.prepared(parameters, show)
    while True:
        centres = covering(compared, pool, 3 * delta, show)
        fresh = tasks.sample(size, rng)
        tested = compared.prepared(fresh, show)
        if len(centres) < size / TENFOLD:  # a cover that fits its own sample too well would fail
            missed = size - int(compared.near([pool[int(k)] for k in centres], tested).any(axis=0).sum())
            if binomial_upper(missed, size, delta / 2**attempt) <= 4 * delta:
                return parameters, centres
        parameters, pool = np.concatenate([parameters, fresh]), [*pool, *tested]
        size, attempt = len(parameters), attempt + 1


def samples_tested_afresh(cover_size: int, delta: float) -> int:
    """About how many samples a cover of this size will be chosen from: tenfold, so that few of them are in it."""
    samples = math.ceil(SAMPLED / delta)
    while samples <= TENFOLD * cover_size:
        samples *= 2
    return samples


def covering(compared: Compared, pool: Sequence[Any], uncovered: float, show: Progress) -> NDArray[np.integer]:
    """Indices of tasks that cover all but a share `uncovered` of the pool, greedily among the first few; where these
    leave too much open, then among those that they leave open."""
    open_tasks = np.ones(len(pool), dtype=bool)
    allowed = uncovered * len(pool)
    centres: list[int] = []
    candidates: Integers = np.arange(min(len(pool), compared.at_once))
    while open_tasks.sum() > allowed:
        near = compared.near([pool[int(k)] for k in candidates], pool)
        gains = near[:, open_tasks].sum(axis=1)
        while gains.max() > 0 and open_tasks.sum() > allowed:
            best = int(np.argmax(gains))
            centres.append(int(candidates[best]))
            fresh = open_tasks & near[best]
            open_tasks[fresh] = False
            gains -= near[:, fresh].sum(axis=1)
            show("covering sampled tasks", len(pool) - int(open_tasks.sum()), len(pool))
        candidates = np.flatnonzero(open_tasks)[: compared.at_once]
    return np.array(centres, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Compared:
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

    def prepared(self, parameters: Floats, show: Progress) -> list[Any]:
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
        return np.array([[self._asked(a, b) for b in second] for a in first])

    def symmetric(self, batch: Sequence[Any]) -> Mask:
        """[n, n], each pair compared once."""
        if isinstance(self.check, BatchDistance):
            return self.near(batch, batch)
        near = np.eye(len(batch), dtype=bool)
        for i, j in combinations(range(len(batch)), 2):
            near[i, j] = near[j, i] = self._asked(batch[i], batch[j])
        return near

    def _asked(self, first: Any, second: Any) -> bool:
        return self.check(first, second, self.epsilon, self.delta, self.rng)

"""Cells made of single tasks: all tasks of a finite distribution, or sampled ones with bounds that were widened until
they held on a second, independent sample (Theorem 1b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import betaincinv

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.estimates import Enough, rounds
from surefoot.policyset.cells import Cells, Source
from surefoot.progress import Progress, silent
from surefoot.tabular.distance import distance
from surefoot.tabular.expansion import ROUNDING, rounding
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_classes import ball_model
from surefoot.tabular.transition_model import TransitionModel
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.bounds import Evaluator, cells_of_bounds, evaluator, is_timeless_table
from surefoot.training.settings import DEFAULT, Settled
from surefoot.training.simulation import (
    FINITE_STAGE,
    HOLDOUT_STAGE,
    SAFE,
    SAMPLE_STAGE,
    Everything,
    Simulation,
    Wanted,
)

# The first sample holds this many tasks per cell.
MEMBERS = 4

# A cell is widened in proportion to how far the bounds of so many cells reach, itself and its nearest neighbours: where
# values change fast from task to task by much, elsewhere by little. Any widths that the first sample fixes are valid.
NEIGHBOURS = 3

ALL = slice(0, None)
STAGES = {SAMPLE_STAGE: "the tasks that cells are made of", HOLDOUT_STAGE: "held-out tasks"}

# How what is granted to a draw of held-out tasks is spent: on bounds from all of them; on bounds from those on which
# the safe policy is feasible, used when too many are not; and, then, on the count of the latter being misleading.
ALL_SHARE, FEASIBLE_SHARE, DOUBT_SHARE = 0.6, 0.3, 0.1


def finite_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    settings: Settled | None = None,
    simulation: Simulation | None = None,
) -> Cells:
    """One cell per task of a finite distribution, without those on which the safe policy is not shown to be feasible.

    Simulated intervals are wrong for each single task with a probability that is granted to them, hence for the one at
    hand as well; that all of them are right at once is not needed.
    """
    distribution = tasks.distribution
    if not isinstance(distribution, Finite):
        raise InvalidInput(f"distribution must be Finite, got {type(distribution).__name__}")
    settings = settings or DEFAULT.settled(tasks.example)
    members = [tasks.task(point) for point in distribution.points]
    if simulation is None:
        values = evaluator(tasks.example, policies)
        found = [values(task) for task in members]
    else:
        wanted = [Everything(feasible=True)] * len(members)
        found = list(simulation.bounds("simulating every task", FINITE_STAGE, distribution.points, wanted, ALL))
    lower, upper = (np.stack(side) for side in zip(*found, strict=True))
    feasible = (lower[:, 0, 1:, 0] >= 0).all(axis=1)
    if settings.simulated and not feasible.any():
        raise InvalidInput(
            "episodes must be enough to show that the safe policy is feasible on at least one task, got "
            f"{settings.episodes}; simulate more of them or take a safer safe policy (xi)"
        )
    points, prior, lower, upper = (each[feasible] for each in (distribution.points, distribution.weights, lower, upper))
    upper = np.maximum(upper, lower)  # intersections of wrong intervals may be empty
    members = [members[k] for k in np.flatnonzero(feasible)]
    sizes = np.maximum(np.abs(lower), np.abs(upper)).max(axis=-1)  # [n, P, 1+m]
    slack = np.array([_allowance(size, task) for size, task in zip(sizes, members, strict=True)]).reshape(sizes.shape)
    lower, upper = lower - slack[..., None], upper + slack[..., None]
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # just found feasible
    left_out = max(0.0, 1 - float(prior.sum()))
    uncovered = min(1.0, left_out + settings.error)
    prior = prior * ((1 - uncovered) / max(1 - left_out, 1e-300))
    model = _balls(members, np.zeros(len(members)))
    source: Source = "monte-carlo" if settings.simulated else "finite"
    return cells_of_bounds(points, points, prior, lower, upper, source, uncovered, model)


def _allowance(size: Floats, task: Any) -> Floats:
    """[P, 1+m] for the rounding of values of that size: from the tables, or from the ranges where there are none."""
    if isinstance(task, TabularCMDP):
        return rounding(size, task)
    units = task.units
    allowance: Floats = ROUNDING * (size + np.abs(units.reachable).max(axis=1) + np.abs(np.append(0.0, units.budget)))
    return allowance


def _balls(centres: Sequence[Any], radius: Floats) -> TransitionModel | None:
    """The transitions of cells around tables without a horizon; None for any other tasks."""
    return ball_model(centres, radius) if centres and is_timeless_table(centres[0]) else None


# ------------------------------------------------------------------------------------------------------- held-out tasks


def holdout_cells(
    tasks: TaskDistribution,
    values: Evaluator | Simulation,
    rng: np.random.Generator,
    settings: Settled,
    show: Progress = silent,
) -> Cells:
    """Voronoi cells around sampled tasks, with bounds that a fresh task keeps unless it is among the uncovered.

    The first sample builds cells and bounds. The second only chooses by how much they are widened, so that its scores
    and that of the test task are exchangeable (Theorem 1b). A task on which the safe policy is not shown to be feasible
    has an infinite score. Where there are too many of these to be among the uncovered, their probability comes on top.
    """
    _check_holdout(settings)
    sample = tasks.sample(MEMBERS * settings.cells, rng)
    partition = _Partition(tasks, np.unique(sample[: settings.cells], axis=0))  # one task may be drawn twice
    measure = partial(_simulated, values) if isinstance(values, Simulation) else partial(_read, values, show)
    base = _base_bounds(partition, measure(partition, sample, SAMPLE_STAGE))
    second = tasks.sample(settings.holdout, rng)
    scores = _scores(partition, base, second, measure, settings)
    widening, infeasible = _widening(scores, settings.granted)
    lower, upper = base.lower - widening * base.width, base.upper + widening * base.width
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
    upper = np.maximum(upper, lower)
    model = _balls(partition.tables, base.radius + widening * base.radius_width)
    uncovered = min(1.0, settings.uncovered + infeasible)
    prior = (1 - uncovered) * base.count / base.count.sum()
    source: Source = "monte-carlo" if settings.simulated else "holdout"
    return cells_of_bounds(partition.centres, partition.centres, prior, lower, upper, source, uncovered, model)


def sampled_tasks(settings: Settled) -> int:
    """How many tasks are drawn for `holdout_cells`."""
    return MEMBERS * settings.cells + settings.holdout


def _check_holdout(settings: Settled) -> None:
    needed = 1 / (ALL_SHARE * settings.granted) - 1
    if settings.holdout < needed:
        raise InvalidInput(
            f"holdout must be at least {math.ceil(needed)} for uncovered={settings.uncovered:g} in "
            f"attempt {settings.attempt}, got {settings.holdout}"
        )


@dataclass(frozen=True, eq=False)
class _Partition:
    """Everything that may be drawn, by the nearest of the centres [J, d]."""

    family: TaskDistribution
    centres: Floats

    def cells(self, parameters: Floats) -> list[int]:
        """The cell of each parameter [n, d]."""
        nearest: list[int] = self._tree.query(parameters / self._scale)[1].tolist()
        return nearest

    def placed(self, parameters: Floats) -> Iterator[tuple[int, Any, float]]:
        """Cell and task of each parameter [n, d], built once, and its distance d from the centre, the radius of a ball
        (Theorem 3); 0 where there is no transition model."""
        for parameter, j in zip(parameters, self.cells(parameters), strict=True):
            task = self.family.task(parameter)
            yield j, task, distance(task, self.tables[j]) if self.tables else 0.0

    @cached_property
    def tables(self) -> list[TabularCMDP]:
        """The tasks at the centres where these have a transition model; none otherwise."""
        modelled = is_timeless_table(self.family.example)
        return [self.family.task(centre) for centre in self.centres] if modelled else []

    @cached_property
    def neighbours(self) -> list[Integers]:
        """Of each cell itself, its nearest neighbour, the next one …: [J] each."""
        count = min(NEIGHBOURS, len(self.centres))
        nearest = self._tree.query(self.centres / self._scale, k=np.arange(1, count + 1))[1]
        return list(nearest.T)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.centres / self._scale)

    @cached_property
    def _scale(self) -> Floats:
        extent = np.ptp(self.family.distribution.support, axis=1)
        return np.where(extent > 0, extent, 1.0)


@dataclass(frozen=True, eq=False)
class _Base:
    """What the first sample says of each cell: bounds [J, P, 1+m, 1+S], radius [J] and number of members [J]."""

    lower: Floats
    upper: Floats
    radius: Floats
    count: Floats
    neighbours: list[Integers]

    @cached_property
    def width(self) -> Floats:
        """σ, [J, P, 1+m, 1+S]: how far the bounds of neighbouring cells reach, as a mean over these; a positive number
        where they do not reach anywhere."""
        highest = reduce(np.maximum, (self.upper[near] for near in self.neighbours))
        lowest = reduce(np.minimum, (self.lower[near] for near in self.neighbours))
        size = np.maximum(np.abs(self.lower), np.abs(self.upper)).max(axis=(0, 1))
        reach = (highest - lowest) / len(self.neighbours)
        width: Floats = np.maximum(reach, ROUNDING * np.where(size > 0, size, 1.0))
        return width

    @cached_property
    def radius_width(self) -> float:
        return max(float(self.radius.mean()), ROUNDING)

    def fits(self, j: int, level: float) -> Fits:
        return Fits(self.lower[j], self.upper[j], self.width[j], level)

    def score(self, found: Measured) -> float:
        """By how many widths its cell must grow to hold a task."""
        j, low, high, away = found
        if (low[0, 1:, 0] < 0).any():
            return math.inf
        grown = _growth(self.lower[j], self.upper[j], self.width[j], low, high)
        return max(0.0, grown, float((away - self.radius[j]) / self.radius_width))


@dataclass(frozen=True, eq=False)
class Fits:
    """Whether a simulated task needs no wider a cell than `level` widths: then nobody asks by how much less.

    lower, upper, width: [P, 1+m, 1] of its cell.
    """

    lower: Floats
    upper: Floats
    width: Floats
    level: float
    feasible: bool = True

    def enough(self, policy: int) -> Enough:
        below, above, width = (side[policy, :, 0] for side in (self.lower, self.upper, self.width))

        def enough(lower: Floats, upper: Floats) -> bool:
            shown = policy != SAFE or bool((lower[1:] >= 0).all())
            return shown and _growth(below, above, width, lower, upper) <= self.level

        return enough


def _growth(lower: Floats, upper: Floats, width: Floats, low: Floats, high: Floats) -> float:
    """By how many widths bounds must grow at least to hold [low, high]; all of one shape."""
    return float(max(((lower - low) / width).max(), ((high - upper) / width).max()))


def _everything(j: int) -> Everything:
    return Everything()


# Cell, lower and upper [P, 1+m, 1+S], and distance from the centre of the cell.
Measured: TypeAlias = tuple[int, Floats, Floats, float]


class _Measure(Protocol):
    def __call__(
        self,
        partition: _Partition,
        parameters: Floats,
        stage: int,
        wanted: Callable[[int], Wanted] = ...,
        part: slice = ...,
    ) -> Iterator[Measured]:
        """A part of the tasks of parameters [n, d]; of one in cell j what `wanted(j)` says will do."""
        ...


def _read(
    values: Evaluator,
    show: Progress,
    partition: _Partition,
    parameters: Floats,
    stage: int,
    wanted: Callable[[int], Wanted] = _everything,
    part: slice = ALL,
) -> Iterator[Measured]:
    """In one process: that several of them have fewer threads each for linear algebra would show in the last digits."""
    for done, (j, task, away) in enumerate(partition.placed(parameters[part]), start=part.start):
        show(f"evaluating {STAGES[stage]}", done, len(parameters))
        yield j, *values(task), away


def _simulated(
    simulation: Simulation,
    partition: _Partition,
    parameters: Floats,
    stage: int,
    wanted: Callable[[int], Wanted] = _everything,
    part: slice = ALL,
) -> Iterator[Measured]:
    cells = partition.cells(parameters[part])
    bounds = simulation.bounds(f"simulating {STAGES[stage]}", stage, parameters, [wanted(j) for j in cells], part)
    for j, (low, high) in zip(cells, bounds, strict=True):
        yield j, low, high, 0.0


def _base_bounds(partition: _Partition, measured: Iterator[Measured]) -> _Base:
    """The smallest and largest values over the sampled members of each cell, and the largest distance."""
    cells = len(partition.centres)
    bounds: tuple[Floats, Floats] | None = None
    radius, count = np.zeros(cells), np.zeros(cells)
    for j, low, high, away in measured:
        if bounds is None:
            bounds = np.full((cells, *low.shape), np.inf), np.full((cells, *low.shape), -np.inf)
        lower, upper = bounds
        lower[j], upper[j] = np.minimum(lower[j], low), np.maximum(upper[j], high)
        radius[j] = max(radius[j], away)
        count[j] += 1
    if bounds is None:
        raise InvalidInput("cells must be at least 1 for bounds from sampled tasks, got 0")
    return _Base(*bounds, radius, count, partition.neighbours)


def _scores(partition: _Partition, base: _Base, second: Floats, measure: _Measure, settings: Settled) -> Floats:
    """[n] by how much each held-out task asks the bounds to be widened.

    One group after the other: those that ask for less than the widening is sure to be by then need not be known
    exactly, and are not simulated any further. The widening is the same as if they were (docs/guarantees.md, 2.4).
    """
    scores: list[float] = []
    for size in rounds(len(second)):
        wanted = partial(base.fits, level=_sure_widening(np.array(scores), len(second), settings.granted))
        group = slice(len(scores), len(scores) + size)
        scores += [base.score(found) for found in measure(partition, second, HOLDOUT_STAGE, wanted, group)]
    return np.array(scores)


def _sure_widening(scores: Floats, holdout: int, granted: float) -> float:
    """What `_widening` will be at least when all of the scores are known: as many finite ones are as large as may
    exceed it."""
    exceeding = holdout + 1 - _rank(holdout, ALL_SHARE * granted)
    finite = np.sort(scores[np.isfinite(scores)])
    return float(finite[-exceeding]) if len(finite) >= exceeding else 0.0


def _widening(scores: Floats, granted: float) -> tuple[float, float]:
    """By how many widths the bounds must grow, and the probability of an infeasible safe policy that comes on top."""
    widening = _quantile(scores, ALL_SHARE * granted)
    if math.isfinite(widening):
        return widening, 0.0
    feasible = scores[np.isfinite(scores)]
    infeasible = binomial_upper(len(scores) - len(feasible), len(scores), DOUBT_SHARE * granted)
    return _quantile(feasible, FEASIBLE_SHARE * granted), infeasible


def _quantile(scores: Floats, level: float) -> float:
    """The score that a further one exceeds with probability at most `level`."""
    rank = _rank(len(scores), level)
    if rank > len(scores):
        raise InvalidInput(
            f"holdout must leave at least {math.ceil(1 / level) - 1} tasks on which the safe policy is feasible, got "
            f"{len(scores)}; take a safer safe policy (xi), more held-out tasks or a larger uncovered, and where tasks "
            "are simulated more episodes. A new draw is another attempt, to be declared and paid for as such"
        )
    return float(np.sort(scores)[rank - 1])


def _rank(count: int, level: float) -> int:
    """The k for which the k-th smallest of `count` scores is exceeded by a further one with probability ≤ `level`."""
    return math.ceil((1 - level) * (count + 1))


def binomial_upper(failures: int, trials: int, error: float) -> float:
    """p with P(Bin(trials, p) ≤ failures) = error: the true probability is larger with probability at most `error`."""
    return 1.0 if failures == trials else float(betaincinv(failures + 1, trials - failures, 1 - error))

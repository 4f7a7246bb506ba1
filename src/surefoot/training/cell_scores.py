"""What a first sample of tasks says of cells, and by how much these must grow to hold a task of a second one.

Tasks that can be read are, in this process; others are simulated, as long as it matters (docs/guarantees.md, 2.3, 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.estimates import Enough
from surefoot.progress import Progress
from surefoot.tabular.distance import distance
from surefoot.tabular.expansion import ROUNDING
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.bounds import Evaluator, is_timeless_table
from surefoot.training.settings import BLIND
from surefoot.training.simulation import ALL, HOLDOUT_STAGE, SAFE, SAMPLE_STAGE, Everything, Simulation, Wanted

# A cell is widened in proportion to how far the bounds of so many cells reach, itself and its nearest neighbours: where
# values change fast from task to task by much, elsewhere by little. Any widths that the first sample fixes are valid.
NEIGHBOURS = 3

STAGES = {SAMPLE_STAGE: "the tasks that cells are made of", HOLDOUT_STAGE: "held-out tasks"}


@dataclass(frozen=True, eq=False)
class Partition:
    """Everything that may be drawn, by the nearest of the centres [J, d].

    Where a task has its place in a cell is its spot [e]: in boxes, if transitions are affine in the parameter, the
    parameter itself; in balls around a table (Theorem 3) the distance from the centre; nothing where there is no
    transition model.
    """

    family: TaskDistribution
    centres: Floats
    affine: bool = False

    def cells(self, parameters: Floats) -> list[int]:
        """The cell of each parameter [n, d]."""
        nearest: list[int] = self._tree.query(parameters / self._scale)[1].tolist()
        return nearest

    def placed(self, parameters: Floats) -> Iterator[tuple[int, Any, Floats]]:
        """Cell and task of each parameter [n, d], built once, and its spot."""
        for parameter, j in zip(parameters, self.cells(parameters), strict=True):
            task = self.family.task(parameter)
            if self.affine:
                yield j, task, parameter
            else:
                yield j, task, np.array([distance(task, self.tables[j])] if self.tables else [])

    @cached_property
    def spots(self) -> Floats:
        """[J, e] of the centres."""
        return self.centres if self.affine else np.zeros((len(self.centres), 1 if self.tables else 0))

    @property
    def least_extent(self) -> Floats:
        """[e] how far cells reach at least, where none of them reaches anywhere."""
        extent = np.ptp(self.family.distribution.support, axis=1) if self.affine else np.ones(self.spots.shape[1])
        return ROUNDING * extent

    @cached_property
    def tables(self) -> list[TabularCMDP]:
        """The tasks at the centres where these have a transition model by balls; none otherwise."""
        modelled = is_timeless_table(self.family.example) and not self.affine
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
class Base:
    """What the first sample says of each cell: bounds [J, P, 1+m, 1+S] (simulated, [J, P, 1+m+q, 1]), the least and
    largest spots [J, e] of its members and how far these reach on average [e], the number of members [J], and in which
    bins [J, P, k, L] the numbers of their episodes were, where somebody looked."""

    lower: Floats
    upper: Floats
    nearest: Floats
    farthest: Floats
    extent: Floats
    count: Floats
    neighbours: list[Integers]
    scattered: bool
    seen: Floats | None = None

    @cached_property
    def width(self) -> Floats:
        """σ, [J, P, 1+m, 1+S]: how far the bounds of neighbouring cells reach, as a mean over these; a positive number
        where they do not reach anywhere. Where bounds are scattered by simulation the mean over all cells is added."""
        highest = reduce(np.maximum, (self.upper[near] for near in self.neighbours))
        lowest = reduce(np.minimum, (self.lower[near] for near in self.neighbours))
        size = np.maximum(np.abs(self.lower), np.abs(self.upper)).max(axis=(0, 1))
        reach = (highest - lowest) / len(self.neighbours)
        if self.scattered:
            reach = reach + reach.mean(axis=0)
        width: Floats = np.maximum(reach, ROUNDING * np.where(size > 0, size, 1.0))
        return width

    def fits(self, j: int, level: float) -> Fits:
        return Fits(self.lower[j], self.upper[j], self.width[j], level)

    def score(self, found: Measured) -> float:
        """By how many widths its cell must grow to hold a task."""
        j, low, high, spot, _ = found
        if (low[0, 1:, 0] < 0).any():  # a margin of the safe policy; means of signals are never negative
            return math.inf
        grown = _growth(self.lower[j], self.upper[j], self.width[j], low, high)
        moved = _growth(self.nearest[j], self.farthest[j], self.extent, spot, spot)
        return max(0.0, grown, moved)


@dataclass(frozen=True, eq=False)
class Fits:
    """Whether a simulated task needs no wider a cell than `level` widths: then nobody asks by how much less.

    lower, upper, width: [P, 1+m+q, 1] of its cell.
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
    """By how many widths bounds must grow at least to hold [low, high]; all of one shape, minus infinity for none."""
    grown = np.maximum((lower - low) / width, (high - upper) / width)
    return float(grown.max(initial=-np.inf))


def _everything(j: int) -> Everything:
    return Everything()


# Cell, lower and upper [P, 1+m, 1+S] or [P, 1+m+q, 1], spot [e] in the cell, and bins [P, k, L] or none.
Measured: TypeAlias = tuple[int, Floats, Floats, Floats, Floats | None]


class Measure(Protocol):
    def __call__(
        self,
        partition: Partition,
        parameters: Floats,
        stage: int,
        wanted: Callable[[int], Wanted] = ...,
        part: slice = ...,
    ) -> Iterator[Measured]:
        """A part of the tasks of parameters [n, d]; of one in cell j what `wanted(j)` says will do."""
        ...


def read(
    values: Evaluator,
    show: Progress,
    partition: Partition,
    parameters: Floats,
    stage: int,
    wanted: Callable[[int], Wanted] = _everything,
    part: slice = ALL,
) -> Iterator[Measured]:
    """In one process: that several of them have fewer threads each for linear algebra would show in the last digits."""
    for done, (j, task, spot) in enumerate(partition.placed(parameters[part]), start=part.start):
        show(f"evaluating {STAGES[stage]}", done, len(parameters))
        yield j, *values(task), spot, None


def simulated(
    simulation: Simulation,
    partition: Partition,
    parameters: Floats,
    stage: int,
    wanted: Callable[[int], Wanted] = _everything,
    part: slice = ALL,
) -> Iterator[Measured]:
    cells = partition.cells(parameters[part])
    wanted_of_each = [wanted(j) for j in cells]
    bounds = simulation.bounds(f"simulating {STAGES[stage]}", stage, parameters, wanted_of_each, BLIND, part)
    for j, found in zip(cells, bounds, strict=True):
        yield j, found.lower, found.upper, np.empty(0), found.counts


def base_bounds(partition: Partition, measured: Iterator[Measured], scattered: bool) -> Base:
    """The smallest and largest values, and spots, over the sampled members of each cell."""
    cells = len(partition.centres)
    bounds: tuple[Floats, Floats] | None = None
    seen: Floats | None = None
    nearest, farthest, count = partition.spots.copy(), partition.spots.copy(), np.zeros(cells)
    for j, low, high, spot, counts in measured:
        if bounds is None:
            bounds = np.full((cells, *low.shape), np.inf), np.full((cells, *low.shape), -np.inf)
            seen = None if counts is None else np.zeros((cells, *counts.shape))
        if seen is not None:
            seen[j] += counts
        lower, upper = bounds
        lower[j], upper[j] = np.minimum(lower[j], low), np.maximum(upper[j], high)
        nearest[j], farthest[j] = np.minimum(nearest[j], spot), np.maximum(farthest[j], spot)
        count[j] += 1
    if bounds is None:
        raise InvalidInput("cells must be at least 1 for bounds from sampled tasks, got 0")
    extent = np.maximum((farthest - nearest).mean(axis=0), partition.least_extent)
    return Base(*bounds, nearest, farthest, extent, count, partition.neighbours, scattered, seen)

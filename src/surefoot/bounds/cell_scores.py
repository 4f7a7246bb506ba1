"""What a first sample of tasks says of cells, and by how much these must grow to hold a task of a second one.

Tasks that can be read are, in this process; others are simulated, as long as it matters (docs/guarantees.md, 2.3, 2.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers
from surefoot.bounds.exact import Evaluator
from surefoot.errors import InvalidInput
from surefoot.progress import Progress
from surefoot.tabular.distance import distance
from surefoot.tabular.expansion import ROUNDING
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.task_distribution import TaskDistribution

# A cell is widened in proportion to how far the bounds of so many cells reach, itself and its nearest neighbours: where
# values change fast from task to task by much, elsewhere by little. Any widths that the first sample fixes are valid.
NEIGHBOURS = 3


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
        modelled = isinstance(self.family.example, TabularCMDP) and not self.affine
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
    """What the first sample says of each cell: bounds [J, P, 1+m, 1+S], the least and largest spots [J, e] of its
    members and how far these reach on average [e], and the number of members [J]."""

    lower: Floats
    upper: Floats
    nearest: Floats
    farthest: Floats
    extent: Floats
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

    def score(self, found: Measured) -> float:
        """By how many widths its cell must grow to hold a task."""
        j, low, high, spot = found
        if (low[0, 1:, 0] < 0).any():
            return math.inf
        grown = _growth(self.lower[j], self.upper[j], self.width[j], low, high)
        moved = _growth(self.nearest[j], self.farthest[j], self.extent, spot, spot)
        return max(0.0, grown, moved)


def _growth(lower: Floats, upper: Floats, width: Floats, low: Floats, high: Floats) -> float:
    """By how many widths bounds must grow at least to hold [low, high]; all of one shape, minus infinity for none."""
    grown = np.maximum((lower - low) / width, (high - upper) / width)
    return float(grown.max(initial=-np.inf))


# Cell, lower and upper [P, 1+m, 1+S], and spot [e] in the cell.
Measured: TypeAlias = tuple[int, Floats, Floats, Floats]


def read(values: Evaluator, show: Progress, what: str, partition: Partition, parameters: Floats) -> Iterator[Measured]:
    """The tasks of parameters [n, d], in one process: that several of them have fewer threads each for linear algebra
    would show in the last digits."""
    for done, (j, task, spot) in enumerate(partition.placed(parameters)):
        show(f"evaluating {what}", done, len(parameters))
        yield j, *values(task), spot


def base_bounds(partition: Partition, measured: Iterator[Measured]) -> Base:
    """The smallest and largest values, and spots, over the sampled members of each cell."""
    cells = len(partition.centres)
    bounds: tuple[Floats, Floats] | None = None
    nearest, farthest, count = partition.spots.copy(), partition.spots.copy(), np.zeros(cells)
    for j, low, high, spot in measured:
        if bounds is None:
            bounds = np.full((cells, *low.shape), np.inf), np.full((cells, *low.shape), -np.inf)
        lower, upper = bounds
        lower[j], upper[j] = np.minimum(lower[j], low), np.maximum(upper[j], high)
        nearest[j], farthest[j] = np.minimum(nearest[j], spot), np.maximum(farthest[j], spot)
        count[j] += 1
    if bounds is None:
        raise InvalidInput("cells must be at least 1 for bounds from sampled tasks, got 0")
    extent = np.maximum((farthest - nearest).mean(axis=0), partition.least_extent)
    return Base(*bounds, nearest, farthest, extent, count, partition.neighbours)

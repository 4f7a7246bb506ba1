"""Cells of tasks that can be read: bounds over one sample of them, widened until they hold on a second, independent one
(Theorem 1b; docs/guarantees.md, 2.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers
from surefoot.bounds.affine import boxes_of_tasks
from surefoot.bounds.cells import Cells, cells_of_bounds
from surefoot.bounds.conformal import conformal_cells
from surefoot.bounds.exact import Evaluator, first_states
from surefoot.bounds.settings import ResolvedBounds
from surefoot.errors import InvalidInput
from surefoot.progress import Progress, silent
from surefoot.tabular.distance import distance
from surefoot.tabular.expansion import ROUNDING
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_model import ball_model
from surefoot.tasks.affine_detection import Affinity
from surefoot.tasks.task_distribution import TaskDistribution

# The first sample holds this many tasks per cell.
MEMBERS = 4
# A cell is widened in proportion to how far the bounds of so many cells reach, itself and its nearest neighbours: where
# values change fast from task to task by much, elsewhere by little. Any widths that the first sample fixes are valid.
NEIGHBOURS = 3


def holdout_cells(
    tasks: TaskDistribution,
    values: Evaluator,
    rng: np.random.Generator,
    settings: ResolvedBounds,
    found: Affinity,
    show: Progress = silent,
) -> Cells:
    """Voronoi cells around sampled tasks that can be read, with bounds that a fresh task keeps unless it is among the
    uncovered: on its values, and on its transitions: in a ball around a table, or where these were found to be affine
    in the parameter, in a box."""
    fit = partial(fit_bounds, tasks, values, found, settings.cells, show)
    return conformal_cells(tasks, fit, MEMBERS * settings.cells, rng, settings)


def fit_bounds(
    tasks: TaskDistribution, values: Evaluator, found: Affinity, cells: int, show: Progress, sample: Floats
) -> SampledBounds:
    """The smallest and largest values, and spots, over the sampled members of each cell."""
    partition = Partition(tasks, np.unique(sample[:cells], axis=0), values, found, show)  # one may be drawn twice
    size = len(partition.centres)
    bounds: tuple[Floats, Floats] | None = None
    nearest, farthest, count = partition.spots.copy(), partition.spots.copy(), np.zeros(size)
    for j, low, high, spot in partition.measure("the tasks that cells are made of", sample):
        if bounds is None:
            bounds = np.full((size, *low.shape), np.inf), np.full((size, *low.shape), -np.inf)
        lower, upper = bounds
        lower[j], upper[j] = np.minimum(lower[j], low), np.maximum(upper[j], high)
        nearest[j], farthest[j] = np.minimum(nearest[j], spot), np.maximum(farthest[j], spot)
        count[j] += 1
    if bounds is None:
        raise InvalidInput("cells must be at least 1 for bounds from sampled tasks, got 0")
    extent = np.maximum((farthest - nearest).mean(axis=0), partition.least_extent)
    return SampledBounds(partition, *bounds, nearest, farthest, extent, count)


class Measurement(NamedTuple):
    """Of one task: its cell, lower and upper [P, 1+m, 1+S] on its values, and its spot [e] in the cell."""

    cell: int
    lower: Floats
    upper: Floats
    spot: Floats


@dataclass(frozen=True, eq=False)
class Partition:
    """Everything that may be drawn, by the nearest of the centres [J, d].

    Where a task has its place in a cell is its spot [e]: in boxes, if transitions are affine in the parameter, the
    parameter itself; in balls around a table (Theorem 3) the distance from the centre; nothing where there is no
    transition model.
    """

    family: TaskDistribution
    centres: Floats
    values: Evaluator
    found: Affinity
    show: Progress = silent

    def measure(self, what: str, parameters: Floats) -> Iterator[Measurement]:
        """The tasks of parameters [n, d], each built once, in one process: that several of them have fewer threads each
        for linear algebra would show in the last digits."""
        nearest: list[int] = self._tree.query(parameters / self._scale)[1].tolist()
        for done, (parameter, j) in enumerate(zip(parameters, nearest, strict=True)):
            task = self.family.task(parameter)
            spot = parameter if self.affine else np.array([distance(task, self.tables[j])] if self.tables else [])
            self.show(f"evaluating {what}", done, len(parameters))
            yield Measurement(j, *self.values(task), spot)

    @property
    def affine(self) -> bool:
        return self.found.tables is not None

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
class SampledBounds:
    """What the first sample says of each cell: bounds [J, P, 1+m, 1+S], the least and largest spots [J, e] of its
    members and how far these reach on average [e], and the number of members [J]."""

    partition: Partition
    lower: Floats
    upper: Floats
    nearest: Floats
    farthest: Floats
    extent: Floats
    count: Floats

    def scores(self, parameters: Floats) -> tuple[Floats, list[float]]:
        """[n] by how many widths its cell must grow to hold each task; none is left unresolved."""
        return np.array([self.score(found) for found in self.partition.measure("held-out tasks", parameters)]), []

    def score(self, found: Measurement) -> float:
        """By how many widths its cell must grow to hold a task; infinite where the safe policy is infeasible."""
        j, low, high, spot = found
        if (low[0, 1:, 0] < 0).any():
            return math.inf
        grown = _growth(self.lower[j], self.upper[j], self.width[j], low, high)
        moved = _growth(self.nearest[j], self.farthest[j], self.extent, spot, spot)
        return max(0.0, grown, moved)

    @cached_property
    def width(self) -> Floats:
        """σ, [J, P, 1+m, 1+S]: how far the bounds of neighbouring cells reach, as a mean over these; a positive number
        where they do not reach anywhere."""
        neighbours = self.partition.neighbours
        highest = reduce(np.maximum, (self.upper[near] for near in neighbours))
        lowest = reduce(np.minimum, (self.lower[near] for near in neighbours))
        size = np.maximum(np.abs(self.lower), np.abs(self.upper)).max(axis=(0, 1))
        reach = (highest - lowest) / len(neighbours)
        width: Floats = np.maximum(reach, ROUNDING * np.where(size > 0, size, 1.0))
        return width

    def cells(self, widening: float, uncovered: float) -> Cells:
        """Also what is in doubt about the transitions being affine counts as uncovered."""
        tasks, found = self.partition.family, self.partition.found
        lower, upper = self.lower - widening * self.width, self.upper + widening * self.width
        lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
        upper = np.maximum(upper, lower)
        nearest, farthest = self.nearest - widening * self.extent, self.farthest + widening * self.extent
        low, high, model = self.partition.centres, self.partition.centres, None
        if found.tables is not None:
            low, high, model = boxes_of_tasks(tasks, found.tables, nearest, farthest)
        elif self.partition.tables:
            model = ball_model(self.partition.tables, farthest[:, 0])
        uncovered = min(1.0, uncovered + found.doubt)
        prior = (1 - uncovered) * self.count / self.count.sum()
        states = first_states(tasks)
        return cells_of_bounds(low, high, prior, lower, upper, "holdout", uncovered, model, states=states)


def _growth(lower: Floats, upper: Floats, width: Floats, low: Floats, high: Floats) -> float:
    """By how many widths bounds must grow at least to hold [low, high]; all of one shape, minus infinity for none."""
    grown = np.maximum((lower - low) / width, (high - upper) / width)
    return float(grown.max(initial=-np.inf))

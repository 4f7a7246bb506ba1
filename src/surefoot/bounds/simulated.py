"""Cells of tasks that must be simulated: surfaces through a first sample of tasks, widened until they hold on a second,
independent one (Theorem 1b; docs/guarantees.md, 2.4).

A first sample says how values and signals depend on the parameter, and which tasks are alike: these are one cell.
What surfaces are off by, a second sample shows. Of its tasks only those matter that ask for most; so all are looked at
briefly, and those again and again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.bounds.conformal import check_holdout, deciding, widening_of
from surefoot.bounds.exact import cells_of_bounds
from surefoot.bounds.gaussian_process import Sample, Surfaces
from surefoot.bounds.readings import Readings
from surefoot.bounds.settings import Settled
from surefoot.bounds.shared_costs import SharedCosts, shared_costs
from surefoot.bounds.simulation import SAFE, Held, Looked, Simulation
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution

# Parameters drawn for each cell, which cost nothing: they say how large cells are and how far surfaces reach in them.
DRAWN_PER_CELL = 20
# When tasks are put into cells, differences in costs count so many times as those in rewards and signals; costs beyond
# twice the budget are all alike, since nobody will deploy them.
COSTS_COUNT = 3.0
# Of a policy that costs more than so many times the budget on all of a cell nothing is claimed there: nobody will
# deploy it as long as the cell is possible, and where it leads to is far from what signals were made for.
HOPELESS = 4.0
# Safety rests on upper bounds of costs. All others only tell cells apart, and are widened by so many times as much, so
# that they hardly ever decide by how much.
LESS_URGENT = 1.6
# This part of what the first episodes of a held-out task leave open comes on top of what surfaces are off by, since
# those that decide are simulated further.
LEFT_OPEN = 0.5
ROUNDING = 1e-9  # of numbers in [0, 1]
SMALLEST_BATCH = 8  # held-out tasks simulated further at a time


def simulated_cells(
    tasks: TaskDistribution,
    simulation: Simulation,
    rng: np.random.Generator,
    settings: Settled,
    show: Progress = silent,
) -> Cells:
    """Cells with bounds that a fresh task keeps unless it is among the uncovered.

    The first sample builds cells and bounds. The second only chooses by how much they are widened, so that its scores
    and that of the test task are exchangeable. Costs that are the same on all tasks are bounded by the first sample.
    Otherwise a task on which the safe policy is not shown to be feasible has an infinite score. Where there are too
    many of these to be among the uncovered, their probability comes on top.
    """
    check_holdout(settings)
    first = tasks.sample(settings.sample, rng)
    looked = list(simulation.look(first))
    shared = shared_costs(simulation, first, looked) if settings.shared_costs else None
    known = _known(simulation, first, looked, shared)
    base = _base(known, tasks.sample(DRAWN_PER_CELL * settings.cells, rng), settings.cells)
    second = tasks.sample(settings.holdout, rng)
    scores, unsettled = _scores(simulation, base, second, settings, show)
    widening, infeasible = widening_of(scores, settings.granted_seen, unsettled)
    lower, upper = base.widened(widening)
    return _cells(tasks, simulation, base, lower, upper, min(1.0, settings.uncovered + infeasible / settings.seen))


# ------------------------------------------------------------------------------------------- what the first sample says


@dataclass(frozen=True, eq=False)
class Known:
    """Surfaces of the means [P, k'] of an episode's numbers (scaled reward and costs, signals), of the spread of these
    numbers, and, where somebody learned to read episodes, of their laws [P, k, L].

    Attributes:
        open: what the first episodes of a held-out task leave open, given the spread of a number.
        shared: bounds on costs that are the same on all tasks.
        alike, hopeless: [m] scaled costs from which on they are alike, and from which on nothing is claimed.
    """

    means: Surfaces
    spreads: Surfaces
    laws: Surfaces | None
    open: Callable[[Floats], Floats]
    alike: Floats
    hopeless: Floats
    shared: SharedCosts | None

    @property
    def costs(self) -> slice:
        """Where they are among the numbers."""
        return slice(1, 1 + len(self.alike))

    def error(self, parameters: Floats) -> Floats:
        """[n, P, k'] what bounds at each parameter are widened in proportion to: positive, and 0 where they hold on
        every task as they are."""
        off_by: Floats = self.means.off_by(parameters) + LEFT_OPEN * self.open(self.spread(parameters))
        off_by = np.maximum(off_by, ROUNDING)
        if self.shared is not None:
            off_by[..., self.costs] = 0.0
        return off_by

    def spread(self, parameters: Floats) -> Floats:
        """[n, P, k'] of the numbers of episodes."""
        return np.maximum(self.spreads(parameters), 0.0)

    def place(self, parameters: Floats) -> Floats:
        """[n, P·k'] where tasks are close on which policies do alike."""
        means, costs = self.means(parameters), self.costs
        means[..., costs] = 0.0 if self.shared else COSTS_COUNT * np.minimum(means[..., costs], self.alike)
        return means.reshape(len(parameters), -1)


def _known(simulation: Simulation, first: Floats, looked: Sequence[Looked], shared: SharedCosts | None) -> Known:
    sample, units = Sample.of(first), simulation.tasks.units
    spreads = np.stack([each.spread for each in looked])
    laws = None
    if simulation.lesson is not None:
        counts = np.stack([each.counts for each in looked if each.counts is not None])
        laws = sample.surfaces(counts / counts.sum(axis=-1, keepdims=True))
    allowed = np.maximum(units.budget - units.reachable[1:, 0], 0.0)
    alike, hopeless = (
        units.scaled(np.append(0.0, units.budget + (times - 1) * allowed))[1:] for times in (2.0, HOPELESS)
    )
    means = sample.surfaces(np.stack([each.mean for each in looked]), spreads**2)
    return Known(means, sample.surfaces(spreads), laws, simulation.off_by, alike, hopeless, shared)


@dataclass(frozen=True, eq=False)
class Places:
    """Cells by what policies do on their tasks: those nearest to each of the centres [J, d]."""

    known: Known
    centres: Floats

    def cells(self, parameters: Floats) -> Integers:
        """[n] the cell of each parameter [n, d]."""
        nearest: Integers = self._tree.query(self.known.place(parameters))[1]
        return nearest

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.known.place(self.centres))


@dataclass(frozen=True, eq=False)
class Base:
    """What is known of cells: bounds [J, P, k'] on the means of numbers, the errors [J, P, k'] in proportion to which
    they are widened, and how many [J] of the parameters drawn are in each."""

    places: Places
    lower: Floats
    upper: Floats
    error: Floats
    count: Floats

    def widened(self, widening: float) -> tuple[Floats, Floats]:
        """[J, P, k'] in [0, 1]."""
        below, above = self._urgent
        lower, upper = self.lower - widening * below * self.error, self.upper + widening * above * self.error
        lower[~self.claimed], upper[~self.claimed] = 0.0, 1.0
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    def growth(self, j: int, policy: int, held: Held) -> float:
        """By how many errors the bounds of cell j must grow to hold what is known of a policy on a task of it."""
        if not self.claimed[j, policy]:
            return 0.0
        below, above = self._urgent
        grown = np.maximum((self.lower[j, policy] - held.lower) / below, (held.upper - self.upper[j, policy]) / above)
        error = self.error[j, policy]
        return max(0.0, float((grown[error > 0] / error[error > 0]).max()))

    @cached_property
    def claimed(self) -> Mask:
        """[J, P] whether anything is claimed of a policy on a cell."""
        known = self.places.known
        claimed = np.asarray((self.lower[..., known.costs] <= known.hopeless).all(axis=-1))
        claimed[:, SAFE] = True
        return claimed

    @cached_property
    def _urgent(self) -> tuple[Floats, Floats]:
        """[k'] each, how many errors lower and upper bounds are widened by at a time."""
        below = np.full(self.lower.shape[-1], LESS_URGENT)
        above = below.copy()
        above[self.places.known.costs] = 1.0
        return below, above


def _base(known: Known, drawn: Floats, cells: int) -> Base:
    places = Places(known, drawn[_far_apart(known.place(drawn), cells)])
    own, means = places.cells(drawn), known.means(drawn)
    count = np.bincount(own, minlength=len(places.centres)).astype(np.float64)
    lower, upper = (np.empty((len(count), *means.shape[1:])) for _ in range(2))
    for j in range(len(count)):
        here = own == j  # its centre at least
        lower[j], upper[j] = means[here].min(axis=0), means[here].max(axis=0)
    if known.shared is not None:
        lower[..., known.costs], upper[..., known.costs] = known.shared
    return Base(places, lower, upper, known.error(places.centres), count)


def _far_apart(place: Floats, most: int) -> list[int]:
    """At most so many of the places [n, e], each as far as possible from those before."""
    chosen = [0]
    distance = ((place - place[0]) ** 2).sum(axis=1)
    while len(chosen) < most and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, ((place - place[chosen[-1]]) ** 2).sum(axis=1))
    return chosen


# -------------------------------------------------------------------------------------- what the second sample asks for


def _scores(
    simulation: Simulation, base: Base, second: Floats, settings: Settled, show: Progress
) -> tuple[Floats, list[float]]:
    """[n] by how much each held-out task asks the bounds to be widened, after as many episodes as there may be; of
    those that do not decide about the widening, after fewer: that is at least as much. And what infinite ones would be
    at most that may yet turn out to be finite.

    So the widening is the same as if all were simulated to the end, or larger where the steps did not suffice.
    """
    cells = base.places.cells(second).tolist()
    held = list(simulation.begun(second, base.places.known.spread(second), base.claimed[cells]))  # [n][P]
    growth = [[base.growth(j, p, each) for p, each in enumerate(own)] for j, own in zip(cells, held, strict=True)]
    spare, spent, shared = simulation.spare_episodes(len(second)), 0, base.places.known.shared is not None
    while True:
        doubtful = [not (shared or simulation.feasible(own[SAFE].lower, own[SAFE].upper)) for own in held]
        scores = np.array([math.inf if doubt else max(row) for doubt, row in zip(doubtful, growth, strict=True)])
        top = deciding(scores, settings.granted_seen)
        largest = heapq.nlargest(max(top, SMALLEST_BATCH), range(len(scores)), key=scores.__getitem__)
        wanted = [(k, SAFE if doubtful[k] else int(np.argmax(growth[k]))) for k in largest if scores[k] > 0]
        wanted = [(k, p) for k, p in wanted if held[k][p].done < simulation.most_episodes]
        decided = all(k not in dict(wanted) for k in largest[:top])
        costs = np.cumsum([held[k][p].done for k, p in wanted])
        wanted = wanted[: int((spent + costs <= spare).sum())]
        if decided or not wanted:
            most = simulation.most_episodes
            return scores, [max(growth[k]) for k, own in enumerate(held) if doubtful[k] and own[SAFE].done < most]
        show("simulating the held-out tasks that decide", spent, spare)
        more = simulation.more([(second[k], p, held[k][p]) for k, p in wanted])
        for (k, p), found in zip(wanted, more, strict=True):
            held[k][p], growth[k][p] = found, base.growth(cells[k], p, found)
        spent += int(costs[len(wanted) - 1])


# ------------------------------------------------------------------------------------------------------------ the cells


def _cells(
    tasks: TaskDistribution, simulation: Simulation, base: Base, lower: Floats, upper: Floats, uncovered: float
) -> Cells:
    """Bounds [J, P, k'] on the means of numbers as bounds on reward and margins, and on signals."""
    units, count = tasks.units, 1 + len(tasks.units.budget)
    low, high = units.values_of_sums(lower[..., :count], upper[..., :count], units.episode_length)
    low[:, SAFE, 1:] = np.maximum(low[:, SAFE, 1:], 0.0)  # covered tasks are those where π_s is feasible
    high = np.maximum(high, low)
    prior = (1 - uncovered) * base.count / base.count.sum()
    readings = _readings(simulation, base, lower[..., count:], upper[..., count:])
    centres = base.places.centres
    return cells_of_bounds(
        centres, centres, prior, low[..., None], high[..., None], "monte-carlo", uncovered, None, readings=readings
    )


def _readings(simulation: Simulation, base: Base, lower: Floats, upper: Floats) -> Readings | None:
    laws = base.places.known.laws
    if simulation.lesson is None or laws is None:
        return None
    return simulation.lesson.readings(lower, upper, np.maximum(laws(base.places.centres), ROUNDING))

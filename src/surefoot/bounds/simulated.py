"""Cells of tasks that must be simulated: Gaussian processes fitted to a first sample of tasks, widened until they hold
on a second, independent one (Theorem 1b; docs/guarantees.md, 2.4).

A first sample says how values and signals depend on the parameter, and which tasks are alike: these are one cell. How
far the fit is off, a second sample shows. Of its tasks only those matter that ask for most; so all are simulated
briefly, and those again and again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells, Readings, cells_of_bounds
from surefoot.bounds.conformal import conformal_bounds, quantile_rank
from surefoot.bounds.gaussian_process import GaussianProcess, TrainingInputs
from surefoot.bounds.prospects import Prospects
from surefoot.bounds.settings import LESS_URGENT, ResolvedBounds
from surefoot.bounds.simulation import SAFE, HoldoutBounds, PilotStats, Simulation, is_feasible
from surefoot.confidence import Betting
from surefoot.errors import InvalidInput
from surefoot.tasks.task_distribution import TaskDistribution

# Parameters drawn for each cell, which cost nothing: they say how large cells are and how far values reach in them.
DRAWN_PER_CELL = 20
# When tasks are put into cells, differences in costs count so many times as those in rewards and signals; costs beyond
# twice the budget are all alike, since nobody will deploy them.
COSTS_COUNT = 3.0
# Of a policy that costs more than so many times the budget on all of a cell nothing is claimed there: nobody will
# deploy it as long as the cell is possible, and where it leads to is far from what signals were made for.
HOPELESS = 4.0
# This part of what the first episodes of a held-out task leave open comes on top of what fits are off by, since those
# that decide are simulated further.
LEFT_OPEN = 0.5
ROUNDING = 1e-9  # of numbers in [0, 1]
SMALLEST_BATCH = 8  # held-out tasks simulated further at a time
DISPROVED = 1e-6  # probability that costs which are the same on all tasks are said not to be


def simulated_cells(
    tasks: TaskDistribution, simulation: Simulation, rng: np.random.Generator, settings: ResolvedBounds
) -> tuple[Cells, Prospects]:
    """Cells with bounds that a fresh task keeps unless it is among the uncovered, and what these allow.

    Costs that are the same on all tasks are bounded by the first sample. Otherwise a task on which the safe policy is
    not shown to be feasible has an infinite score.
    """

    def fit(sample: Floats) -> SurrogateBounds:
        surrogate = fit_surrogate(simulation, sample)
        return fit_bounds(surrogate, tasks.sample(DRAWN_PER_CELL * settings.cells, rng), settings.cells)

    def draw(part: int, count: int) -> Floats:
        kept = simulation.trial.kept
        return tasks.sample(count, rng) if kept is None else kept.sample(tasks, part, count)

    bounds, widening, uncovered = conformal_bounds(draw, fit, settings.sample, settings)
    cells = bounds.cells(widening, uncovered)
    return cells, bounds.prospects(cells)


# ------------------------------------------------------------------------------------------- what the first sample says


@dataclass(frozen=True, eq=False)
class Surrogate:
    """What simulated tasks do, as functions of the parameter: means [P, k'] of an episode's numbers (scaled reward and
    costs, signals), standard deviations of these numbers, and, where signals were learned, their laws [P, k, L].

    Attributes:
        alike, hopeless: [m] scaled costs from which on they are alike, and from which on nothing is claimed.
        shared: bounds on costs that are the same on all tasks.
    """

    simulation: Simulation
    means: GaussianProcess
    stds: GaussianProcess
    laws: GaussianProcess | None
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
        error: Floats = self.means.std(parameters) + LEFT_OPEN * self.simulation.half_width(self.std(parameters))
        error = np.maximum(error, ROUNDING)
        if self.shared is not None:
            error[..., self.costs] = 0.0
        return error

    def std(self, parameters: Floats) -> Floats:
        """[n, P, k'] of the numbers of episodes."""
        return np.maximum(self.stds.mean(parameters), 0.0)

    def embed(self, parameters: Floats) -> Floats:
        """[n, P·k'] points that are close for tasks on which policies do alike."""
        means, costs = self.means.mean(parameters), self.costs
        means[..., costs] = 0.0 if self.shared else COSTS_COUNT * np.minimum(means[..., costs], self.alike)
        return means.reshape(len(parameters), -1)


def fit_surrogate(simulation: Simulation, sample: Floats) -> Surrogate:
    """Gaussian processes through what simulated tasks of parameters [n, d] show."""
    pilots = list(simulation.pilot(sample))
    shared = shared_costs(simulation, sample, pilots) if simulation.settings.shared_costs else None
    inputs, units = TrainingInputs.of(sample), simulation.trial.tasks.units
    std = np.stack([each.std for each in pilots])
    laws = None
    if simulation.trial.signals is not None:
        counts = np.stack([each.counts for each in pilots if each.counts is not None])
        laws = inputs.fit(counts / counts.sum(axis=-1, keepdims=True))
    allowed = np.maximum(units.budget - units.reachable[1:, 0], 0.0)
    alike, hopeless = (
        units.scaled(np.append(0.0, units.budget + (times - 1) * allowed))[1:] for times in (2.0, HOPELESS)
    )
    means = inputs.fit(np.stack([each.mean for each in pilots]), std**2)
    return Surrogate(simulation, means, inputs.fit(std), laws, alike, hopeless, shared)


class SharedCosts(NamedTuple):
    """Bounds [P, m] on the mean scaled costs of an episode, on any task; one of them is wrong with probability at most
    settings.alpha_spent."""

    lower: Floats
    upper: Floats


def shared_costs(simulation: Simulation, parameters: Floats, pilots: Sequence[PilotStats]) -> SharedCosts:
    """From what simulated tasks of parameters [n, d] cost, whether or not that is used for something else too: the
    episodes of all of them count."""
    costs = np.stack([each.costs for each in pilots])  # [n, episodes, P, m]
    for below in (parameters <= np.median(parameters, axis=0)).T:
        _check_same(costs[below], costs[~below])
    shared = SharedCosts(*_mean_costs(costs, simulation.settings.alpha_spent))
    units = simulation.trial.tasks.units
    if not is_feasible(units, np.append(0.0, shared.lower[SAFE]), np.append(1.0, shared.upper[SAFE])):
        raise InvalidInput(
            "the safe policy must be shown to keep its budgets, got one of which "
            f"{len(costs) * len(costs[0])} episodes do not show it; take a safer one (xi) or more episodes"
        )
    return shared


def _check_same(some: Floats, others: Floats) -> None:
    """Refuse costs [n, episodes, P, m] of tasks on both sides of the median parameter that differ in a mean."""
    (lower, upper), (low, high) = _mean_costs(some, DISPROVED / 2), _mean_costs(others, DISPROVED / 2)
    if ((lower > high) | (low > upper)).any():
        raise InvalidInput("shared_costs must be False for tasks whose costs depend on the parameter, got True")


def _mean_costs(costs: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds [P, m]; one of all of them is wrong with probability at most `alpha`."""
    _, _, policies, constraints = costs.shape
    sequence = Betting(alpha / (policies * constraints))
    return sequence.interval(
        sequence.update(sequence.start((policies, constraints)), costs.reshape(-1, policies, constraints))
    )


def fit_bounds(surrogate: Surrogate, drawn: Floats, cells: int) -> SurrogateBounds:
    """At most so many cells, and over the drawn parameters of each of them the smallest and largest means."""
    centres = drawn[_farthest_points(surrogate.embed(drawn), cells)]
    tree = cKDTree(surrogate.embed(centres))
    own, means = tree.query(surrogate.embed(drawn))[1], surrogate.means.mean(drawn)
    count = np.bincount(own, minlength=len(centres)).astype(np.float64)
    lower, upper = (np.empty((len(count), *means.shape[1:])) for _ in range(2))
    for j in range(len(count)):
        here = own == j  # its centre at least
        lower[j], upper[j] = means[here].min(axis=0), means[here].max(axis=0)
    if surrogate.shared is not None:
        lower[..., surrogate.costs], upper[..., surrogate.costs] = surrogate.shared
    return SurrogateBounds(surrogate, centres, tree, lower, upper, surrogate.error(centres), count)


def _farthest_points(points: Floats, most: int) -> list[int]:
    """At most so many of the points [n, e], each as far as possible from those before."""
    chosen = [0]
    distance = ((points - points[0]) ** 2).sum(axis=1)
    while len(chosen) < most and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return chosen


# -------------------------------------------------------------------------------------- what the second sample asks for


@dataclass(frozen=True, eq=False)
class SurrogateBounds:
    """Cells of the tasks on which policies do as nearly as on each of the centres [J, d], with bounds [J, P, k'] on the
    means of numbers, the errors [J, P, k'] in proportion to which these are widened, and how many [J] of the parameters
    drawn are in each."""

    surrogate: Surrogate
    centres: Floats
    tree: cKDTree
    lower: Floats
    upper: Floats
    error: Floats
    count: Floats

    def cell_of(self, parameters: Floats) -> Integers:
        """[n] the cell of each parameter [n, d]."""
        nearest: Integers = self.tree.query(self.surrogate.embed(parameters))[1]
        return nearest

    def scores(self, parameters: Floats) -> tuple[Floats, list[float]]:
        """[n] by how much each held-out task asks the bounds to be widened, after as many episodes as there may be; of
        those that do not decide about the widening, after fewer: that is at least as much. And what infinite ones would
        be at most that may yet turn out to be finite.

        So the widening is the same as if all were simulated to the end, or larger where the steps did not suffice.
        """
        simulation, units = self.surrogate.simulation, self.surrogate.simulation.trial.tasks.units
        cells = self.cell_of(parameters).tolist()
        held = list(simulation.begin(parameters, self.surrogate.std(parameters), self.claim_mask[cells]))  # [n][P]
        growth = [[self.growth(j, p, each) for p, each in enumerate(own)] for j, own in zip(cells, held, strict=True)]
        spare, spent, shared = simulation.spare_episodes(len(parameters)), 0, self.surrogate.shared is not None
        while True:
            doubtful = [not (shared or is_feasible(units, own[SAFE].lower, own[SAFE].upper)) for own in held]
            scores = np.array([math.inf if doubt else max(row) for doubt, row in zip(doubtful, growth, strict=True)])
            top = quantile_rank(scores, simulation.settings.alpha_observed)
            largest = heapq.nlargest(max(top, SMALLEST_BATCH), range(len(scores)), key=scores.__getitem__)
            wanted = [(k, SAFE if doubtful[k] else int(np.argmax(growth[k]))) for k in largest if scores[k] > 0]
            wanted = [(k, p) for k, p in wanted if held[k][p].done < simulation.most_episodes]
            decided = all(k not in dict(wanted) for k in largest[:top])
            costs = np.cumsum([held[k][p].done for k, p in wanted])
            wanted = wanted[: int((spent + costs <= spare).sum())]
            if decided or not wanted:
                most = simulation.most_episodes
                return scores, [max(growth[k]) for k, own in enumerate(held) if doubtful[k] and own[SAFE].done < most]
            simulation.show("simulating the held-out tasks that decide", spent, spare)
            more = simulation.extend([(parameters[k], p, held[k][p]) for k, p in wanted])
            for (k, p), found in zip(wanted, more, strict=True):
                held[k][p], growth[k][p] = found, self.growth(cells[k], p, found)
            spent += int(costs[len(wanted) - 1])

    def growth(self, j: int, policy: int, held: HoldoutBounds) -> float:
        """By how many errors the bounds of cell j must grow to hold what is known of a policy on a task of it."""
        if not self.claim_mask[j, policy]:
            return 0.0
        below, above = self._urgency
        grown = np.maximum((self.lower[j, policy] - held.lower) / below, (held.upper - self.upper[j, policy]) / above)
        error = self.error[j, policy]
        return max(0.0, float((grown[error > 0] / error[error > 0]).max()))

    @cached_property
    def claim_mask(self) -> Mask:
        """[J, P] whether anything is claimed of a policy on a cell."""
        claimed = np.asarray((self.lower[..., self.surrogate.costs] <= self.surrogate.hopeless).all(axis=-1))
        claimed[:, SAFE] = True
        return claimed

    @cached_property
    def _urgency(self) -> tuple[Floats, Floats]:
        """[k'] each, how many errors lower and upper bounds are widened by at a time."""
        below = np.full(self.lower.shape[-1], LESS_URGENT)
        above = below.copy()
        above[self.surrogate.costs] = 1.0
        return below, above

    def cells(self, widening: float, uncovered: float) -> Cells:
        """Bounds on the means of numbers as bounds on reward and margins, and on signals."""
        lower, upper = self.widen(widening)
        units, count = self.surrogate.simulation.trial.tasks.units, 1 + len(self.surrogate.alike)
        low, high = units.values_of_sums(lower[..., :count], upper[..., :count], units.episode_length)
        low[:, SAFE, 1:] = np.maximum(low[:, SAFE, 1:], 0.0)  # covered tasks are those where π_s is feasible
        high = np.maximum(high, low)
        prior = (1 - uncovered) * self.count / self.count.sum()
        readings = self._readings(lower[..., count:], upper[..., count:])
        bounds = low[..., None], high[..., None]
        return cells_of_bounds(
            self.centres, self.centres, prior, *bounds, "monte-carlo", uncovered, None, readings=readings
        )

    def prospects(self, cells: Cells) -> Prospects:
        """What these cells allow, by the fit at their centres."""
        units, values = self.surrogate.simulation.trial.tasks.units, slice(0, 1 + len(self.surrogate.alike))
        means = np.clip(self.surrogate.means.mean(self.centres)[..., values], 0.0, 1.0)
        fitted, _ = units.values_of_sums(means, means, units.episode_length)
        return Prospects(cells.prior, fitted[..., 0], fitted[..., 1:], cells.lower[..., 1:])

    def widen(self, widening: float) -> tuple[Floats, Floats]:
        """Bounds [J, P, k'] in [0, 1] after all have grown by so many errors."""
        below, above = self._urgency
        lower, upper = self.lower - widening * below * self.error, self.upper + widening * above * self.error
        lower[~self.claim_mask], upper[~self.claim_mask] = 0.0, 1.0
        return np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)

    def _readings(self, lower: Floats, upper: Floats) -> Readings | None:
        signals, laws = self.surrogate.simulation.trial.signals, self.surrogate.laws
        if signals is None or laws is None:
            return None
        return signals.readings(lower, upper, np.maximum(laws.mean(self.centres), ROUNDING))

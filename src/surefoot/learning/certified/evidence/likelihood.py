"""e-processes from observed transitions: which cells can still hold the task (docs/guarantees.md, Theorem 2).

For each cell j a nonnegative process E(j) that, if the task lies in j, ever reaches 1/δ with probability at most δ.
Only the true cell has to survive, so there is no union over cells, and each cell may be tested against alternatives of
its own: those that are less dangerous than itself, since only ruling out dangerous cells lets the learner move on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.learning.certified.evidence.counts import (
    Counts,
    class_counts,
    count_transitions,
    impossible_counts,
    impossible_episodes,
    no_counts,
    possible_counts,
)
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Observes
from surefoot.tabular.transition_model import TransitionModel

# Alternatives of a cell: normal kernels whose widths are these fractions of the spread of the tasks, so weighted.
# Chosen to minimise the summed width of the confidence bound over 1 ... 40 000 episodes.
LOCAL_SCALES = (1.0, 1 / 6)
LOCAL_WEIGHTS = (0.19, 0.75)
# All cells and the uncovered part of the box, so that a task out there empties the set.
GLOBAL_WEIGHT = 0.04
# Models of their own for every row type and for every row, so that dynamics outside the family empty the set too.
ROW_TYPE_WEIGHT, ROW_WEIGHT = 0.01, 0.01

# Where cells split: this much for the tasks between the centres, the rest as above.
BETWEEN_WEIGHT = 0.5

# Equidistant nodes along each main axis of the likelihood, in standard deviations; fewer where parameters are many, and
# none beyond: the number of nodes is a power.
NODES, FEWER_NODES = (-1.8, -0.6, 0.6, 1.8), (-1.0, 1.0)
MANY, TOO_MANY = 4, 8
# Nodes keep this part of the way to where a transition becomes impossible; regions much smaller than meant are no use.
INSIDE, LEAST_REGION = 0.9, 1e-3

# Alternatives whose likelihood is below this fraction of the best one are left out.
NEGLIGIBLE = 1e-12

# Tangents touch log p no further down than this: any point is valid, and slopes of parameters in tiny units are large.
LEAST_TANGENT = 1e-100

# Newton sweeps over the parameters: for the overall maximum, and within each cell.
PEAK_SWEEPS, CELL_SWEEPS = 10, 2


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """Theorem 2: mixture of alternatives over the best likelihood in the cell, for known transition probabilities.

    `between` adds all tasks between the centres to the alternatives (Theorem 2b); for affine families.
    """

    cells: Cells
    model: TransitionModel
    units: Units
    horizon: int  # most steps of an episode
    between: bool = False
    observes: ClassVar[Observes] = "transitions"

    def start(self) -> Counts:
        return no_counts(self.model)

    def observe(self, state: Counts, drawn: Integers, outcomes: Outcomes) -> Counts:
        return count_transitions(state, outcomes, self.model, self.units)

    def impossible(self, outcomes: Outcomes, before: Counts, after: Counts) -> Mask:
        if possible_counts(before, after, exact=True):
            return np.zeros(len(outcomes), dtype=bool)
        return impossible_episodes(outcomes, self.model, self.units, exact=True)

    def abandon(self, state: Counts, drawn: int) -> Counts:
        return replace(state, abandoned=state.abandoned + 1)

    def settle(self, state: Counts, surviving: Mask, planned: tuple[Planned, ...]) -> Counts:
        return state

    def log_evidence(self, state: Counts) -> Floats:
        """[J] log E(j)."""
        evidence: Floats = self.log_mixture(state) - self.best_in_cells(state)
        return evidence

    def log_mixture(self, state: Counts, mode: Floats | None = None) -> Floats:
        """[J] log of the numerator W_j; infinite where no cell allows what was seen. `mode` [d] is what `self.mode`
        returns, if that is known."""
        seen = class_counts(state, self.model)
        if state.contradicted or impossible_counts(state, self.model).any():
            return np.full(len(self.cells), np.inf)
        likelihood = seen @ self._log_alternatives.T
        share = float(np.log(1 - BETWEEN_WEIGHT)) if self.between else 0.0  # of all that is not between
        if state.abandoned:
            return share + self._least_log_mixture(likelihood, state.abandoned * self.horizon)
        best = float(likelihood.max())
        relative = np.exp(likelihood - best)
        inside = relative[: len(self.cells)]
        near = np.flatnonzero(inside > NEGLIGIBLE)  # leaving alternatives out lowers E: valid, and much faster
        mixture = self._local[:, near] @ inside[near] + GLOBAL_WEIGHT * relative.mean()
        log_mixture = np.log(np.maximum(mixture, 1e-300)) + best
        log_mixture = np.logaddexp(log_mixture, np.log(ROW_TYPE_WEIGHT) + row_type_log_likelihood(seen, self.model))
        learned: Floats = np.logaddexp(log_mixture, np.log(ROW_WEIGHT) + row_log_likelihood(state, self.model))
        if not self.between:
            return learned
        both: Floats = np.logaddexp(share + learned, np.log(BETWEEN_WEIGHT) + self._log_between(seen, mode))
        return both

    def belief(self, state: Counts) -> Floats:
        """[J] posterior over cells under the task distribution; it guides the choice of policies, not their safety."""
        return posterior(class_counts(state, self.model), self.cells, self.model)

    def best_in_cells(self, state: Counts) -> Floats:
        """[J] upper bound on the log-likelihood over each cell."""
        return self.best_in_boxes(state, self.cells.low, self.cells.high)

    def best_in_boxes(
        self, state: Counts, low: Floats, high: Floats, enough: Floats | float = -np.inf, peak: Floats | None = None
    ) -> Floats:
        """[N] upper bound on the log-likelihood over each box [N, d], exact in one dimension but for rounding. Below
        `enough` it need not be sharp; `peak` [1, d] is a point near the overall maximum, if one is known.

        In an affine family the log-likelihood is concave, so it lies below its tangent at any point: take the point of
        the box nearest to the overall maximum, and, where parameters interact, better ones from there on. Every tangent
        is a bound, so the least of them is.
        """
        seen = class_counts(state, self.model)
        if self.model.affine is None:
            return seen @ log_floored(self.model.probability).T
        point = np.clip(self._peak(seen) if peak is None else peak, low, high)
        bound = self._tangent_bound(seen, point, low, high)
        sharp = np.flatnonzero(bound > enough) if low.shape[1] > 1 else np.empty(0, dtype=np.int64)
        point, low, high = point[sharp], low[sharp], high[sharp]
        for _ in range(CELL_SWEEPS if len(sharp) else 0):
            point = _ascend(seen, self.model, point, low, high, 1)
            bound[sharp] = np.minimum(bound[sharp], self._tangent_bound(seen, point, low, high))
        return bound

    def _peak(self, seen: Floats) -> Floats:
        """[1, d] where the likelihood of all tasks is largest, approximately; affine families only."""
        best = self.cells.centre[[int(np.argmax(self._log_alternatives[: len(self.cells)] @ seen))]]
        lowest, highest = self.support
        return _ascend(seen, self.model, best, lowest[None], highest[None], PEAK_SWEEPS)

    @cached_property
    def support(self) -> tuple[Floats, Floats]:
        """Corners [d] of the smallest box around all cells."""
        return self.cells.low.min(axis=0), self.cells.high.max(axis=0)

    def mode(self, seen: Floats) -> Floats:
        """[d] the likeliest task if tasks were normal, approximately; for choices that no guarantee rests on."""
        prior = self.cells.prior / self.cells.prior.sum()
        mean, (lowest, highest) = prior @ self.cells.centre, self.support
        start = self.cells.centre[[int(np.argmax(posterior(seen, self.cells, self.model)))]]
        found: Floats = _ascend(
            seen, self.model, start, lowest[None], highest[None], PEAK_SWEEPS, (mean, task_spread(self.cells))
        )[0]
        return found

    def _log_between(self, seen: Floats, mode: Floats | None) -> Floats:
        """[J] log of the average likelihood over tasks around each cell, as little as it can be (Theorem 2b)."""
        centre, width = self._around
        mode = self.mode(seen) if mode is None else mode
        found = log_integral(seen, self.model, mode, self.support, centre, width)
        share = np.log(LOCAL_WEIGHTS) - np.log(sum(LOCAL_WEIGHTS))
        mixed: Floats = np.logaddexp.reduce(found.reshape(len(share), -1) + share[:, None], axis=0)
        return mixed

    @cached_property
    def _around(self) -> tuple[Floats, Floats]:
        """Centres and widths [2J, d] of normal densities around all cells, no narrower than half a cell."""
        spread, half = task_spread(self.cells), (self.cells.high - self.cells.low) / 2
        width = [np.maximum(scale * spread, half) for scale in LOCAL_SCALES]
        return np.tile(self.cells.centre, (len(width), 1)), np.concatenate(width)

    def _tangent_bound(self, seen: Floats, point: Floats, low: Floats, high: Floats) -> Floats:
        """[N] the most that the tangent of the log-likelihood at point [N, d] reaches in each box."""
        probability = np.maximum(self.model.class_probability(point), LEAST_TANGENT)
        gradient = (seen / probability) @ self.model.affine[1]  # type: ignore[index]
        rise = np.maximum(gradient * (low - point), gradient * (high - point))
        bound: Floats = np.log(probability) @ seen + rise.sum(axis=1)
        return bound

    def _least_log_mixture(self, likelihood: Floats, steps: int) -> Floats:
        """[J] log of the mixture of alternatives after `steps` more transitions, relative to the cell's likelihood of
        them, if each was the one that speaks most for the cell. The models learned on the way are left out."""
        weights = np.full(self._worst_step.shape, GLOBAL_WEIGHT / len(likelihood))
        weights[:, : len(self.cells)] += self._local
        least = likelihood + steps * self._worst_step
        best = least.max(axis=1, keepdims=True)
        mixture: Floats = np.log((weights * np.exp(least - best)).sum(axis=1)) + best[:, 0]
        return mixture

    @cached_property
    def _worst_step(self) -> Floats:
        """[J, J + J'] smallest log-ratio of an alternative to any member of the cell, over the possible transitions."""
        highest = self.model.probability
        if self.model.affine is not None:
            base, slope = self.model.affine
            highest = base + sum(
                np.maximum(self.cells.low[:, k, None] * slope[:, k], self.cells.high[:, k, None] * slope[:, k])
                for k in range(slope.shape[1])
            )
        worst: Floats = np.zeros((len(self.cells), len(self._log_alternatives)))
        for c in range(len(self.model.row_type)):
            ratio = self._log_alternatives[:, c] - log_floored(np.minimum(highest[:, c], 1.0))[:, None]
            worst = np.where(highest[:, c, None] > 0, np.minimum(worst, ratio), worst)
        return worst

    @cached_property
    def _log_alternatives(self) -> Floats:
        return log_floored(all_alternatives(self.cells, self.model))

    @cached_property
    def _local(self) -> Floats:
        """[J, J] weights of the alternatives of each cell."""
        return local_alternatives(self.cells)


def all_alternatives(cells: Cells, model: TransitionModel) -> Floats:
    """[J + J', C] probabilities at the centres of all cells and of the boxes outside: laws, as `Cells` has checked."""
    if model.affine is None or not len(cells.outside):
        return model.probability
    return np.concatenate([model.probability, model.law(cells.outside)])


def local_alternatives(cells: Cells) -> Floats:
    """[J, J] per cell, weights over itself and the less dangerous cells around it; rows sum to Σ LOCAL_WEIGHTS."""
    centre, spread = cells.centre, task_spread(cells)
    squared = sum(((centre[:, None, k] - centre[None, :, k]) / spread[k]) ** 2 for k in range(centre.shape[1]))
    safer = cells.danger[None, :] <= cells.danger[:, None]
    volume = np.prod(np.maximum(cells.high - cells.low, 0.0), axis=1)
    volume = volume if (volume > 0).all() else np.ones(len(cells))
    weights: Floats = np.zeros((len(cells), len(cells)))
    for scale, weight in zip(LOCAL_SCALES, LOCAL_WEIGHTS, strict=True):
        kernel = np.where(safer, np.exp(-squared / (2 * scale**2)) * volume, 0.0)
        weights += weight * kernel / kernel.sum(axis=1, keepdims=True)
    return weights


def task_spread(cells: Cells) -> Floats:
    """[d] standard deviation of each parameter over the cells; 1 for one that does not vary."""
    centre, prior = cells.centre, cells.prior / cells.prior.sum()
    spread = np.sqrt(prior @ (centre - prior @ centre) ** 2)
    return np.where(spread > 0, spread, 1.0)


def row_type_log_likelihood(seen: Floats, model: TransitionModel) -> float:
    """Log-probability of the transitions if each row type had class probabilities of its own, learned on the way.

    A Dirichlet prior over the classes of every row type; successors of one class are equally likely.
    """
    totals, pseudo = np.bincount(model.row_type, weights=seen), np.bincount(model.row_type) / 2
    entries = gammaln(0.5 + seen) - gammaln(0.5) - seen * np.log(model.multiplicity)
    return float(entries.sum() + (gammaln(pseudo) - gammaln(pseudo + totals)).sum())


def row_type_prediction(seen: Floats, model: TransitionModel) -> Floats:
    """[C] probability of each class's successors in the next transition under that model."""
    totals, pseudo = np.bincount(model.row_type, weights=seen), np.bincount(model.row_type) / 2
    share: Floats = (0.5 + seen) / (pseudo + totals)[model.row_type] / model.multiplicity
    return share


def row_log_likelihood(state: Counts, model: TransitionModel) -> float:
    """Log-probability of the transitions under a Dirichlet prior for every row: any dynamics, learned on the way."""
    seen = state.transitions[state.transitions > 0]
    possible = np.diff(model.indptr)
    rows = 0.5 * possible + 1e-3 * (model.n_states - possible)  # a little for what the model holds to be impossible
    visits = np.add.reduceat(state.transitions, model.indptr[:-1])
    entries = gammaln(0.5 + seen) - gammaln(0.5)
    totals = gammaln(rows) - gammaln(rows + visits)
    return float(entries.sum() + totals.sum())


def _ascend(
    seen: Floats,
    model: TransitionModel,
    point: Floats,
    low: Floats,
    high: Floats,
    sweeps: int,
    normal: tuple[Floats, Floats] | None = None,
) -> Floats:
    """[n, d] points of higher log-likelihood within boxes, or of likelihood times a density, a normal one of mean and
    width [d]: Newton steps, one parameter at a time.

    A step goes at most nine tenths of the way to an edge. On the edge a transition that was observed may be impossible,
    and Newton's method does not come back from there.
    """
    base, slope = model.affine if model.affine is not None else (np.empty(0), np.empty((0, point.shape[1])))
    base, slope, count = base[seen > 0], slope[seen > 0], seen[seen > 0]
    mean, pull = (point[0], np.zeros(point.shape[1])) if normal is None else (normal[0], normal[1] ** -2.0)
    point = point.copy()
    for k in np.tile(np.arange(point.shape[1]), sweeps):
        ratio = slope[:, k] / np.maximum(base + point @ slope.T, LEAST_TANGENT)  # [n, C]
        rise = ratio @ count + pull[k] * (mean[k] - point[:, k])
        step = rise / np.maximum(ratio**2 @ count + pull[k], 1e-300)
        point[:, k] += np.clip(step, 0.9 * (low[:, k] - point[:, k]), 0.9 * (high[:, k] - point[:, k]))
    return point


def log_floored(probability: Floats) -> Floats:
    return np.log(np.maximum(probability, 1e-300))


def softmax(log_weights: Floats) -> Floats:
    weights: Floats = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    return weights


def posterior(seen: Floats, cells: Cells, model: TransitionModel) -> Floats:
    """[J] probability of each cell given the class counts, by the likelihood at its centre."""
    return softmax(np.log(np.maximum(cells.prior, 1e-300)) + seen @ log_floored(model.probability).T)


# -------------------------------------------------------------------------------------------------- between the centres
# A mixture over centres knows the task up to the width of a cell, and falls behind the best likelihood the further the
# more is observed. An integral over all tasks around a centre, by a normal density, does not (docs, Theorem 2b). It is
# bounded from below, which only makes evidence smaller.


def log_integral(
    seen: Floats, model: TransitionModel, mode: Floats, box: tuple[Floats, Floats], centre: Floats, width: Floats
) -> Floats:
    """[J] lower bound on log ∫ N(θ; centre_j, width_j²)·Π_c p_c(θ)^seen_c dθ over the parameters of tasks.

    Args:
        mode: [d] where the integrand is large; any point is valid.
        box: corners [d] within which tasks are looked for.
        centre, width: [J, d] of the normal densities.

    The logarithm of the integrand is concave. So its mean over a tile, a parallelepiped, is at least that over the
    corners, and by Jensen's inequality the integral over the tile is at least its volume times exp of that.
    """
    region = _region(seen, model, mode, box, width.max(axis=0))
    if region is None:
        return np.full(len(centre), -np.inf)
    nodes, log_volume = region
    used = seen > 0
    probability = model.class_probability(nodes)[:, used]
    if not (probability > 0).all():
        return np.full(len(centre), -np.inf)
    values = log_normal(nodes, centre, width) + np.log(probability) @ seen[used]
    tiles = _means_over_corners(values, nodes.shape[1])
    most = tiles.max(axis=1)
    bound: Floats = most + np.log(np.exp(tiles - most[:, None]).sum(axis=1)) + log_volume
    return bound


def log_normal(points: Floats, centre: Floats, width: Floats) -> Floats:
    """[J, n] log-density at points [n, d] of normal laws with independent components, centre and width [J, d]."""
    near, weight = points.mean(axis=0), width**-2.0
    point, middle = points - near, centre - near  # so that the squares below cancel nothing
    squares = weight @ (point**2).T - 2 * (middle * weight) @ point.T + (middle**2 * weight).sum(axis=1)[:, None]
    found: Floats = -squares / 2 - np.log(width * np.sqrt(2 * np.pi)).sum(axis=1)[:, None]
    return found


def _region(
    seen: Floats, model: TransitionModel, mode: Floats, box: tuple[Floats, Floats], scale: Floats
) -> tuple[Floats, float] | None:
    """Nodes [n, d] of a lattice around the mode along the main axes of the curvature there, all of them tasks, and the
    logarithm of the volume of each tile; None where there is no room for it."""
    dimension = len(mode)
    if model.affine is None or dimension > TOO_MANY:
        return None
    slope, steps = model.affine[1], np.array(NODES if dimension <= MANY else FEWER_NODES)
    used = seen > 0
    ratio = slope[used] * scale / np.maximum(model.class_probability(mode)[used], 1e-100)[:, None]
    size, axes = np.linalg.eigh((ratio.T * seen[used]) @ ratio + np.eye(dimension))
    lattice = np.stack(np.meshgrid(*[steps] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    offset = (lattice / np.sqrt(size)) @ axes.T * scale
    low, high = box[0] + np.abs(offset).max(axis=0), box[1] - np.abs(offset).max(axis=0)
    middle = np.where(low < high, np.clip(mode, low, np.maximum(low, high)), (box[0] + box[1]) / 2)
    here, change = model.class_probability(middle), offset @ slope.T
    falling = change < 0
    room = np.min(np.where(falling, here / np.where(falling, -change, 1.0), np.inf), initial=np.inf)
    part = min(1.0, INSIDE * float(room))
    if not part > LEAST_REGION:
        return None
    log_volume = dimension * np.log(part * (steps[1] - steps[0])) + np.log(scale).sum() - np.log(size).sum() / 2
    return middle + part * offset, float(log_volume)


def _means_over_corners(values: Floats, dimension: int) -> Floats:
    """[J, tiles] means over the corners of each tile, of values [J, n] at the nodes of a lattice."""
    side = round(values.shape[1] ** (1 / dimension))
    grid = values.reshape(len(values), *[side] * dimension)
    for axis in range(1, dimension + 1):
        before, after = np.delete(grid, -1, axis), np.delete(grid, 0, axis)
        grid = (before + after) / 2
    return grid.reshape(len(values), -1)

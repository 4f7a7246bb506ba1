"""Cells made of single tasks: all tasks of a finite distribution, or sampled ones with bounds that were widened until
they held on a second, independent sample (Theorem 1b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import betaincinv

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells, Source
from surefoot.tabular.distance import distance
from surefoot.tabular.expansion import ROUNDING, rounding
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.transition_classes import ball_model
from surefoot.tasks.distribution import Finite
from surefoot.tasks.family import TaskDistribution
from surefoot.training.bounds import Evaluator, cells_of_bounds, exact_values

# How what is granted to a draw of held-out tasks is spent: on bounds from all of them; on bounds from those on which
# the safe policy is feasible, used when too many are not; and, then, on the count of the latter being misleading.
ALL_SHARE, FEASIBLE_SHARE, DOUBT_SHARE = 0.6, 0.3, 0.1


def finite_cells(tasks: TaskDistribution, policies: Sequence[TabularPolicy]) -> Cells:
    """One cell per task of a finite distribution, without those on which the safe policy is infeasible."""
    distribution = tasks.distribution
    if not isinstance(distribution, Finite):
        raise InvalidInput(f"distribution must be Finite, got {type(distribution).__name__}")
    evaluate = exact_values(tasks, policies)
    rng = np.random.default_rng(0)  # exact values draw nothing
    values = np.stack([evaluate(point, rng)[0] for point in distribution.points])
    feasible = (values[:, 0, 1:, 0] >= 0).all(axis=1)
    points, prior, values = distribution.points[feasible], distribution.weights[feasible], values[feasible]
    members = [tasks.task(point) for point in points]
    model = ball_model(members, np.zeros(len(points))) if members else None
    uncovered = max(0.0, 1 - float(prior.sum()))
    sizes = np.abs(values).max(axis=-1)  # [n, P, 1+m]
    slack = np.array([rounding(size, task) for size, task in zip(sizes, members, strict=True)]).reshape(sizes.shape)
    lower, upper = values - slack[..., None], values + slack[..., None]
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # just found feasible
    return cells_of_bounds(points, points, prior, lower, upper, "finite", uncovered, model)


def holdout_cells(
    tasks: TaskDistribution,
    values: Evaluator,
    rng: np.random.Generator,
    *,
    cells: int,
    holdout: int,
    uncovered: float,
    source: Source,
    members: int | None = None,
    error: float = 0.0,
    attempt: int = 1,
) -> Cells:
    """Voronoi cells around sampled tasks, with bounds that a fresh task keeps unless it is among the uncovered.

    The first sample builds cells and bounds. The second only chooses by how much they are widened, so that its scores
    and that of the test task are exchangeable (Theorem 1b). A task on which the safe policy is infeasible has an
    infinite score. Where there are too many of these to be among the uncovered, their probability comes on top.

    Args:
        uncovered: probability granted to tasks that break their bounds, over all attempts together.
        members: size of the first sample; its first `cells` tasks are the centres.
        error: probability that `values` is wrong for a task (`simulated_values`); it adds to what is uncovered.
        attempt: 1, and one more each time that samples have been drawn and not been used.
    """
    granted = uncovered / 2**attempt
    if holdout < 1 / (ALL_SHARE * granted) - 1:
        raise InvalidInput(
            f"holdout must be at least {math.ceil(1 / (ALL_SHARE * granted)) - 1} for uncovered={uncovered:g} in "
            f"attempt {attempt}, got {holdout}"
        )
    sample = tasks.sample(members or 4 * cells, rng)
    centres = np.unique(sample[:cells], axis=0)  # a distribution with atoms may draw one task twice
    spread = _ball_distance(tasks, centres) if source == "holdout" else _no_distance
    scale = np.ptp(tasks.distribution.support, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    tree = cKDTree(centres / scale)
    places = tree.query(sample / scale)[1]
    lower, upper, count = _base_bounds(sample, places, len(centres), values, rng)
    width = _widths(lower, upper)
    radius = np.zeros(len(centres))
    np.maximum.at(radius, places, [spread(parameter, j) for parameter, j in zip(sample, places, strict=True)])
    radius_width = max(float(radius.mean()), ROUNDING)

    second = tasks.sample(holdout, rng)
    places = tree.query(second / scale)[1]
    scores = np.array(
        [
            max(
                _score(values(parameter, rng), lower[j], upper[j], width),
                (spread(parameter, j) - radius[j]) / radius_width,
            )
            for parameter, j in zip(second, places, strict=True)
        ]
    )
    widening, infeasible = _widening(scores, granted)
    lower, upper = lower - widening * width, upper + widening * width
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
    upper = np.maximum(upper, lower)
    model = None
    if source == "holdout":
        model = ball_model([tasks.task(centre) for centre in centres], radius + widening * radius_width)
    uncovered = min(1.0, uncovered + infeasible + error)
    prior = (1 - uncovered) * count / count.sum()
    return cells_of_bounds(centres, centres, prior, lower, upper, source, uncovered, model)


def binomial_upper(failures: int, trials: int, error: float) -> float:
    """p with P(Bin(trials, p) ≤ failures) = error: the true probability is larger with probability at most `error`."""
    return 1.0 if failures == trials else float(betaincinv(failures + 1, trials - failures, 1 - error))


def holdout_level(holdout: int, rank: int, error: float) -> float:
    """β' with P(Bin(m, β') ≤ m - k) = error: with probability 1 - error over the second sample, a fresh task breaks
    the bounds with probability at most β' (Theorem 1b, third guarantee)."""
    return binomial_upper(holdout - rank, holdout, error)


def _base_bounds(
    sample: Floats, places: Floats, cells: int, values: Evaluator, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Smallest and largest value over the sampled members of each cell, and how many there are."""
    lower, upper, count = None, None, np.zeros(cells)
    for parameter, j in zip(sample, places, strict=True):
        low, high = values(parameter, rng)
        if lower is None or upper is None:
            lower, upper = np.full((cells, *low.shape), np.inf), np.full((cells, *low.shape), -np.inf)
        lower[j], upper[j] = np.minimum(lower[j], low), np.maximum(upper[j], high)
        count[j] += 1
    if lower is None or upper is None:
        raise InvalidInput("sample must hold at least one task, got none")
    return lower, upper, count


def _widths(lower: Floats, upper: Floats) -> Floats:
    """σ, [1+m, 1+S]: how wide the bounds are on average, and a positive number where they have no width at all."""
    size = np.maximum(np.abs(lower), np.abs(upper)).max(axis=(0, 1))
    width: Floats = np.maximum((upper - lower).mean(axis=(0, 1)), ROUNDING * np.where(size > 0, size, 1.0))
    return width


def _ball_distance(tasks: TaskDistribution, centres: Floats) -> Callable[[Floats, int], float]:
    """d between the task of a parameter and the centre of a cell, for the total-variation balls (Theorem 3)."""
    middle = [tasks.task(centre) for centre in centres]
    return lambda parameter, j: distance(tasks.task(parameter), middle[j])


def _no_distance(parameter: Floats, j: int) -> float:
    return 0.0


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
    rank = math.ceil((1 - level) * (len(scores) + 1))
    if rank > len(scores):
        raise InvalidInput(
            f"holdout must leave at least {math.ceil(1 / level) - 1} tasks on which the safe policy is feasible, got "
            f"{len(scores)}; take a safer safe policy (xi), more held-out tasks or a larger uncovered. A new draw is "
            "another attempt, to be declared and paid for as such"
        )
    return float(np.sort(scores)[rank - 1])


def _score(values: tuple[Floats, Floats], lower: Floats, upper: Floats, width: Floats) -> float:
    """By how many widths the bounds of a cell must grow to hold the values of a task."""
    low, high = values
    if (low[0, 1:, 0] < 0).any():
        return math.inf
    return float(max(0.0, ((lower - low) / width).max(), ((high - upper) / width).max()))

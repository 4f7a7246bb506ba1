"""Cross-task envelopes: bounds on the values of every policy over all tasks of a cell (docs/guarantees.md, section 2).

Three sources, strongest first:
- affine: transitions are affine in the parameter. A second-order expansion with a rigorous remainder covers each box.
- finite: the distribution has finitely many tasks. Each is a cell of its own, evaluated exactly.
- holdout / monte-carlo: anything that can be sampled and evaluated, exactly or by simulation. Bounds are taken over one
  sample and widened until they hold on a second, independent one (a conformal quantile).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import betaincinv

from surefoot.cmdp.distance import distance
from surefoot.cmdp.evaluate import state_values
from surefoot.cmdp.expansion import ROUNDING, box_values, reward_and_margin
from surefoot.cmdp.model import Floats, Units
from surefoot.cmdp.policy import TabularPolicy
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells, Source, TransitionModel
from surefoot.tasks.distribution import Finite
from surefoot.tasks.family import TaskDistribution
from surefoot.train.transition_model import affine_model, ball_model

# The transitions that `affine` promises may differ from those of the tasks by rounding only; the bounds allow for that.
AFFINE_TOLERANCE = 1e-12

# values(parameter, rng) -> lower, upper [P, 1+m, 1+S]: from the start distribution, then from each state
# (or [P, 1+m, 1] when only the former can be had); reward first, then margins.
Evaluator: TypeAlias = Callable[[Floats, np.random.Generator], tuple[Floats, Floats]]


def build_cells(
    tasks: TaskDistribution,
    policies: Sequence[TabularPolicy],
    *,
    seed: int,
    cells: int = 800,
    holdout: int = 1999,
    uncovered: float = 0.005,
) -> Cells:
    """The strongest envelopes that the family allows, for `policies` with the safe one first.

    Args:
        cells: how many at most (affine: boxes over the whole support; holdout: sampled tasks).
        holdout: size of the second sample, for families that are neither affine nor finite.
        uncovered: for those, the probability granted to tasks that break their cell's bounds.
    """
    if tasks.affine is not None:
        return affine_cells(tasks, policies, cells)
    if isinstance(tasks.distribution, Finite):
        return finite_cells(tasks, policies)
    rng = np.random.default_rng([seed, 2])
    return holdout_cells(
        tasks, exact_values(tasks, policies), rng, cells=cells, holdout=holdout, uncovered=uncovered, source="holdout"
    )


# ------------------------------------------------------------------------------------------------------------- affine


def affine_cells(tasks: TaskDistribution, policies: Sequence[TabularPolicy], cells: int) -> Cells:
    """A grid over the parameter box; boxes on which the safe policy is not surely feasible count as uncovered."""
    if tasks.affine is None:
        raise InvalidInput("affine must be given by the family for an expansion, got None")
    _check_affine(tasks, tasks.affine)
    low, high = _grid(tasks.distribution.support, cells)
    example = tasks.task((low[0] + high[0]) / 2)
    parts = [box_values(tasks.affine, example, policy, low, high) for policy in policies]
    lower, upper = (np.stack([part[side] for part in parts], axis=1) for side in (0, 1))
    feasible = (lower[:, 0, 1:, 0] >= 0).all(axis=1)
    mass = np.array([tasks.distribution.mass(a, b) for a, b in zip(low, high, strict=True)])
    # Boxes share their edges, so that the masses of a distribution with atoms may sum to more than 1.
    uncovered = min(1.0, math.fsum(mass[~feasible]))
    prior = mass[feasible] * ((1 - uncovered) / max(float(mass[feasible].sum()), 1e-300))
    outside = (low + high)[~feasible] / 2
    low, high, lower, upper = low[feasible], high[feasible], lower[feasible], upper[feasible]
    model = affine_model(tasks.affine, example, low, high) if len(low) else None
    return _cells(low, high, prior, lower, upper, "affine", uncovered, model, outside)


def _check_affine(tasks: TaskDistribution, affine: tuple[Floats, Floats]) -> None:
    """Refuse a family whose tasks, at its probes, are not what `affine` says; every bound rests on it."""
    probes = tasks.distribution.probes()
    first = tasks.task(probes[0])
    for parameter in probes:
        task = tasks.task(parameter)
        told = affine[0] + np.tensordot(parameter, affine[1], axes=1)
        error = float(np.abs(task.rows.toarray() - told.reshape(-1, task.n_states)).max())
        if error > AFFINE_TOLERANCE:
            raise InvalidInput(
                f"affine must give the transitions of every task (within {AFFINE_TOLERANCE:g}), "
                f"got a difference of {error:.3g} at {parameter.tolist()}"
            )
        for name in ("reward", "cost", "start"):
            if not np.array_equal(getattr(task, name), getattr(first, name)):
                raise InvalidInput(f"affine families must share one {name}, got another at {parameter.tolist()}")


def _grid(support: Floats, cells: int) -> tuple[Floats, Floats]:
    """Corners [J, d] of equal boxes, about `cells` of them, that fill the support [d, 2]."""
    per_axis = max(1, math.floor(cells ** (1 / len(support)) + 1e-9))
    edges = [np.linspace(a, b, per_axis + 1) for a, b in support]
    low = np.stack(np.meshgrid(*(edge[:-1] for edge in edges), indexing="ij"), axis=-1)
    high = np.stack(np.meshgrid(*(edge[1:] for edge in edges), indexing="ij"), axis=-1)
    return low.reshape(-1, len(support)), high.reshape(-1, len(support))


# ------------------------------------------------------------------------------------------------------------- finite


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
    slack = ROUNDING * (1 + np.abs(values))
    model = ball_model([tasks.task(point) for point in points], np.zeros(len(points))) if len(points) else None
    uncovered = max(0.0, 1 - float(prior.sum()))
    lower = values - slack
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # just found feasible
    return _cells(points, points, prior, lower, values + slack, "finite", uncovered, model)


# ------------------------------------------------------------------------------------------- holdout and Monte Carlo


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
) -> Cells:
    """Voronoi cells around sampled tasks, with bounds that a fresh task keeps with probability 1 - uncovered.

    The first sample builds cells and bounds, the second only chooses by how much they are widened, so that scores of
    the second sample and of the test task are exchangeable (Theorem 1b). A task on which the safe policy is infeasible
    has an infinite score: it counts as uncovered.

    Args:
        members: size of the first sample; its first `cells` tasks are the centres.
        error: probability that `values` is wrong for a task (`simulated_values`); it adds to what is uncovered.
    """
    rank = math.ceil((1 - uncovered) * (holdout + 1))
    if rank > holdout:
        raise InvalidInput(
            f"holdout must be at least {math.ceil(1 / uncovered) - 1} for uncovered={uncovered:g}, got {holdout}"
        )
    sample = tasks.sample(members or 4 * cells, rng)
    centres = np.unique(sample[:cells], axis=0)  # a distribution with atoms may draw one task twice
    spread = _ball_distance(tasks, centres) if source == "holdout" else _no_distance
    scale = np.ptp(tasks.distribution.support, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    tree = cKDTree(centres / scale)
    places = tree.query(sample / scale)[1]
    lower, upper, count = _base_bounds(sample, places, len(centres), values, rng)
    width = np.maximum((upper - lower).mean(axis=(0, 1)), ROUNDING)  # σ, [1+m, 1+S]
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
    widening = np.sort(scores)[rank - 1]
    if not np.isfinite(widening):
        supported = math.ceil(1e4 * (np.isinf(scores).sum() + 1) / (holdout + 1)) / 1e4
        raise InvalidInput(
            f"uncovered must be at least {supported:g}: the safe policy is infeasible on "
            f"{np.isinf(scores).sum()} of {holdout} sampled tasks, got {uncovered:g}; train with that and another seed"
        )
    lower, upper = lower - widening * width, upper + widening * width
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
    upper = np.maximum(upper, lower)
    model = None
    if source == "holdout":
        model = ball_model([tasks.task(centre) for centre in centres], radius + widening * radius_width)
    uncovered = min(1.0, uncovered + error)
    prior = (1 - uncovered) * count / count.sum()
    return _cells(centres, centres, prior, lower, upper, source, uncovered, model)


def exact_values(tasks: TaskDistribution, policies: Sequence[TabularPolicy]) -> Evaluator:
    """Exact values of tabular tasks: lower and upper coincide."""

    def values(parameter: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        task = tasks.task(parameter)
        per_policy = np.stack([state_values(task, policy.probabilities) for policy in policies])  # [P, 1+m, S]
        every = np.concatenate([(per_policy @ task.start)[:, :, None], per_policy], axis=2)
        return reward_and_margin(every, every, task.units)

    return values


def simulated_values(
    simulate: Callable[[Floats, int, int, np.random.Generator], tuple[Floats, Floats]],
    policies: int,
    units: Units,
    *,
    episodes: int,
    error: float,
    truncation: float,
) -> Evaluator:
    """Monte-Carlo values for tasks known only through a simulator, with Hoeffding intervals.

    Args:
        simulate: (parameter, policy index, episodes, rng) to discounted rewards [n] and costs [n, m].
        error: probability that any interval of one task fails; it adds to the uncovered probability (`holdout_cells`).
        truncation: γ^H of the simulated episodes.
    """
    constraints = len(units.budget)
    log = math.log(2 * policies * (1 + constraints) / error)
    # What an episode misses, by stopping early or by being cut off, makes 0 part of every range.
    ranges = np.stack([np.array(units.reward_value_range), *units.cost_value_range])
    spans = np.maximum(ranges[:, 1], 0.0) - np.minimum(ranges[:, 0], 0.0)
    radius = spans * (math.sqrt(log / (2 * episodes)) + truncation)

    def values(parameter: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        means = np.empty((policies, 1 + constraints, 1))
        for index in range(policies):
            reward, cost = simulate(parameter, index, episodes, rng)
            means[index, :, 0] = reward.mean(), *cost.mean(axis=0)
        return reward_and_margin(means - radius[:, None], means + radius[:, None], units)

    return values


def holdout_level(holdout: int, rank: int, error: float) -> float:
    """β' with P(Bin(m, β') ≤ m - k) = error: with probability 1 - error over the second sample, a fresh task breaks
    the bounds with probability at most β' (Theorem 1b, second guarantee)."""
    return float(betaincinv(holdout - rank + 1, rank, 1 - error))


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


def _ball_distance(tasks: TaskDistribution, centres: Floats) -> Callable[[Floats, int], float]:
    """d between the task of a parameter and the centre of a cell, for the total-variation balls (Theorem 3)."""
    middle = [tasks.task(centre) for centre in centres]
    return lambda parameter, j: distance(tasks.task(parameter), middle[j])


def _no_distance(parameter: Floats, j: int) -> float:
    return 0.0


def _score(values: tuple[Floats, Floats], lower: Floats, upper: Floats, width: Floats) -> float:
    """By how many widths the bounds of a cell must grow to hold the values of a task."""
    low, high = values
    if (low[0, 1:, 0] < 0).any():
        return math.inf
    return float(max(0.0, ((lower - low) / width).max(), ((high - upper) / width).max()))


# --------------------------------------------------------------------------------------------------------------- shared


def _cells(
    low: Floats,
    high: Floats,
    prior: Floats,
    lower: Floats,
    upper: Floats,
    source: Source,
    uncovered: float,
    model: TransitionModel | None,
    outside: Floats | None = None,
) -> Cells:
    by_start = lower.shape[-1] > 1
    return Cells(
        low,
        high,
        prior,
        np.ascontiguousarray(lower[..., 0]),
        np.ascontiguousarray(upper[..., 0]),
        np.ascontiguousarray(lower[..., 1:]) if by_start else None,
        np.ascontiguousarray(upper[..., 1:]) if by_start else None,
        source,
        uncovered,
        model,
        np.empty((0, low.shape[1])) if outside is None else outside,
    )

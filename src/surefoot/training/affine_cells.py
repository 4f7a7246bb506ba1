"""Cells of a family whose transitions are affine in the parameter: boxes, bounded by an expansion (Theorem 1a)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, Mask
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells
from surefoot.tabular.affine import affine_of_arrays
from surefoot.tabular.expansion import box_values
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.transition_classes import affine_model
from surefoot.tasks.distribution import Finite, ParameterDistribution
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.bounds import cells_of_bounds

# The transitions that `affine` promises may differ from those of the tasks by rounding only; the bounds allow for that.
AFFINE_TOLERANCE = 1e-12
# Sweeps that cut a box down to the parameters of tasks; each uses the last one's result.
CUTS = 3


def affine_cells(tasks: TaskDistribution, policies: Sequence[TabularPolicy], cells: int) -> Cells:
    """A grid over the parameters; boxes on which the safe policy is not surely feasible count as uncovered."""
    if tasks.affine is None:
        raise InvalidInput("affine must be given by the family for an expansion, got None")
    _check_affine(tasks, tasks.affine)
    grid = _grid(tasks.distribution.support, cells)
    low, high, possible = _around_tasks(tasks.affine, *grid)
    example = tasks.task(tasks.distribution.probes()[0])
    parts = [box_values(tasks.affine, example, policy, low[possible], high[possible]) for policy in policies]
    lower, upper = (np.stack([part[side] for part in parts], axis=1) for side in (0, 1))
    feasible = (lower[:, 0, 1:, 0] >= 0).all(axis=1)
    kept, outside = possible.copy(), possible.copy()
    kept[possible], outside[possible] = feasible, ~feasible
    mass = np.array([tasks.distribution.mass(a, b) for a, b in zip(*grid, strict=True)])
    uncovered = _uncovered(tasks.distribution, *grid, mass, kept)
    prior = mass[kept] * ((1 - uncovered) / max(float(mass[kept].sum()), 1e-300))
    model = None
    if kept.any():
        tables = affine_of_arrays(tasks.affine, example)
        model = affine_model(tables, example.payments, example.start, low[kept], high[kept])
    elsewhere = (low + high)[outside] / 2
    return cells_of_bounds(
        low[kept], high[kept], prior, lower[feasible], upper[feasible], "affine", uncovered, model, elsewhere
    )


def _check_affine(tasks: TaskDistribution, affine: tuple[Floats, Floats]) -> None:
    """Refuse a family whose tasks, at its probes, are not what `affine` says; every bound rests on it."""
    probes = tasks.distribution.probes()
    first = tasks.task(probes[0])
    width = np.ptp(tasks.distribution.support, axis=1)
    leaving = np.abs(affine[1].sum(axis=3)).max(axis=(1, 2)) * width
    if (leaving > AFFINE_TOLERANCE).any():
        k = int(np.argmax(leaving))
        raise InvalidInput(
            "affine must have slopes whose rows sum to 0, so that a parameter moves probability from one successor to "
            f"another, got rows of slope {k} that change by {leaving[k]:.3g} over the support; of weights that sum to "
            "1, one is no parameter of its own"
        )
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


def _around_tasks(affine: tuple[Floats, Floats], low: Floats, high: Floats) -> tuple[Floats, Floats, Mask]:
    """Boxes [J, d] that have a task at their centre, and which of the given boxes hold a task at all.

    The parameters of tasks need not fill a box: think of weights that sum to at most 1. Where the transitions at the
    centre are no probabilities, a box is cut down to where they may be; if its new centre is still not a task, it is
    replaced by one around a task, wide enough to hold all the tasks that the old one did.
    """
    forms = np.concatenate([affine[0][None], affine[1]]).reshape(1 + len(affine[1]), -1)
    base, *slopes = np.unique(forms[:, forms[1:].any(axis=0)], axis=1)
    slope = np.array(slopes).reshape(low.shape[1], -1)  # [d, F]
    low, high, possible = low.copy(), high.copy(), np.ones(len(low), dtype=bool)
    for j in range(len(low)):
        if _are_probabilities(base + (low[j] + high[j]) / 2 @ slope):
            continue
        a, b = _cut_down(base, slope, low[j], high[j])
        middle = _task_inside(base, slope, a, b) if (a <= b).all() else None
        possible[j] = middle is not None
        if middle is not None:
            half = np.maximum(b - middle, middle - a)
            low[j], high[j] = middle - half, middle + half
    return low, high, possible


def _are_probabilities(values: Floats) -> bool:
    """No entry is negative but for rounding; none can then exceed 1, since rows sum to 1 for every parameter."""
    return not values.size or float(values.min()) >= -ROW_SUM_ROUNDING


def _cut_down(base: Floats, slope: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """A smaller box [d] that holds all parameters of the box with base + θ·slope ≥ 0 [F], up to rounding; empty if low
    exceeds high."""
    for _ in range(CUTS):
        most = np.maximum(low[:, None] * slope, high[:, None] * slope)
        others = base + most.sum(axis=0) - most  # [d, F] the most that all other parameters can contribute
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = -others / slope
        low = np.maximum(low, np.max(np.where(slope > 0, edge, -np.inf), axis=1))
        high = np.minimum(high, np.min(np.where(slope < 0, edge, np.inf), axis=1))
        if (low > high).any():
            break
    return low, high


def _task_inside(base: Floats, slope: Floats, low: Floats, high: Floats) -> Floats | None:
    """The centre of a box if it is a task; else where the smallest of the transitions base + θ·slope [F] is largest."""
    centre: Floats = (low + high) / 2
    if _are_probabilities(base + centre @ slope):
        return centre
    corner, change = base + low @ slope, (high - low)[:, None] * slope
    # Maximise t subject to t ≤ corner + z·change for z in [0, 1]^d.
    found = linprog(
        np.append(np.zeros(len(low)), -1.0),
        A_ub=np.column_stack([-change.T, np.ones(len(base))]),
        b_ub=corner,
        bounds=[*[(0.0, 1.0)] * len(low), (None, None)],
    )
    if found.x is None:
        return None
    middle: Floats = low + found.x[:-1] * (high - low)
    return middle if (base + middle @ slope).min() >= 0 else None  # the program is solved up to its tolerance only


def _uncovered(distribution: ParameterDistribution, low: Floats, high: Floats, mass: Floats, kept: Mask) -> float:
    """Probability of a parameter in none of the boxes kept: exact for points. Otherwise what the other boxes weigh,
    which is more for a distribution with atoms, since boxes share their edges."""
    if not isinstance(distribution, Finite):
        return min(1.0, math.fsum(mass[~kept]))
    inside = np.zeros(len(distribution.points), dtype=bool)
    for a, b in zip(low[kept], high[kept], strict=True):
        inside |= ((distribution.points >= a) & (distribution.points <= b)).all(axis=1)
    return min(1.0, math.fsum(distribution.weights[~inside]))

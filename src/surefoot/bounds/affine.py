"""Cells of a family whose tables are affine in the parameter: boxes, bounded by an expansion (Theorems 1a and 1c)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, Integers, Mask
from surefoot.bounds.cells import Cells, cells_of_bounds
from surefoot.bounds.exact import first_states
from surefoot.errors import InvalidInput
from surefoot.progress import Progress, silent
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.expansion import box_values
from surefoot.tabular.linear_program import INFINITY, maximise
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.tables import Payments, Tables
from surefoot.tabular.transition_model import TransitionModel, affine_model
from surefoot.tasks.affine_detection import AFFINE_TOLERANCE, Affinity, affine_tables
from surefoot.tasks.distribution import Finite, ParameterDistribution
from surefoot.tasks.task_distribution import TaskDistribution

# Sweeps that cut a box down to the parameters of tasks; each uses the last one's result.
CUTS = 3
# Up to so many parameters a grid has as many cells along each; and on how many policies cuts are tried beyond.
SQUARE, TRIED = 2, 8


class BoxesTooWide(InvalidInput):
    """So many boxes are too wide for the expansion that other envelopes are better."""


def affine_cells(
    tasks: TaskDistribution,
    policies: Sequence[TabularPolicy | TimedPolicy],
    cells: int,
    uncovered: float = 1.0,
    show: Progress = silent,
    found: Affinity | None = None,
) -> Cells:
    """A grid over the parameters; boxes on which the safe policy is not surely feasible count as uncovered. `found` is
    what was found out of a family that does not declare that it is affine.

    Raises:
        BoxesTooWide: nothing can be said of the safe policy on boxes that weigh more than `uncovered`.
    """
    found = found or Affinity(None if tasks.affine is None else affine_tables(tasks))
    affine = found.tables
    if affine is None:
        raise InvalidInput("tasks must be affine in their parameter for an expansion, got a family that is not")
    _check_declared(tasks)
    grid = _grid(tasks.distribution.support, _parts(tasks, affine, policies, cells))
    mass = np.array([tasks.distribution.mass(a, b) for a, b in zip(*grid, strict=True)])
    low, high, possible = _around_tasks(affine, *grid)
    boxes = low[possible], high[possible]
    states = first_states(tasks)
    lower, upper = _bounds(tasks, affine, policies, boxes, states, (mass[possible], uncovered), show)
    feasible = (lower[:, 0, 1:, 0] >= 0).all(axis=1)
    kept, outside = possible.copy(), possible.copy()
    kept[possible], outside[possible] = feasible, ~feasible
    uncovered = min(1.0, _uncovered_mass(tasks.distribution, *grid, mass, kept) + found.doubt)
    prior = mass[kept] * ((1 - uncovered) / max(float(mass[kept].sum()), 1e-300))
    model = None
    if kept.any():
        model = affine_model(affine, *_common_payments_and_start(tasks), low[kept], high[kept])
    elsewhere = (low + high)[outside] / 2
    bounds = lower[feasible], upper[feasible]
    return cells_of_bounds(low[kept], high[kept], prior, *bounds, "affine", uncovered, model, elsewhere, states)


def boxes_of_tasks(
    tasks: TaskDistribution, affine: AffineTables, low: Floats, high: Floats
) -> tuple[Floats, Floats, TransitionModel]:
    """Boxes [J, d] that hold all the tasks of given ones and have one at their centre, and their transitions."""
    least, most = tasks.distribution.support.T
    low, high, possible = _around_tasks(affine, np.maximum(low, least), np.minimum(high, most))
    if not possible.all():
        raise InvalidInput(f"boxes must hold tasks, got {int((~possible).sum())} without any")
    return low, high, affine_model(affine, *_common_payments_and_start(tasks), low, high)


def _bounds(
    tasks: TaskDistribution,
    affine: AffineTables,
    policies: Sequence[TabularPolicy | TimedPolicy],
    boxes: tuple[Floats, Floats],
    states: Integers | None,
    allowed: tuple[Floats, float],
    show: Progress,
) -> tuple[Floats, Floats]:
    """Lower and upper [J, P, 1+m, 1+F]. Policies that are the same are expanded once; boxes too wide for a policy get
    the bounds of any policy."""
    example = tasks.task(tasks.distribution.probes()[0])
    done: dict[bytes, tuple[Floats, Floats]] = {}
    parts = []
    for number, policy in enumerate(policies):
        show("bounding the values of every policy over all tasks", number, len(policies))
        key = policy.probabilities.tobytes()
        if key not in done:
            done[key] = box_values(affine, example, policy, *boxes, states)
        parts.append(done[key])
        if number == 0:
            _check_width(done[key][0], *allowed)
    lower, upper = (np.stack([part[side] for part in parts], axis=1) for side in (0, 1))
    wide = np.isinf(lower)
    if wide.any():
        possible = example.units.possible_values(ends=False)
        least, most = (np.broadcast_to(side[:, None], lower.shape) for side in possible)
        lower[wide], upper[wide] = least[wide], most[wide]
    return lower, upper


def _common_payments_and_start(tasks: TaskDistribution) -> tuple[Payments | None, Floats]:
    """What a step pays, if that is the same in all tasks at the probes: else only transitions tell tasks apart. And the
    start distribution."""
    first, *others = (tasks.task(parameter) for parameter in tasks.distribution.probes())
    same = all(other.payments.same_as(first.payments) for other in others)
    return first.payments if same else None, first.start


def _check_width(lower: Floats, mass: Floats, uncovered: float) -> None:
    """What is known of the safe policy's values [J, 1+m, 1+F] is known of nearly all tasks."""
    wide = np.isinf(lower[:, 0, 0])
    if float(mass[wide].sum()) > uncovered:
        raise BoxesTooWide(
            f"{int(wide.sum())} of {len(wide)} boxes over the parameters are too wide for bounds by expansion: bounds "
            "from held-out tasks are taken instead (more cells, fewer parameters or a smaller discount would help)"
        )


def _check_declared(tasks: TaskDistribution) -> None:
    """Refuse a family whose tasks, at its probes, are not what it declares by `affine`; every bound rests on it."""
    if tasks.affine is None:
        return
    affine, probes = tasks.affine, tasks.distribution.probes()
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


def _parts(
    tasks: TaskDistribution, affine: AffineTables, policies: Sequence[TabularPolicy | TimedPolicy], cells: int
) -> Integers:
    """[d] into how many parts each parameter is cut, for at most `cells` boxes: equally many up to two parameters. Of
    more there are too few for that, and each cut goes where it makes the bounds of a box in the middle sharpest, for
    what it costs in boxes; along all alike as long as boxes are too wide for any bounds."""
    distribution = tasks.distribution
    extent, dimension = np.ptp(distribution.support, axis=1), len(distribution.support)
    if dimension <= SQUARE:
        return np.full(dimension, max(1, math.floor(cells ** (1 / dimension) + 1e-9)))
    probes = distribution.probes()
    example, middle = tasks.task(probes[0]), probes.mean(axis=0)  # of tasks, and so a task
    some = policies[:: math.ceil(len(policies) / TRIED)]
    parts = np.ones(dimension, dtype=np.int64)
    while True:
        finer = parts + np.eye(dimension, dtype=np.int64)  # [d, d]
        affordable = np.flatnonzero((np.prod(finer, axis=1) <= cells) & (extent > 0))
        if not affordable.size:
            return parts
        width = _widths(affine, example, some, middle, extent / np.stack([parts, *finer[affordable]]))
        if np.isfinite(width[0]):
            gain = (width[0] - width[1:]) / np.log1p(1 / parts[affordable])
        else:
            gain = np.where(np.isfinite(width[1:]), 1.0 / np.maximum(width[1:], 1e-300), -1.0 * parts[affordable])
        parts[affordable[np.argmax(gain)]] += 1


def _widths(
    affine: AffineTables,
    example: Tables,
    policies: Sequence[TabularPolicy | TimedPolicy],
    middle: Floats,
    extent: Floats,
) -> Floats:
    """[n] how far apart the bounds on margins are, over boxes of extent [n, d] in the middle, summed over policies."""
    widths = np.zeros(len(extent))
    for policy in policies:
        nowhere = np.empty(0, dtype=np.int64)
        lower, upper = box_values(affine, example, policy, middle - extent / 2, middle + extent / 2, nowhere)
        widths += example.units.unit_margin(upper[:, 1:, 0] - lower[:, 1:, 0]).max(axis=1)
    return widths


def _grid(support: Floats, parts: Integers) -> tuple[Floats, Floats]:
    """Corners [J, d] of equal boxes that fill the support [d, 2], so many along each parameter [d]."""
    edges = [np.linspace(a, b, number + 1) for (a, b), number in zip(support, parts.tolist(), strict=True)]
    low = np.stack(np.meshgrid(*(edge[:-1] for edge in edges), indexing="ij"), axis=-1)
    high = np.stack(np.meshgrid(*(edge[1:] for edge in edges), indexing="ij"), axis=-1)
    return low.reshape(-1, len(support)), high.reshape(-1, len(support))


def _around_tasks(affine: AffineTables, low: Floats, high: Floats) -> tuple[Floats, Floats, Mask]:
    """Boxes [J, d] that have a task at their centre, and which of the given boxes hold a task at all.

    The parameters of tasks need not fill a box: think of weights that sum to at most 1. Where the transitions at the
    centre are no probabilities, a box is cut down to where they may be; if its new centre is still not a task, it is
    replaced by one around a task, wide enough to hold all the tasks that the old one did.
    """
    forms = np.concatenate([affine.base[None], affine.slope])
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
    optimum = maximise(
        np.append(np.zeros(len(low)), 1.0),
        np.column_stack([-change.T, np.ones(len(base))]),
        np.full(len(base), -INFINITY),
        corner,
        column_lower=np.append(np.zeros(len(low)), -INFINITY),
        column_upper=np.append(np.ones(len(low)), INFINITY),
    )
    if optimum is None:
        return None
    middle: Floats = low + optimum[0][:-1] * (high - low)
    return middle if (base + middle @ slope).min() >= 0 else None  # the program is solved up to its tolerance only


def _uncovered_mass(distribution: ParameterDistribution, low: Floats, high: Floats, mass: Floats, kept: Mask) -> float:
    """Probability of a parameter in none of the boxes kept: exact for points. Otherwise what the other boxes weigh,
    which is more for a distribution with atoms, since boxes share their edges."""
    if not isinstance(distribution, Finite):
        return min(1.0, math.fsum(mass[~kept]))
    inside = np.zeros(len(distribution.points), dtype=bool)
    for a, b in zip(low[kept], high[kept], strict=True):
        inside |= ((distribution.points >= a) & (distribution.points <= b)).all(axis=1)
    return min(1.0, math.fsum(distribution.weights[~inside]))

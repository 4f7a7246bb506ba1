"""Cells made of single tasks: all tasks of a finite distribution, or sampled ones with bounds that were widened until
they held on a second, independent sample (Theorem 1b)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.estimates import rounds
from surefoot.policyset.cells import Cells, Source
from surefoot.policyset.readings import Readings
from surefoot.progress import Progress, silent
from surefoot.tabular.expansion import ROUNDING, rounding
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_classes import ball_model
from surefoot.tabular.transition_model import TransitionModel
from surefoot.tasks.affine_detection import affine_tables, detection_doubt
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.affine_cells import boxes_of_tasks
from surefoot.training.bounds import Evaluator, cells_of_bounds, evaluator, first_states, is_timeless_table
from surefoot.training.cell_scores import Base, Measure, Partition, base_bounds, read, simulated
from surefoot.training.settings import DEFAULT, Settled
from surefoot.training.simulation import (
    FINITE_STAGE,
    HOLDOUT_STAGE,
    SAMPLE_STAGE,
    Simulated,
    Simulation,
)

# The first sample holds this many tasks per cell.
MEMBERS = 4

# How what is granted to a draw of held-out tasks is spent: on bounds from all of them; on bounds from those on which
# the safe policy is feasible, used when too many are not; and, then, on the count of the latter being misleading.
ALL_SHARE, FEASIBLE_SHARE, DOUBT_SHARE = 0.6, 0.3, 0.1


def finite_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    settings: Settled | None = None,
    simulation: Simulation | None = None,
) -> Cells:
    """One cell per task of a finite distribution, without those on which the safe policy is not shown to be feasible.

    Simulated intervals are wrong for each single task with a probability that is granted to them, hence for the one at
    hand as well; that all of them are right at once is not needed.
    """
    distribution = tasks.distribution
    if not isinstance(distribution, Finite):
        raise InvalidInput(f"distribution must be Finite, got {type(distribution).__name__}")
    settings = settings or DEFAULT.settled(tasks.example)
    members = [tasks.task(point) for point in distribution.points]
    if simulation is None:
        values = evaluator(tasks, policies)
        found = [Simulated(*values(task)) for task in members]
    else:
        found = list(simulation.of_all("simulating every task", FINITE_STAGE, distribution.points))
    lower, upper = np.stack([each.lower for each in found]), np.stack([each.upper for each in found])
    feasible = (lower[:, 0, 1:, 0] >= 0).all(axis=1)
    if settings.simulated and not feasible.any():
        raise InvalidInput(
            "episodes must be enough to show that the safe policy is feasible on at least one task, got "
            f"{settings.episodes}; simulate more of them or take a safer safe policy (xi)"
        )
    points, prior, lower, upper = (each[feasible] for each in (distribution.points, distribution.weights, lower, upper))
    upper = np.maximum(upper, lower)  # intersections of wrong intervals may be empty
    seen = np.array([found[k].counts for k in np.flatnonzero(feasible)])
    lower, upper, readings = _apart(lower, upper, tasks, simulation, seen)
    members = [members[k] for k in np.flatnonzero(feasible)]
    sizes = np.maximum(np.abs(lower), np.abs(upper)).max(axis=-1)  # [n, P, 1+m]
    slack = np.array([_allowance(size, task) for size, task in zip(sizes, members, strict=True)]).reshape(sizes.shape)
    lower, upper = lower - slack[..., None], upper + slack[..., None]
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # just found feasible
    left_out = max(0.0, 1 - float(prior.sum()))
    uncovered = min(1.0, left_out + settings.error)
    prior = prior * ((1 - uncovered) / max(1 - left_out, 1e-300))
    model = _balls(members, np.zeros(len(members)))
    source: Source = "monte-carlo" if settings.simulated else "finite"
    states = first_states(tasks)
    return cells_of_bounds(
        points, points, prior, lower, upper, source, uncovered, model, states=states, readings=readings
    )


def _apart(
    lower: Floats, upper: Floats, tasks: TaskDistribution, simulation: Simulation | None, seen: Floats | None
) -> tuple[Floats, Floats, Readings | None]:
    """Bounds [J, P, 1+m, ...] on values, and what is known of signals, from bounds [J, P, 1+m+q, 1] on both and the
    bins [J, P, k, L] in which the numbers of episodes were."""
    if simulation is None or simulation.lesson is None or seen is None:
        return lower, upper, None
    values = 1 + len(tasks.units.budget)
    readings = simulation.lesson.readings(lower[:, :, values:, 0], upper[:, :, values:, 0], seen)
    return lower[:, :, :values], upper[:, :, :values], readings


def _allowance(size: Floats, task: Any) -> Floats:
    """[P, 1+m] for the rounding of values of that size: from the tables, or from the ranges where there are none."""
    if isinstance(task, TabularCMDP):
        return rounding(size, task)
    units = task.units
    allowance: Floats = ROUNDING * (size + np.abs(units.reachable).max(axis=1) + np.abs(np.append(0.0, units.budget)))
    return allowance


def _balls(centres: Sequence[Any], radius: Floats) -> TransitionModel | None:
    """The transitions of cells around tables without a horizon; None for any other tasks."""
    return ball_model(centres, radius) if centres and is_timeless_table(centres[0]) else None


# ------------------------------------------------------------------------------------------------------- held-out tasks


def holdout_cells(
    tasks: TaskDistribution,
    values: Evaluator | Simulation,
    rng: np.random.Generator,
    settings: Settled,
    show: Progress = silent,
) -> Cells:
    """Voronoi cells around sampled tasks, with bounds that a fresh task keeps unless it is among the uncovered: on its
    values, and on its transitions: in a ball around a table, or where these are affine in the parameter, in a box.

    The first sample builds cells and bounds. The second only chooses by how much they are widened, so that its scores
    and that of the test task are exchangeable (Theorem 1b). A task on which the safe policy is not shown to be feasible
    has an infinite score. Where there are too many of these to be among the uncovered, their probability comes on top.
    """
    _check_holdout(settings)
    sample = tasks.sample(MEMBERS * settings.cells, rng)
    affine = None if isinstance(values, Simulation) else affine_tables(tasks)
    centres = np.unique(sample[: settings.cells], axis=0)  # one task may be drawn twice
    partition = Partition(tasks, centres, affine is not None)
    measure = partial(simulated, values) if isinstance(values, Simulation) else partial(read, values, show)
    base = base_bounds(partition, measure(partition, sample, SAMPLE_STAGE), settings.simulated)
    second = tasks.sample(settings.holdout, rng)
    scores = _scores(partition, base, second, measure, settings)
    widening, infeasible = _widening(scores, settings.granted_seen)
    lower, upper = base.lower - widening * base.width, base.upper + widening * base.width
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
    upper = np.maximum(upper, lower)
    simulation = values if isinstance(values, Simulation) else None
    lower, upper, readings = _apart(lower, upper, tasks, simulation, base.seen)
    nearest, farthest = base.nearest - widening * base.extent, base.farthest + widening * base.extent
    low, high, model = centres, centres, None
    uncovered = settings.uncovered + infeasible / settings.seen
    if affine is not None:
        low, high, model = boxes_of_tasks(tasks, affine, nearest, farthest)
        uncovered += detection_doubt(tasks)
    elif partition.tables:
        model = ball_model(partition.tables, farthest[:, 0])
    uncovered = min(1.0, uncovered)
    prior = (1 - uncovered) * base.count / base.count.sum()
    source: Source = "monte-carlo" if settings.simulated else "holdout"
    states = first_states(tasks)
    return cells_of_bounds(low, high, prior, lower, upper, source, uncovered, model, states=states, readings=readings)


def sampled_tasks(settings: Settled) -> int:
    """How many tasks are drawn for `holdout_cells`."""
    return MEMBERS * settings.cells + settings.holdout


def _check_holdout(settings: Settled) -> None:
    needed = 1 / (ALL_SHARE * settings.granted_seen) - 1
    if settings.holdout < needed:
        raise InvalidInput(
            f"holdout must be at least {math.ceil(needed)} for uncovered={settings.uncovered:g} in "
            f"attempt {settings.attempt}, got {settings.holdout}"
        )


def _scores(partition: Partition, base: Base, second: Floats, measure: Measure, settings: Settled) -> Floats:
    """[n] by how much each held-out task asks the bounds to be widened.

    One group after the other: those that ask for less than the widening is sure to be by then need not be known
    exactly, and are not simulated any further. The widening is the same as if they were (docs/guarantees.md, 2.4).
    """
    scores: list[float] = []
    for size in rounds(len(second)):
        wanted = partial(base.fits, level=_sure_widening(np.array(scores), len(second), settings.granted_seen))
        group = slice(len(scores), len(scores) + size)
        scores += [base.score(found) for found in measure(partition, second, HOLDOUT_STAGE, wanted, group)]
    return np.array(scores)


def _sure_widening(scores: Floats, holdout: int, granted: float) -> float:
    """What `_widening` will be at least when all of the scores are known: as many finite ones are as large as may
    exceed it."""
    exceeding = holdout + 1 - _rank(holdout, ALL_SHARE * granted)
    finite = np.sort(scores[np.isfinite(scores)])
    return float(finite[-exceeding]) if len(finite) >= exceeding else 0.0


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
    rank = _rank(len(scores), level)
    if rank > len(scores):
        raise InvalidInput(
            f"holdout must leave at least {math.ceil(1 / level) - 1} tasks on which the safe policy is feasible, got "
            f"{len(scores)}; take a safer safe policy (xi), more held-out tasks or a larger uncovered, and where tasks "
            "are simulated more episodes. A new draw is another attempt, to be declared and paid for as such"
        )
    return float(np.sort(scores)[rank - 1])


def _rank(count: int, level: float) -> int:
    """The k for which the k-th smallest of `count` scores is exceeded by a further one with probability ≤ `level`."""
    return math.ceil((1 - level) * (count + 1))

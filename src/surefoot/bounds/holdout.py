"""Cells made of single tasks: all tasks of a finite distribution, or sampled ones with bounds that were widened until
they held on a second, independent sample (Theorem 1b)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.affine import boxes_of_tasks
from surefoot.bounds.cell_scores import Partition, base_bounds, read
from surefoot.bounds.cells import Cells, Source
from surefoot.bounds.conformal import check_holdout, widening_of
from surefoot.bounds.exact import Evaluator, cells_of_bounds, evaluator, first_states
from surefoot.bounds.readings import Readings
from surefoot.bounds.settings import DEFAULT, Settled
from surefoot.bounds.simulation import (
    FINITE_STAGE,
    Simulated,
    Simulation,
)
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.progress import Progress, silent
from surefoot.tabular.expansion import ROUNDING, rounding
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_classes import ball_model
from surefoot.tabular.transition_model import TransitionModel
from surefoot.tasks.affine_detection import Affinity
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

# The first sample holds this many tasks per cell.
MEMBERS = 4


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
            f"{settings.episodes}; simulate more of them or take a safer safe policy (xi)",
            argument="episodes",
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
    """The transitions of cells around tables; None for any other tasks."""
    return ball_model(centres, radius) if centres and isinstance(centres[0], TabularCMDP) else None


# ------------------------------------------------------------------------------------------------------- held-out tasks


def holdout_cells(
    tasks: TaskDistribution,
    values: Evaluator,
    rng: np.random.Generator,
    settings: Settled,
    found: Affinity,
    show: Progress = silent,
) -> Cells:
    """Voronoi cells around sampled tasks that can be read, with bounds that a fresh task keeps unless it is among the
    uncovered: on its values, and on its transitions: in a ball around a table, or where these were found to be affine
    in the parameter, in a box.

    The first sample builds cells and bounds. The second only chooses by how much they are widened, so that its scores
    and that of the test task are exchangeable (Theorem 1b). A task on which the safe policy is infeasible has an
    infinite score. Where there are too many of these to be among the uncovered, their probability comes on top.
    """
    check_holdout(settings)
    sample = tasks.sample(MEMBERS * settings.cells, rng)
    centres = np.unique(sample[: settings.cells], axis=0)  # one task may be drawn twice
    partition = Partition(tasks, centres, found.tables is not None)
    base = base_bounds(partition, read(values, show, "the tasks that cells are made of", partition, sample))
    second = tasks.sample(settings.holdout, rng)
    scores = np.array([base.score(found) for found in read(values, show, "held-out tasks", partition, second)])
    widening, infeasible = widening_of(scores, settings.granted_seen)
    lower, upper = base.lower - widening * base.width, base.upper + widening * base.width
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # covered tasks are those where π_s is feasible
    upper = np.maximum(upper, lower)
    nearest, farthest = base.nearest - widening * base.extent, base.farthest + widening * base.extent
    low, high, model = centres, centres, None
    if found.tables is not None:
        low, high, model = boxes_of_tasks(tasks, found.tables, nearest, farthest)
    elif partition.tables:
        model = ball_model(partition.tables, farthest[:, 0])
    uncovered = min(1.0, settings.uncovered + infeasible + found.doubt)
    prior = (1 - uncovered) * base.count / base.count.sum()
    states = first_states(tasks)
    return cells_of_bounds(low, high, prior, lower, upper, "holdout", uncovered, model, states=states)

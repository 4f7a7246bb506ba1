"""Exact values of the policies on a task that can be read, as bounds that coincide; and the cells of a finite
distribution: one for each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Cells, Source, cells_of_bounds
from surefoot.bounds.settings import DEFAULT, ResolvedBounds
from surefoot.bounds.simulation import Simulation, TaskBounds
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import timed_values_of_each, values_of_each
from surefoot.tabular.expansion import ROUNDING, reward_and_margin, rounding
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.transition_model import ball_model
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

# values(task) -> lower, upper [P, 1+m, 1+F]: from the start distribution, then from each first state
# (or [P, 1+m, 1] when only the former can be had); reward first, then margins.
Evaluator: TypeAlias = Callable[[Any], tuple[Floats, Floats]]

TABLES = (TabularPolicy, TimedPolicy)


def evaluator(tasks: TaskDistribution, policies: Sequence[Policy]) -> Evaluator:
    """The most that readable tasks of a family tell of the values of policies."""
    tables = expandable_tables(tasks.example, policies)
    return readable_evaluator(policies) if tables is None else table_evaluator(tables, first_states(tasks))


def expandable_tables(example: Task, policies: Sequence[Policy]) -> list[TabularPolicy | TimedPolicy] | None:
    """The policies, if they and the task are tables, and look at the clock only where there is a horizon: values from
    all first states then come at once, also over boxes."""
    if not isinstance(example, TabularCMDP):
        return None
    timeless = example.units.horizon is None
    tables = [policy for policy in policies if isinstance(policy, TabularPolicy if timeless else TABLES)]
    return tables if len(tables) == len(policies) else None


@lru_cache(maxsize=16)
def first_states(tasks: TaskDistribution) -> Integers | None:
    """The states that episodes begin in, in at least one of the tasks at the probes; None if that is all of them, or
    for tasks without states.

    Bounds per first state are valid for whichever states they are made. Of any other state, should an episode begin
    there, nothing is claimed.
    """
    if not isinstance(tasks.example, TabularCMDP):
        return None
    possible = np.any([tasks.task(parameter).start for parameter in tasks.distribution.probes()], axis=0)
    return None if possible.all() else np.flatnonzero(possible)


def table_evaluator(policies: Sequence[TabularPolicy | TimedPolicy], states: Integers | None = None) -> Evaluator:
    """Exact values of tables, also from each of the first states [F], by default all: lower and upper coincide.
    Policies that are the same are evaluated once."""
    kinds: dict[bytes, int] = {}
    which = [kinds.setdefault(policy.probabilities.tobytes(), len(kinds)) for policy in policies]
    different = [policies[which.index(k)] for k in range(len(kinds))]

    def values(task: TabularCMDP) -> tuple[Floats, Floats]:
        if task.units.horizon is None:
            per_policy = values_of_each(task, np.stack([policy.probabilities for policy in different]))
        else:
            shape = (task.n_states, task.n_actions)
            per_policy = timed_values_of_each(task, [as_tables(policy, shape) for policy in different])
        picked = per_policy if states is None else per_policy[:, :, states]
        every = np.concatenate([(per_policy @ task.start)[:, :, None], picked], axis=2)[which]
        return reward_and_margin(every, every, task.units)

    return values


def readable_evaluator(policies: Sequence[Policy]) -> Evaluator:
    """Exact values of readable tasks: lower and upper coincide."""

    def values(task: ReadableTask) -> tuple[Floats, Floats]:
        found = [task.values(policy) for policy in policies]
        every = np.array([[value.reward, *value.margin] for value in found])[:, :, None]
        return every, every

    return values


# -------------------------------------------------------------------------------------------------------- finite cells


def finite_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    settings: ResolvedBounds | None = None,
    simulation: Simulation | None = None,
) -> Cells:
    """One cell per task of a finite distribution, without those on which the safe policy is not shown to be feasible.

    Simulated intervals are wrong for each single task with probability at most settings.error, hence for the one at
    hand as well; that all of them are right at once is not needed.
    """
    distribution = tasks.distribution
    if not isinstance(distribution, Finite):
        raise InvalidInput(f"distribution must be Finite, got {type(distribution).__name__}")
    settings = settings or DEFAULT.resolve(tasks.example)
    members = [tasks.task(point) for point in distribution.points]
    if simulation is None:
        evaluate = evaluator(tasks, policies)
        found = [TaskBounds(*evaluate(task)) for task in members]
    else:
        found = list(simulation.bound_all(distribution.points))
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
    readings = None
    if simulation is not None and simulation.trial.signals is not None:
        counts = np.array([found[k].counts for k in np.flatnonzero(feasible)])
        values = [1 + len(tasks.units.budget)]
        (lower, least), (upper, most) = np.split(lower, values, axis=2), np.split(upper, values, axis=2)
        readings = simulation.trial.signals.readings(least[..., 0], most[..., 0], counts)
    members = [members[k] for k in np.flatnonzero(feasible)]
    sizes = np.maximum(np.abs(lower), np.abs(upper)).max(axis=-1)  # [n, P, 1+m]
    slack = np.array([_slack(size, task) for size, task in zip(sizes, members, strict=True)]).reshape(sizes.shape)
    lower, upper = lower - slack[..., None], upper + slack[..., None]
    lower[:, 0, 1:, 0] = np.maximum(lower[:, 0, 1:, 0], 0.0)  # just found feasible
    left_out = max(0.0, 1 - float(prior.sum()))
    uncovered = min(1.0, left_out + settings.error)
    prior = prior * ((1 - uncovered) / max(1 - left_out, 1e-300))
    tabular = members and isinstance(members[0], TabularCMDP)
    model = ball_model(members, np.zeros(len(members))) if tabular else None
    source: Source = "monte-carlo" if settings.simulated else "finite"
    states = first_states(tasks)
    return cells_of_bounds(
        points, points, prior, lower, upper, source, uncovered, model, states=states, readings=readings
    )


def _slack(size: Floats, task: Any) -> Floats:
    """[P, 1+m] for the rounding of values of that size: from the tables, or from the ranges where there are none."""
    if isinstance(task, TabularCMDP):
        return rounding(size, task)
    units = task.units
    allowance: Floats = ROUNDING * (size + np.abs(units.reachable).max(axis=1) + np.abs(np.append(0.0, units.budget)))
    return allowance

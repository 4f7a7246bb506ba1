"""Values of the policies on a task that can be read, as bounds that coincide; and cells made of bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Cells, Source
from surefoot.bounds.readings import Readings
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.tabular.evaluate import timed_values_of_each, values_of_each
from surefoot.tabular.expansion import reward_and_margin
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.transition_model import TransitionModel
from surefoot.tasks.task_distribution import TaskDistribution

# values(task) -> lower, upper [P, 1+m, 1+F]: from the start distribution, then from each first state
# (or [P, 1+m, 1] when only the former can be had); reward first, then margins.
Evaluator: TypeAlias = Callable[[Any], tuple[Floats, Floats]]

TABLES = (TabularPolicy, TimedPolicy)


def evaluator(tasks: TaskDistribution, policies: Sequence[Policy]) -> Evaluator:
    """The most that readable tasks of a family tell of the values of policies."""
    tables = expandable_tables(tasks.example, policies)
    return exact_values(policies) if tables is None else state_by_state(tables, first_states(tasks))


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


def state_by_state(policies: Sequence[TabularPolicy | TimedPolicy], states: Integers | None = None) -> Evaluator:
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


def exact_values(policies: Sequence[Policy]) -> Evaluator:
    """Exact values of readable tasks: lower and upper coincide."""

    def values(task: ReadableTask) -> tuple[Floats, Floats]:
        found = [task.values(policy) for policy in policies]
        every = np.array([[value.reward, *value.margin] for value in found])[:, :, None]
        return every, every

    return values


def cells_of_bounds(
    low: Floats,
    high: Floats,
    prior: Floats,
    lower: Floats,
    upper: Floats,
    source: Source,
    uncovered: float,
    model: TransitionModel | None,
    outside: Floats | None = None,
    states: Integers | None = None,
    readings: Readings | None = None,
) -> Cells:
    """Cells from bounds [J, P, 1+m, 1+F] or [J, P, 1+m, 1], the start distribution first, then the first `states`."""
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
        states if by_start else None,
        readings,
    )

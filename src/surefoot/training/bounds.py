"""Values of the policies on a task that can be read, as bounds that coincide; and cells made of bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.policyset.cells import Cells, Source
from surefoot.tabular.evaluate import state_values
from surefoot.tabular.expansion import reward_and_margin
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.transition_model import TransitionModel

# values(task) -> lower, upper [P, 1+m, 1+S]: from the start distribution, then from each state
# (or [P, 1+m, 1] when only the former can be had); reward first, then margins.
Evaluator: TypeAlias = Callable[[Any], tuple[Floats, Floats]]


def evaluator(example: Task, policies: Sequence[Policy]) -> Evaluator:
    """The most that readable tasks like `example` tell of the values of policies."""
    tables = stationary_tables(example, policies)
    return exact_values(policies) if tables is None else state_by_state(tables)


def stationary_tables(example: Task, policies: Sequence[Policy]) -> list[TabularPolicy] | None:
    """The policies, if they and the task are tables and nothing depends on the clock: values then solve one linear
    system for all first states."""
    tables = [policy for policy in policies if isinstance(policy, TabularPolicy)]
    return tables if is_timeless_table(example) and len(tables) == len(policies) else None


def is_timeless_table(task: Task) -> bool:
    """What transition models are for."""
    return isinstance(task, TabularCMDP) and task.units.horizon is None


def state_by_state(policies: Sequence[TabularPolicy]) -> Evaluator:
    """Exact values of tables without a horizon, also from every state: lower and upper coincide."""

    def values(task: TabularCMDP) -> tuple[Floats, Floats]:
        per_policy = np.stack([state_values(task, policy.probabilities) for policy in policies])  # [P, 1+m, S]
        every = np.concatenate([(per_policy @ task.start)[:, :, None], per_policy], axis=2)
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
) -> Cells:
    """Cells from bounds [J, P, 1+m, 1+S] or [J, P, 1+m, 1], the start distribution first."""
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

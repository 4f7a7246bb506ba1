"""Oracles that read tabular tasks: nothing is estimated, so they keep their promises with certainty (δ unused)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.oracles.interface import OptimalOracle, Oracles, PolicyValues
from surefoot.oracles.policy_gradient import worst_task_then_gradient
from surefoot.tabular.distance import distance
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import LAGRANGIAN_FROM, OccupancyLP, solve
from surefoot.tasks.task_distribution import TaskDistribution


def exact_oracles(tasks: TaskDistribution) -> Oracles:
    """The default oracles of a tabular family: compare parameters if that is exact, solve by linear programs."""
    if not isinstance(tasks.example, TabularCMDP):
        raise InvalidInput(
            "oracles must be given for tasks that are not tables: oracles=Oracles(check, optimal, feasible), see "
            f"surefoot.oracles.interface, got none for tasks of type {type(tasks.example).__name__}"
        )
    safe_task = None if tasks.safe_parameter is None else tasks.task(tasks.safe_parameter)
    return Oracles(
        check=check_by_enumeration if tasks.coordinates is None else ParameterDistance(tasks.coordinates),
        optimal=linear_program(),
        feasible=worst_task_then_gradient(safe_task),
    )


def check_by_enumeration(
    first: TabularCMDP, second: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator
) -> bool:
    """O_c: d(first, second) ≤ ε, computed from every entry of the two tasks."""
    return distance(first, second) <= epsilon


@dataclass(frozen=True)
class ParameterDistance:
    """O_c for families whose parameters tell the distance of their tasks: it compares parameters, not tasks.

    The training phase looks for this type. It then builds no task in order to compare it, and covers the points
    `coordinates(parameters)` in the maximum norm, which gives the centres that calling this oracle on all N² pairs of
    parameters would give.

    Attributes:
        coordinates: parameters [n, d] to points [n, d'] whose maximum-norm differences are the paper's distance d.
    """

    coordinates: Callable[[Floats], Floats]

    def __call__(self, first: Floats, second: Floats, epsilon: float, delta: float, rng: np.random.Generator) -> bool:
        """Whether the tasks of the parameters first [d] and second [d] are within ε of each other."""
        points = self.coordinates(np.stack([first, second]))
        return float(np.abs(points[0] - points[1]).max()) <= epsilon


def linear_program() -> OptimalOracle:
    """O_l by the occupancy linear program: optimal and feasible up to the solver's tolerance, whatever ε.

    One program is kept from call to call, because neighbouring tasks share their optimal basis more often than not.
    Tasks so large that `solve` has a faster way, and those with a horizon, are left to it.
    """
    program = OccupancyLP()

    def optimal(task: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
        another_way = task.n_states * task.n_actions >= LAGRANGIAN_FROM or task.units.horizon is not None
        solution = solve(task) if another_way else program.solve(task)
        return PolicyValues(solution.policy, solution.values.reward, solution.values.margin)

    return optimal

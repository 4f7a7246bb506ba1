"""Oracles that read tabular tasks: nothing is estimated, so they keep their promises with certainty (δ unused)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.errors import InvalidInput
from surefoot.oracles.interface import OptimalOracle, Oracles, PolicyValues
from surefoot.oracles.policy_gradient import worst_task_then_gradient
from surefoot.tabular.distance import Numbers, affine_distance, batch_distance, distance, numbers
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import LAGRANGIAN_FROM, OccupancyLP, solve
from surefoot.tasks.affine_detection import affine_tables
from surefoot.tasks.task_distribution import TaskDistribution

# Coordinates are compared with the true distance at so many of a family's probes, and may miss it by rounding.
COMPARED, COORDINATE_TOLERANCE = 100, 1e-9


def exact_oracles(tasks: TaskDistribution) -> Oracles:
    """The default oracles of a tabular family: compare parameters if that is exact, solve by linear programs."""
    if not isinstance(tasks.example, TabularCMDP):
        raise InvalidInput(
            "oracles must be given for tasks that are not tables: oracles=Oracles(check, optimal, feasible), see "
            f"surefoot.oracles.interface, got none for tasks of type {type(tasks.example).__name__}; controllers that "
            "exist already need no training: surefoot.policy_set(tasks, safe=, candidates=, seed=)"
        )
    safe_task = None if tasks.safe_parameter is None else tasks.task(tasks.safe_parameter)
    return Oracles(
        check=exact_check(tasks),
        optimal=linear_program(),
        feasible=worst_task_then_gradient(safe_task),
    )


def exact_check(tasks: TaskDistribution) -> ParameterDistance | BatchDistance:
    """O_c for a family of tables, by the fastest way that is exact: coordinates if there are such, the closed form of
    affine families, else a comparison of all entries, of many tasks at once. Where it is only guessed that a family is
    affine, no more rests on it than which policies are trained: what is deployed is safe whatever these are."""
    if tasks.coordinates is not None:
        _check_coordinates(tasks, tasks.coordinates)
        return ParameterDistance(tasks.coordinates)
    affine = affine_tables(tasks)
    if affine is None:
        return BatchDistance(
            _prepared_tables(tasks), lambda first, second, epsilon: batch_distance(first, second) <= epsilon
        )
    closed_form = affine_distance(affine, tasks.units)
    if affine.dimension == 1:
        return ParameterDistance(partial(np.multiply, float(np.abs(closed_form.forms).max())))
    return BatchDistance(
        lambda parameter: parameter,
        lambda first, second, epsilon: closed_form.within(np.stack(first), np.stack(second), epsilon),
    )


def _prepared_tables(tasks: TaskDistribution) -> Callable[[Floats], Numbers]:
    """All numbers of a parameter's task; those of two tasks are kept, since the others will be like them."""
    known = [numbers(tasks.task(probe)) for probe in tasks.distribution.probes()[:2]]
    return lambda parameter: numbers(tasks.task(parameter), known)


def _check_coordinates(tasks: TaskDistribution, coordinates: Callable[[Floats], Floats]) -> None:
    """Refuse coordinates that put tasks closer together than they are: a cover by them would leave gaps."""
    probes = tasks.distribution.probes()[:COMPARED]
    points = coordinates(probes)
    told = np.abs(points[:, None] - points).max(axis=2)
    compared = [numbers(tasks.task(probe)) for probe in probes]
    true = batch_distance(compared, compared)
    short = true - told > COORDINATE_TOLERANCE * np.maximum(true, 1.0)
    if short.any():
        i, j = np.unravel_index(int(np.argmax(np.where(short, true - told, -np.inf))), short.shape)
        raise InvalidInput(
            f"coordinates must not understate the distance of tasks, got {told[i, j]:.6g} between the tasks of "
            f"{probes[i].tolist()} and {probes[j].tolist()}, whose distance is {true[i, j]:.6g}"
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


@dataclass(frozen=True)
class BatchDistance:
    """O_c for families of which many tasks can be compared at once. The training phase looks for this type too.

    Attributes:
        prepare: a parameter [d] to whatever of its task is compared; called once for each.
        within: [n, m] whether d ≤ ε between n and m such.
    """

    prepare: Callable[[Floats], Any]
    within: Callable[[Sequence[Any], Sequence[Any], float], Mask]

    def __call__(
        self, first: TabularCMDP, second: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator
    ) -> bool:
        return check_by_enumeration(first, second, epsilon, delta, rng)


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

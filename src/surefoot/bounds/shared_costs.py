"""Bounds on costs that are the same on all tasks of a family: the episodes of all of them count (docs/guarantees.md,
2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.simulation import SAFE, Looked, Simulation
from surefoot.confidence import Betting
from surefoot.errors import InvalidInput

DISPROVED = 1e-6  # probability that costs which are the same on all tasks are said not to be


class SharedCosts(NamedTuple):
    """Bounds [P, m] on the mean scaled costs of an episode, on any task; one of them is wrong with probability at most
    settings.error_now."""

    lower: Floats
    upper: Floats


def shared_costs(simulation: Simulation, parameters: Floats, looked: Sequence[Looked]) -> SharedCosts:
    """From what simulated tasks of parameters [n, d] cost, whether or not it was looked at for something else too."""
    costs = np.stack([each.costs for each in looked])  # [n, episodes, P, m]
    for below in (parameters <= np.median(parameters, axis=0)).T:
        _check_same(costs[below], costs[~below])
    shared = SharedCosts(*_interval(costs, simulation.settings.error_now))
    if not simulation.feasible(np.append(0.0, shared.lower[SAFE]), np.append(1.0, shared.upper[SAFE])):
        raise InvalidInput(
            "the safe policy must be shown to keep its budgets, got one of which "
            f"{len(costs) * len(costs[0])} episodes do not show it; take a safer one (xi) or more episodes"
        )
    return shared


def _check_same(some: Floats, others: Floats) -> None:
    """Refuse costs [n, episodes, P, m] of tasks on both sides of the median parameter that differ in a mean."""
    (lower, upper), (low, high) = _interval(some, DISPROVED / 2), _interval(others, DISPROVED / 2)
    if ((lower > high) | (low > upper)).any():
        raise InvalidInput("shared_costs must be False for tasks whose costs depend on the parameter, got True")


def _interval(costs: Floats, error: float) -> tuple[Floats, Floats]:
    """[P, m] each; one of all of them is wrong with probability at most `error`."""
    _, _, policies, constraints = costs.shape
    sequence = Betting(error / (policies * constraints))
    return sequence.interval(
        sequence.update(sequence.start((policies, constraints)), costs.reshape(-1, policies, constraints))
    )

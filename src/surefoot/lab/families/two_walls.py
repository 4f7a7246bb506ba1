"""The 6×6 gridworld with two constraints on which LB-SGD was shown: two red walls, each with a budget of its own.

State s = 6y + x, with y = 0 the bottom row; actions 0..3 move right, up, left, down. A task is a noise level: with
probability 1 - noise the move is the intended one, otherwise along one of the four actions, all equally likely; moves
off the grid stay. The authors' noise is 0.1. The walls are the cells x = 1..4 of rows 1 and 3; a step in the first
costs 10 of the first budget, a step in the second 10 of the second, and both budgets are 2. Reward 1 per step in the
absorbing goal (3, 2), which lies between the walls; γ = 0.7; start uniform on all cells that are not red. The optimum
is 1.07483758.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from surefoot.arrays import Floats, frozen
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.grid import MOVES, targets
from surefoot.tasks.layered_tasks import largest_change
from surefoot.tasks.task_distribution import TaskDistribution

WIDTH = HEIGHT = 6
STATES = WIDTH * HEIGHT
WALLS = tuple(tuple(WIDTH * y + x for x in (1, 2, 3, 4)) for y in (1, 3))
GOAL = WIDTH * 2 + 3

DISCOUNT = 0.7
BUDGET = (2.0, 2.0)
PUBLISHED_PARAMETER = (0.1,)

_REWARD = np.where(np.arange(STATES) == GOAL, 1.0, 0.0)
_COST = np.stack(
    [np.repeat(np.where(np.isin(np.arange(STATES), wall), 10.0, 0.0)[:, None], len(MOVES), axis=1) for wall in WALLS]
)
_IS_RED = np.isin(np.arange(STATES), WALLS)
_START = np.where(_IS_RED, 0.0, 1 / (STATES - _IS_RED.sum()))


def two_walls(low: float = 0.05, high: float = 0.15) -> TaskDistribution:
    """The 6×6 gridworld with noise uniform on [low, high]; the parameter is [noise]."""
    if not 0 <= low < high <= 1:
        raise InvalidInput(f"low and high must satisfy 0 ≤ low < high ≤ 1, got {low!r} and {high!r}")
    intended, blown = transition_directions()
    return TaskDistribution(
        build=_task,
        distribution=Uniform(float(low), float(high)),
        coordinates=partial(np.multiply, float(largest_change(blown[None])[0])),
        recipe={"family": "two-walls", "low": float(low), "high": float(high)},
        affine=(intended, blown[None]),
    )


@cache
def transition_directions() -> tuple[Floats, Floats]:
    """(P₀, G), each [S, A, S], read-only: the transitions for a noise are P₀ + noise·G."""
    intended = np.eye(STATES)[targets(WIDTH, HEIGHT)[0]]
    blown = intended.mean(axis=1, keepdims=True) - intended
    intended[GOAL], blown[GOAL] = np.eye(STATES)[GOAL], 0.0
    for array in (intended, blown):
        frozen(array)
    return intended, blown


def _task(parameter: Floats) -> TabularCMDP:
    noise = float(parameter[0])
    if not 0 <= noise <= 1:
        raise InvalidInput(f"noise must be a probability, got {noise!r}")
    intended, blown = transition_directions()
    return TabularCMDP(
        transitions=intended + noise * blown,
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=_START,
        discount=DISCOUNT,
        reward_range=(0.0, 1.0),
        cost_range=(0.0, 10.0),
    )

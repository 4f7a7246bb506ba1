"""The 6×6 gridworld with two constraints on which LB-SGD was shown: two red walls, each with a budget of its own.

State s = 6y + x, with y = 0 the bottom row; actions 0..3 move right, up, left, down. A task is a noise level: with
probability 1 - noise the move is the intended one, otherwise along one of the four actions, all equally likely; moves
off the grid stay. The authors' noise is 0.1. The walls are the cells x = 1..4 of rows 1 and 3; a step in the first
costs 10 of the first budget, a step in the second 10 of the second, and both budgets are 2. Reward 1 per step in the
absorbing goal (3, 2), which lies between the walls; γ = 0.7; start uniform on all cells that are not red. The optimum
is 1.07483758.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.tasks.affine_family import affine_family, check_rates, uniform_rate
from surefoot.tasks.gridworld_tasks import MOVES, absorbing, moves_and_neighbours
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

OPTIONS = {"low": "least noise", "high": "largest noise"}


def two_walls(low: float = 0.05, high: float = 0.15) -> TaskDistribution:
    """The 6×6 gridworld with noise uniform on [low, high]; the parameter is [noise]."""
    return affine_family(
        *transition_directions(),
        uniform_rate(low, high),
        check=partial(check_rates, "noise"),
        recipe={"family": "two-walls", "low": float(low), "high": float(high)},
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=_START,
        discount=DISCOUNT,
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [1, S, A, S]): the transitions for a noise are P₀ + noise·G₀."""
    intended, _ = moves_and_neighbours(WIDTH, HEIGHT)
    return absorbing(GOAL, intended, (intended.mean(axis=1, keepdims=True) - intended)[None])

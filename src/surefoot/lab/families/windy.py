"""A gridworld with two unknowns: pass a strip of hazard cells while slipping and while the wind blows towards it.

8×6 cells, state s = 8y + x with y = 0 the bottom row; actions 0..3 move right, up, left, down. The goal (7, 3) lies
beyond a strip of hazard cells, (2..5, 2), and the wind blows downwards: over the strip the way is short, but one gust
leads into it; below it no gust does, but every step up again goes against the wind.

A task is a pair (slip, wind). With probability slip the move goes to one of the cell's neighbours, all equally likely;
with probability wind one cell down instead; otherwise as intended. Moves off the grid stay. So transitions are affine,
P = P₀ + slip·G₁ + wind·G₂, and the paper's distance between two tasks is a norm of the difference of their parameters:

    d = max(|Δslip|, |Δwind|, |Δslip + Δwind|).

Every row difference sums to 0, so its total variation is the largest sum over a set of successors, i.e. the largest of
finitely many linear functionals. Extreme ones come from cells of the border: a move off the top edge stays in place,
from where slip and wind both take it away (Δslip + Δwind); a move off the bottom edge stays as well, and the wind,
which would have done the same, changes nothing (Δslip); there the wind turns a move sideways into staying (Δwind). All
other functionals are averages of these.

Reward 10 per step in the absorbing goal, cost 10 per step in a hazard cell, budget 1, γ = 0.9, start uniform on
(0..1, 1..3). The optimal policy of a task beyond the worst corner of the box is feasible on all of it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.tasks.affine_family import affine_family, check_rates, rates_and_sum
from surefoot.tasks.distribution import Independent, Normal
from surefoot.tasks.gridworld_tasks import absorbing, moves_and_neighbours, spread_evenly
from surefoot.tasks.task_distribution import TaskDistribution

WIDTH, HEIGHT = 8, 6
STATES = WIDTH * HEIGHT
DOWN = 3
HAZARD_CELLS = tuple(WIDTH * 2 + x for x in (2, 3, 4, 5))
START_CELLS = tuple(WIDTH * y + x for y in (1, 2, 3) for x in (0, 1))
GOAL = WIDTH * 3 + 7

_REWARD = np.where(np.arange(STATES) == GOAL, 10.0, 0.0)
_COST = np.where(np.isin(np.arange(STATES), HAZARD_CELLS), 10.0, 0.0)
_START = np.where(np.isin(np.arange(STATES), START_CELLS), 1 / len(START_CELLS), 0.0)

DISCOUNT = 0.9
BUDGET = 1.0
MEAN_SLIP, MEAN_WIND = 0.1, 0.12
SLIP_RANGE = WIND_RANGE = (0.0, 0.25)

OPTIONS = {
    "slip_std": "standard deviation of the slip",
    "wind_std": "standard deviation of the wind",
    "safe_slip": "slip of the task whose optimal policy is the safe policy",
    "safe_wind": "wind of that task",
}


def windy_gridworld(
    slip_std: float = 0.04, wind_std: float = 0.05, safe_slip: float = 0.26, safe_wind: float = 0.26
) -> TaskDistribution:
    """Slip N(0.1, slip_std²) and wind N(0.12, wind_std²), truncated to [0, 0.25]; the parameter is [slip, wind].

    `safe_slip` and `safe_wind` name the task whose optimal policy serves as the safe policy.
    """
    slip = Normal(MEAN_SLIP, std=slip_std, low=SLIP_RANGE[0], high=SLIP_RANGE[1], how="truncated")
    wind = Normal(MEAN_WIND, std=wind_std, low=WIND_RANGE[0], high=WIND_RANGE[1], how="truncated")
    spreads = {"slip_std": float(slip.std[0]), "wind_std": float(wind.std[0])}
    safe = {"safe_slip": float(safe_slip), "safe_wind": float(safe_wind)}
    check_rates("safe_slip and safe_wind", np.array(list(safe.values())))
    return affine_family(
        *transition_directions(),
        Independent([slip, wind]),
        check=partial(check_rates, "slip and wind"),
        coordinates=rates_and_sum,
        safe_parameter=np.array(list(safe.values())),
        recipe={"family": "windy", **spreads, **safe},
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=_START,
        discount=DISCOUNT,
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [2, S, A, S]): the transitions of (slip, wind) are P₀ + slip·G₀ + wind·G₁."""
    intended, neighbours = moves_and_neighbours(WIDTH, HEIGHT)
    slips, winds = spread_evenly(neighbours) - intended, intended[:, [DOWN]] - intended
    return absorbing(GOAL, intended, np.stack([slips, winds]))

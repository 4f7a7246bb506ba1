"""The paper's 7×7 gridworld: reach the goal at the top between two red walls while the wind blows you off course.

State s = 7y + x, with y = 0 the bottom row; actions 0..3 move right, up, left, down. A task is a noise level i: with
probability 1 - i the move is the intended one, otherwise it is blown off.

- kernel "published" is that of the authors' code, which their figures are computed with: blown to one of the
  neighbouring cells, all equally likely; a move off the grid is intended to stay, which then joins the neighbours.
- kernel "text" is that of the paper's text: blown along one of the four actions, each with probability i/4; moves off
  the grid stay.

Reward 10 per step in the absorbing goal, cost 10 per step in a red cell, budget 1.5, γ = 0.9, start uniform on all
cells that are not red. No policy is feasible for noise above 0.4359 ("published"), so the paper's safe policy, feasible
up to 0.5, does not exist; the authors' code takes the optimal policy of noise 0.4, and so does `safe_noise`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, finite_array
from surefoot.errors import InvalidInput
from surefoot.tasks.affine_family import affine_family
from surefoot.tasks.distribution import Normal
from surefoot.tasks.task_distribution import TaskDistribution

Kernel: TypeAlias = Literal["published", "text"]

MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (dx, dy) of the actions right, up, left, down

WIDTH = HEIGHT = 7
STATES = WIDTH * HEIGHT
RED_CELLS = tuple(WIDTH * y + x for y in (1, 2, 3, 4) for x in (2, 4))
GOAL = WIDTH * 6 + 3

_IS_RED = np.isin(np.arange(STATES), RED_CELLS)
_REWARD = np.where(np.arange(STATES) == GOAL, 10.0, 0.0)
_COST = np.where(_IS_RED, 10.0, 0.0)
_START = np.where(_IS_RED, 0.0, 1 / (STATES - len(RED_CELLS)))

DISCOUNT = 0.9
BUDGET = 1.5
MEAN_NOISE = 0.3
NOISE_RANGE = (0.0, 0.5)

# The ten test tasks behind the paper's second figure.
PUBLISHED_TEST_NOISES = (
    0.33994760,
    0.25363799,
    0.31864008,
    0.30796535,
    0.33609112,
    0.33084822,
    0.31335413,
    0.30405411,
    0.34453611,
    0.26760585,
)

OPTIONS = {
    "kernel": "published or text",
    "std": "standard deviation of the noise",
    "safe_noise": "noise whose optimal policy is the safe policy",
}


def gridworld(kernel: Kernel = "published", std: float = 0.03, safe_noise: float = 0.4) -> TaskDistribution:
    """The gridworld with noise N(0.3, std²) clipped to [0, 0.5]; the parameter is [noise].

    `safe_noise` names the task whose optimal policy serves as the safe policy.
    """
    intended, blown = slip_direction(kernel)
    low, high = NOISE_RANGE
    distribution = Normal(MEAN_NOISE, std=std, low=low, high=high, how="clipped")
    safe = _noise("safe_noise", safe_noise)
    return affine_family(
        intended,
        blown[None],
        distribution,
        check=_check_noise,
        safe_parameter=np.array([safe]),
        recipe={"family": "gridworld", "kernel": kernel, "std": float(distribution.std[0]), "safe_noise": safe},
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=_START,
        discount=DISCOUNT,
    )


def cell(state: int) -> tuple[int, int]:
    """(x, y) of a state."""
    return state % WIDTH, state // WIDTH


def slip_direction(kernel: Kernel) -> tuple[Floats, Floats]:
    """(P₀, G), each [S, A, S]: the transitions for noise i are P₀ + i·G."""
    if kernel not in get_args(Kernel):
        raise InvalidInput(f"kernel must be 'published' or 'text', got {kernel!r}")
    intended, neighbours = moves_and_neighbours(WIDTH, HEIGHT)
    if kernel == "text":
        slipped = intended.mean(axis=1, keepdims=True)
    else:
        slipped = spread_evenly(np.maximum(neighbours, intended))
    base, slopes = absorbing(GOAL, intended, (slipped - intended)[None])
    return base, slopes[0]


def _check_noise(parameter: Floats) -> None:
    _noise("noise", parameter[0])


def _noise(name: str, value: float) -> float:
    noise = finite_array(name, value)
    if noise.ndim or not 0 <= noise <= 1:
        raise InvalidInput(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(noise)


# --------------------------------------------------------------------- gridworlds of any size: state s = width·y + x


def targets(width: int, height: int) -> tuple[Integers, Mask]:
    """(state that each move leads to [S, A], whether that is inside the grid [S, A]); moves off the grid stay."""
    state = np.arange(width * height)[:, None]
    dx, dy = np.array(MOVES).T
    x, y = state % width + dx, state // width + dy
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return np.where(inside, width * y + x, state), inside


def moves_and_neighbours(width: int, height: int) -> tuple[Floats, Floats]:
    """([S, A, S] transitions if every move succeeds, [S, 1, S] 1 for the neighbours of each state)."""
    target, inside = targets(width, height)
    moves = np.eye(width * height)[target]
    return moves, (moves * inside[:, :, None]).sum(axis=1, keepdims=True)


def spread_evenly(weights: Floats) -> Floats:
    """Weights [..., S] as distributions."""
    rows: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return rows


def absorbing(goal: int, base: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """`base` [S, A, S] and `slopes` [d, S, A, S] with a goal that no action leaves."""
    base[goal], slopes[:, goal] = np.eye(len(base))[goal], 0.0
    return base, slopes

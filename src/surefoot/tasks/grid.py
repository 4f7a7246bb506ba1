"""What all gridworlds share: state s = width·y + x, with y = 0 the bottom row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers

MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (dx, dy) of the actions right, up, left, down


def targets(width: int, height: int) -> tuple[Integers, NDArray[np.bool_]]:
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

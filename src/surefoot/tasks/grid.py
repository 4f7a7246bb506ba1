"""The geometry that all gridworlds share: state s = width·y + x, with y = 0 the bottom row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Integers

MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (dx, dy) of the actions right, up, left, down


def targets(width: int, height: int) -> tuple[Integers, NDArray[np.bool_]]:
    """(state that each move leads to [S, A], whether that is inside the grid [S, A]); moves off the grid stay."""
    state = np.arange(width * height)[:, None]
    dx, dy = np.array(MOVES).T
    x, y = state % width + dx, state // width + dy
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return np.where(inside, width * y + x, state), inside

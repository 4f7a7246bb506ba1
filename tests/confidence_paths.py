"""The intervals of a confidence sequence on the way, for tests that look at all times."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.confidence import Betting, State


def path(sequence: Betting, observations: Any) -> tuple[Floats, Floats]:
    """(lower, upper), each [n, *shape]: the interval after each of the observations [n, *shape], told one by one."""
    values = np.asarray(observations, dtype=np.float64)
    states = [sequence.start(values.shape[1:])]
    for value in values:
        states.append(sequence.update(states[-1], value[None]))
    counts = np.arange(1, len(values) + 1).reshape(-1, *[1] * (values.ndim - 1))
    return sequence.interval(State(counts, np.stack([state.sums for state in states[1:]])))

"""Media streaming over a wireless link, the second of DOPE's benchmarks: keep a buffer from running empty.

The buffer holds 0..9 packets. In a step a packet arrives with probability 0.9 under the fast service (action 0) and 0.1
under the slow one (action 1), and one is played with probability `drain`, the parameter of a task (the authors' is
0.8); a packet that finds the buffer full is lost, and an empty buffer plays nothing. The authors minimise the number of
steps with an empty buffer; the reward here is 1 minus that, per step. Fast service costs 1. Ten steps from an empty
buffer, budget 5.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.tasks.affine_family import affine_family, check_rates, uniform_rate
from surefoot.tasks.task_distribution import TaskDistribution

STATES, FAST, SLOW = 10, 0, 1
ARRIVES = (0.9, 0.1)  # probability of a packet under each action
HORIZON = 10
BUDGET = HORIZON / 2
PUBLISHED_PARAMETER = (0.8,)

_REWARD = np.repeat((np.arange(STATES) > 0).astype(float)[:, None], len(ARRIVES), axis=1)
_COST = np.tile([1.0, 0.0], (STATES, 1))

OPTIONS = {"low": "least drain", "high": "largest drain"}


def media(low: float = 0.7, high: float = 0.9) -> TaskDistribution:
    """Media streaming, layered, with drain uniform on [low, high]; the parameter is [drain]."""
    return affine_family(
        *transition_directions(),
        uniform_rate(low, high),
        check=partial(check_rates, "drain"),
        recipe={"family": "media", "low": float(low), "high": float(high)},
        layers=HORIZON,
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=np.eye(STATES)[0],
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [1, S, A, S]): the base transitions are P₀ + drain·G₀.

    With μ the probability of an arrival and λ the drain: up μ(1-λ), down (1-μ)λ, otherwise the buffer stays.
    """
    stay = np.eye(STATES)
    up, down = np.eye(STATES, k=1), np.eye(STATES, k=-1)
    up[-1, -1], down[0, 0] = 1.0, 1.0  # the buffer is full, or empty
    idle = np.stack([mu * up + (1 - mu) * stay for mu in ARRIVES], axis=1)
    playing = np.stack([mu * stay + (1 - mu) * down for mu in ARRIVES], axis=1)
    return idle, (playing - idle)[None]

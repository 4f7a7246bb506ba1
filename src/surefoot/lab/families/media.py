"""Media streaming over a wireless link, the second of DOPE's benchmarks: keep a buffer from running empty.

The buffer holds 0..9 packets. In a step a packet arrives with probability 0.9 under the fast service (action 0) and 0.1
under the slow one (action 1), and one is played with probability `drain`, the parameter of a task (the authors' is
0.8); a packet that finds the buffer full is lost, and an empty buffer plays nothing. The authors minimise the number of
steps with an empty buffer; the reward here is 1 minus that, per step. Fast service costs 1. Ten steps from an empty
buffer, budget 5.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from surefoot.arrays import Floats, frozen
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.layered_tasks import largest_change, layered, layered_directions, layered_transitions
from surefoot.tasks.task_distribution import TaskDistribution

STATES, FAST, SLOW = 10, 0, 1
ARRIVES = (0.9, 0.1)  # probability of a packet under each action
HORIZON = 10
BUDGET = HORIZON / 2
PUBLISHED_PARAMETER = (0.8,)

_REWARD = np.repeat((np.arange(STATES) > 0).astype(float)[:, None], len(ARRIVES), axis=1)
_COST = np.tile([1.0, 0.0], (STATES, 1))


def media(low: float = 0.7, high: float = 0.9) -> TaskDistribution:
    """Media streaming, layered, with drain uniform on [low, high]; the parameter is [drain]."""
    if not 0 <= low < high <= 1:
        raise InvalidInput(f"low and high must satisfy 0 ≤ low < high ≤ 1, got {low!r} and {high!r}")
    full, drain = transition_directions()
    directions = layered_directions(drain[None], HORIZON)
    return TaskDistribution(
        build=_task,
        distribution=Uniform(float(low), float(high)),
        coordinates=partial(np.multiply, float(largest_change(directions)[0])),
        recipe={"family": "media", "low": float(low), "high": float(high)},
        affine=(layered_transitions(full, HORIZON), directions),
    )


@cache
def transition_directions() -> tuple[Floats, Floats]:
    """(P₀, G), each [S, A, S], read-only: the base transitions are P₀ + drain·G.

    With μ the probability of an arrival and λ the drain: up μ(1-λ), down (1-μ)λ, otherwise the buffer stays.
    """
    stay = np.eye(STATES)
    up, down = np.eye(STATES, k=1), np.eye(STATES, k=-1)
    up[-1, -1], down[0, 0] = 1.0, 1.0  # the buffer is full, or empty
    idle = np.stack([mu * up + (1 - mu) * stay for mu in ARRIVES], axis=1)
    playing = np.stack([mu * stay + (1 - mu) * down for mu in ARRIVES], axis=1)
    change = playing - idle
    for array in (idle, change):
        frozen(array)
    return idle, change


def _task(parameter: Floats) -> TabularCMDP:
    drain = float(parameter[0])
    if not 0 <= drain <= 1:
        raise InvalidInput(f"drain must be a probability, got {drain!r}")
    idle, change = transition_directions()
    return layered(np.maximum(idle + drain * change, 0.0), _REWARD, _COST, BUDGET, np.eye(STATES)[0], HORIZON)

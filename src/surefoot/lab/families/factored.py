"""The factored CMDP on which DOPE was first shown: three states in a ring, and a price on every advance.

Action 0 stays. Action 1 advances to the next state of the ring, brings (s+1)/3 in state s, and costs 1. Six steps from
state 0, budget 3: half of the steps may be advances, and going round once pays best. In the authors' task an advance
always succeeds; here it fails, and stays, with probability `failure`, which is the parameter of a task.
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

STATES, STAY, ADVANCE = 3, 0, 1
HORIZON = 6
BUDGET = HORIZON / 2
PUBLISHED_PARAMETER = (0.0,)

_REWARD = np.stack([np.zeros(STATES), (np.arange(STATES) + 1) / STATES], axis=1)
_COST = np.stack([np.zeros(STATES), np.ones(STATES)], axis=1)


def factored(most_failure: float = 0.2) -> TaskDistribution:
    """The factored CMDP, layered, with failure uniform on [0, most_failure]; the parameter is [failure]."""
    if not 0 < most_failure <= 1:
        raise InvalidInput(f"most_failure must lie in (0, 1], got {most_failure!r}")
    advance, fail = transition_directions()
    directions = layered_directions(fail[None], HORIZON)
    return TaskDistribution(
        build=_task,
        distribution=Uniform(0.0, float(most_failure)),
        coordinates=partial(np.multiply, float(largest_change(directions)[0])),
        recipe={"family": "factored", "most_failure": float(most_failure)},
        affine=(layered_transitions(advance, HORIZON), directions),
    )


@cache
def transition_directions() -> tuple[Floats, Floats]:
    """(P₀, G), each [S, A, S], read-only: the base transitions are P₀ + failure·G."""
    stay = np.eye(STATES)
    advance = np.roll(stay, 1, axis=1)
    succeed, fail = np.stack([stay, advance], axis=1), np.stack([np.zeros_like(stay), stay - advance], axis=1)
    for array in (succeed, fail):
        frozen(array)
    return succeed, fail


def _task(parameter: Floats) -> TabularCMDP:
    failure = float(parameter[0])
    if not 0 <= failure <= 1:
        raise InvalidInput(f"failure must be a probability, got {failure!r}")
    advance, fail = transition_directions()
    return layered(advance + failure * fail, _REWARD, _COST, BUDGET, np.eye(STATES)[0], HORIZON)

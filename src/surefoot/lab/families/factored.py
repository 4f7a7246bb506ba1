"""The factored CMDP on which DOPE was first shown: three states in a ring, and a price on every advance.

Action 0 stays. Action 1 advances to the next state of the ring, brings (s+1)/3 in state s, and costs 1. Six steps from
state 0, budget 3: half of the steps may be advances, and going round once pays best. In the authors' task an advance
always succeeds; here it fails, and stays, with probability `failure`, which is the parameter of a task.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tasks.affine_family import affine_family, check_rates
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

STATES, STAY, ADVANCE = 3, 0, 1
HORIZON = 6
BUDGET = HORIZON / 2
PUBLISHED_PARAMETER = (0.0,)

_REWARD = np.stack([np.zeros(STATES), (np.arange(STATES) + 1) / STATES], axis=1)
_COST = np.stack([np.zeros(STATES), np.ones(STATES)], axis=1)

OPTIONS = {"most_failure": "largest failure"}


def factored(most_failure: float = 0.2) -> TaskDistribution:
    """The factored CMDP, layered, with failure uniform on [0, most_failure]; the parameter is [failure]."""
    if not 0 < most_failure <= 1:
        raise InvalidInput(f"most_failure must lie in (0, 1], got {most_failure!r}")
    return affine_family(
        *transition_directions(),
        Uniform(0.0, float(most_failure)),
        check=partial(check_rates, "failure"),
        recipe={"family": "factored", "most_failure": float(most_failure)},
        layers=HORIZON,
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=np.eye(STATES)[0],
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [1, S, A, S]): the base transitions are P₀ + failure·G₀."""
    stay = np.eye(STATES)
    advance = np.roll(stay, 1, axis=1)
    return np.stack([stay, advance], axis=1), np.stack([np.zeros_like(stay), stay - advance], axis=1)[None]

"""How little regret a method can have that keeps its promise on all gridworlds (docs, Theorem 11)."""

from __future__ import annotations

from functools import cache

import numpy as np

from surefoot.lab.analysis.regret_limit import least_regret, limits
from surefoot.tasks.gridworld_tasks import gridworld

ALTERNATIVES = 32  # more dangerous noises
NEAREST = 4e-4  # of them, beyond the task's own
FIRST, POINTS = 100, 4  # of the curve over episodes


@cache
def limit_curve(noise: float, highest: float, episodes: int, risk: float) -> dict[str, list[float]]:
    """A lower bound on the expected regret after some numbers of episodes, the last one included.

    Args:
        highest: noise up to which the promise is made.
    """
    counts = np.unique(np.geomspace(min(FIRST, episodes), episodes, POINTS).round().astype(np.int64))
    if noise + NEAREST >= highest:
        return {"episode": counts.tolist(), "regret": [0.0] * len(counts)}
    tasks, more = gridworld(), np.geomspace(NEAREST, highest - noise, ALTERNATIVES)
    known = limits(tasks.task([noise]), [tasks.task([noise + each]) for each in more])
    return {"episode": counts.tolist(), "regret": [least_regret(known, int(count), risk) for count in counts]}

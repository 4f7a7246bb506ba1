"""The discounted sums of an episode as it was reported: all that showing a journal needs of NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import discounted_sum


def sums_of(plain: Mapping[str, Any], discount: float) -> tuple[float, Floats]:
    """Reward and costs [m] of a record."""
    if "rewards" not in plain:
        return plain["reward"], np.array(plain["cost"], dtype=np.float64)
    rewards, costs = np.array(plain["rewards"]), np.array(plain["costs"])
    return float(discounted_sum(rewards, discount)), discounted_sum(costs, discount)

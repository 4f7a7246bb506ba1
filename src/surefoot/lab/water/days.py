"""What is random in a day of a town: how much is used, where, and how full the tanks are at midnight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats

DAY_SPREAD, JUNCTION_SPREAD = 0.08, 0.2  # of the logarithms of demand: of the whole town, and of each junction
START_RANGE = (0.45, 0.65)  # of the height between a tank's lowest and highest level


@dataclass(frozen=True, eq=False)
class WaterDays:
    """n days.

    Attributes:
        demand: [n, J] of the junctions, over the usual one.
        fill: [n, T] of the tanks at midnight, 0 at the lowest level allowed and 1 at the highest.
    """

    demand: Floats
    fill: Floats

    def __len__(self) -> int:
        return len(self.demand)

    def take(self, chosen: NDArray[np.int64]) -> WaterDays:
        return WaterDays(self.demand[chosen], self.fill[chosen])


def sample_days(n: int, junctions: int, tanks: int, rng: np.random.Generator) -> WaterDays:
    """n independent days; their law is the same whatever the pipes are and whatever the pumps do."""
    town = DAY_SPREAD * rng.standard_normal((n, 1))
    demand = np.exp(town + JUNCTION_SPREAD * rng.standard_normal((n, junctions)))
    return WaterDays(demand, rng.uniform(*START_RANGE, (n, tanks)))


def numbers() -> dict[str, ArrayLike]:
    """All constants of this file by name, of which digests are made."""
    return {"DAY_SPREAD": DAY_SPREAD, "JUNCTION_SPREAD": JUNCTION_SPREAD, "START_RANGE": START_RANGE}

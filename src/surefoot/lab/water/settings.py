"""The settings of a town's pumps: one speed for all of them, all day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, number
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.errors import InvalidInput

LEAST_SPEED, MOST_SPEED = 0.5, 1.2  # that the pumps take


@dataclass(frozen=True)
class PumpSpeed(Predicting):
    """Pumps that run do so at one speed, whatever is observed.

    Attributes:
        speed: 1 is that of the pumps' curves.
    """

    speed: float
    kind: ClassVar[str] = "pump-speed"

    def __post_init__(self) -> None:
        speed = number("speed", self.speed)
        if not LEAST_SPEED <= speed <= MOST_SPEED:
            raise InvalidInput(f"speed must lie within {LEAST_SPEED} and {MOST_SPEED}, got {speed!r}")
        object.__setattr__(self, "speed", speed)

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Nothing is drawn, and every hour is alike."""
        return self.likeliest(observation, step)

    def likeliest(self, observation: Any, step: Any) -> Floats:
        """[..., 1]"""
        return np.full((*self.batch(observation), 1), self.speed)

    def batch(self, observation: Any) -> Batch:
        *batch, _ = np.shape(observation) or (0,)
        return tuple(batch)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"speed": np.array(self.speed)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> PumpSpeed:
        if np.ndim(arrays["speed"]):
            raise InvalidInput(f"speed must be one number, got shape {list(np.shape(arrays['speed']))}")
        return cls(float(arrays["speed"]))


# The fastest is needed in the worst town of the family, and safe there (docs/water.md).
SAFE = PumpSpeed(MOST_SPEED)
CANDIDATES = {f"speed {speed:g}": PumpSpeed(speed) for speed in (0.7, 0.8, 0.9, 1.0)}

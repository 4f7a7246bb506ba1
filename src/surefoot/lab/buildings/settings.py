"""The setting of a building's heating: the hour at which it restarts after the night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, check_int
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.errors import InvalidInput
from surefoot.lab.buildings.office import EVENING, SET_BACK, WARM

LATEST = 12


@dataclass(frozen=True)
class RestartHour(Predicting):
    """On working days rooms are heated from one hour on until 22:00, whatever is observed.

    Attributes:
        hour: 0 is midnight.
    """

    hour: int
    kind: ClassVar[str] = "restart-hour"

    def __post_init__(self) -> None:
        if check_int("hour", self.hour, least=0) > LATEST:
            raise InvalidInput(f"hour must be at most {LATEST}, got {self.hour}")

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Nothing is drawn."""
        return self.likeliest(observation, step)

    def likeliest(self, observation: Any, step: Any) -> Floats:
        """[..., 1] °C to which rooms are heated in the hour that begins."""
        heated = (self.hour <= np.asarray(step)) & (np.asarray(step) < EVENING)
        return np.broadcast_to(np.where(heated, WARM, SET_BACK)[..., None], (*self.batch(observation), 1)).copy()

    def batch(self, observation: Any) -> Batch:
        *batch, _ = np.shape(observation) or (0,)
        return tuple(batch)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"hour": np.array(float(self.hour))}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> RestartHour:
        if np.ndim(arrays["hour"]):
            raise InvalidInput(f"hour must be one number, got shape {list(np.shape(arrays['hour']))}")
        hour = float(arrays["hour"])
        return cls(int(hour) if hour.is_integer() else hour)  # type: ignore[arg-type]  # which is refused


# Safe in the office with the weakest plant and the most leaks (docs/buildings.md).
SAFE = RestartHour(0)
CANDIDATES = {f"restart {hour}:00": RestartHour(hour) for hour in (8, 7, 5)}

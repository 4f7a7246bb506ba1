"""The settings of an insulin pump: what it gives all day, at a meal, and when it stops. A policy with a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, number
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.errors import InvalidInput
from surefoot.lab.pump.model import STEP, on_board_at_rest

READINGS = 4  # glucose, its change, carbohydrates, insulin on board
LOOKAHEAD = 30.0  # minutes that the trend of the last quarter of an hour is carried on for
TREND = 15.0  # minutes over which an observation tells the change
MOST_BASAL = 5.0  # as a multiple of the basal rate: what pumps with automatic delivery are limited to, roughly


@dataclass(frozen=True)
class InsulinSettings(Predicting):
    """Basal rate with feedback, bolus by carbohydrate ratio with a correction, suspension when low or soon low.

        rate   = basal + feedback·(glucose - target) U/h, within [0, 5·basal]; 0 if glucose, now or as its trend
                 foretells for half an hour ahead, is below `suspend`
        bolus  = carbohydrates/ratio + correction U with carbohydrates, not less than 0; where
                 correction = (glucose - target)/correction_factor, of which insulin on board beyond that of the basal
                 rate is taken off as long as it is positive

    Actions are U of insulin for the 5 minutes of a step: [1] at one observation [4], [n, 1] at n of them [n, 4]; what
    an observation holds is told by `GlucoseTask`.

    Attributes:
        basal: U/h.
        feedback: U/h per mg/dl.
        ratio: grams of carbohydrates per U.
        correction_factor: mg/dl per U.
        target: mg/dl.
        suspend: mg/dl.
    """

    basal: float
    feedback: float
    ratio: float
    correction_factor: float
    target: float = 110.0
    suspend: float = 80.0
    kind: ClassVar[str] = "insulin"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = number(field.name, getattr(self, field.name))
            positive = field.name in ("ratio", "correction_factor")
            if value < 0 or (positive and value == 0):
                raise InvalidInput(f"{field.name} must be {'positive' if positive else 'at least 0'}, got {value!r}")
            object.__setattr__(self, field.name, value)

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Nothing is drawn, and every step is alike."""
        return self.likeliest(observation, step)

    def likeliest(self, observation: Any, step: Any) -> Floats:
        """U of insulin for a step [..., 1]."""
        self.batch(observation)
        glucose, change, carbohydrates, on_board = np.asarray(observation, dtype=np.float64).T
        insulin = self._basal(glucose, change)
        if carbohydrates.any():
            insulin = insulin + self._bolus(glucose, carbohydrates, on_board)
        return insulin[..., None]

    def _basal(self, glucose: Floats, change: Floats) -> Floats:
        over_steps = STEP / 60
        rate = (glucose - self.target) * (self.feedback * over_steps) + self.basal * over_steps
        lowest = glucose + np.minimum(change * (LOOKAHEAD / TREND), 0.0)
        return np.clip(rate, 0.0, MOST_BASAL * self.basal * over_steps) * (lowest >= self.suspend)

    def _bolus(self, glucose: Floats, carbohydrates: Floats, on_board: Floats) -> Floats:
        correction = (glucose - self.target) / self.correction_factor
        beyond = np.maximum(on_board - on_board_at_rest(self.basal), 0.0)
        correction = np.minimum(correction, np.maximum(correction - beyond, 0.0))
        bolus: Floats = np.maximum(carbohydrates / self.ratio + correction, 0.0) * (carbohydrates > 0)
        return bolus

    def batch(self, observation: Any) -> Batch:
        *batch, length = np.shape(observation) or (0,)
        if length != READINGS:
            raise InvalidInput(
                f"observation must have shape [{READINGS}] or [n, {READINGS}], got {np.shape(observation)}"
            )
        return tuple(batch)

    def scaled(self, gain: float) -> InsulinSettings:
        """The same for a body that needs `gain` times as much insulin, in all that it needs it for."""
        return InsulinSettings(
            self.basal * gain,
            self.feedback * gain,
            self.ratio / gain,
            self.correction_factor / gain,
            self.target,
            self.suspend,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: np.array(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> InsulinSettings:
        found = {field.name: arrays[field.name] for field in fields(cls)}
        for name, array in found.items():
            if np.ndim(array):
                raise InvalidInput(f"{name} must be one number, got shape {list(np.shape(array))}")
        return cls(**{name: float(array) for name, array in found.items()})


# For sensitivity 1 and the mean absorption of insulin: found by search, then rounded (docs/glucose.md).
AVERAGE_SETTINGS = InsulinSettings(basal=0.41, feedback=0.0041, ratio=35.0, correction_factor=105.0)

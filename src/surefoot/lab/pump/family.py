"""The insulin pump of a new patient: days of 288 steps of 5 minutes, time in range at a bounded time below it.

Everything is counted in readings of the sensor, as the international consensus on time in range does (Battelino et al.
2019, Diabetes Care 42:1593-1603): reward is the share of the day's readings within 70-180 mg/dl, cost the share below
70 mg/dl, budget 4 %. A simulation, no medical device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats, assign, check_int, finite_array, format_digits
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.pump import days, model
from surefoot.lab.pump.days import GlucoseDays, sample_days
from surefoot.lab.pump.model import Bodies, Patient
from surefoot.lab.pump.simulated_days import (
    BUDGET,
    HIGH,
    LOW,
    MOST_INSULIN,
    SPACES,
    UNITS,
    DaySimulator,
    SimulatedDays,
)
from surefoot.tasks.distribution import LogUniform
from surefoot.tasks.task_distribution import TaskDistribution

SENSOR_RANGE = (40.0, 400.0)

OPTIONS = {
    "least_sensitivity": "least sensitivity to insulin, over the mean",
    "most_sensitivity": "largest sensitivity to insulin, over the mean",
    "fastest": "least time of absorption of insulin, in minutes",
    "slowest": "largest time of absorption of insulin, in minutes",
}
DayLaw: TypeAlias = Callable[[int, np.random.Generator], GlucoseDays]


def glucose(
    least_sensitivity: float = 0.5,
    most_sensitivity: float = 2.0,
    fastest: float = 45.0,
    slowest: float = 67.0,
) -> TaskDistribution:
    """Adults with type 1 diabetes who differ in two numbers that nobody tells the pump; the parameter is [sensitivity,
    skin_time], each log-uniform.

    Args:
        least_sensitivity, most_sensitivity: to insulin, as a multiple of the mean.
        fastest, slowest: minutes after which insulin is absorbed fastest from under the skin; the mean is 55.
    """
    low, high = (float(least_sensitivity), float(fastest)), (float(most_sensitivity), float(slowest))
    return TaskDistribution(
        build=GlucoseTask,
        distribution=LogUniform(low, high),
        recipe={
            "family": "glucose",
            "least_sensitivity": low[0],
            "most_sensitivity": high[0],
            "fastest": low[1],
            "slowest": high[1],
        },
    )


@dataclass(frozen=True, eq=False)
class GlucoseTask:
    """One patient. An episode is a day from midnight to midnight, 288 steps.

    What a policy observes before each step, [4]: the sensor's glucose in mg/dl (40 to 400), its change over the last 15
    minutes (since midnight in the first three steps), the carbohydrates that the patient is about to eat in g as
    counted, and the insulin on board in U as the pump reckons it (`Bodies.on_board`). Its action [1] is the insulin of
    the next 5 minutes in U, moved to the nearest of what a pump can give, 0 to 25. A step is paid by the reading at its
    end.

    Attributes:
        parameter: [2] sensitivity, skin_time.
        law: draws days; a function that can be imported, by whose name the digest knows it.
    """

    parameter: Floats
    law: DayLaw = sample_days

    def __post_init__(self) -> None:
        parameter = finite_array("parameter", self.parameter)
        if parameter.shape != (2,) or not (parameter > 0).all():
            raise InvalidInput(f"parameter must be [sensitivity, skin_time], both positive, got {parameter.tolist()}")
        assign(self, parameter=parameter)

    @property
    def patient(self) -> Patient:
        sensitivity, skin_time = map(float, self.parameter)
        return Patient(sensitivity, skin_time)

    @property
    def units(self) -> Units:
        return UNITS

    @property
    def spaces(self) -> str:
        return SPACES

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (4,)

    def episodes(self, policy: Policy, steps: int) -> SimulatedDays[GlucoseDays]:
        check_acts(policy)
        simulator = DaySimulator(self.law, partial(HovorkaLanes, self.patient))
        return SimulatedDays(simulator, policy, check_int("steps", steps))

    def digest(self) -> str:
        """SHA-256 of the patient and of every number in the model, the days and what is paid."""
        told = [
            ["parameter", *format_digits(self.parameter)],
            *([name, *format_digits(value)] for part in (model, days) for name, value in part.numbers().items()),
            ["paid", *format_digits([LOW, HIGH, BUDGET, *SENSOR_RANGE, MOST_INSULIN])],
            *([] if self.law is sample_days else [["law", self.law.__module__, self.law.__qualname__]]),
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


class HovorkaLanes:
    """n days of a patient, side by side."""

    def __init__(self, patient: Patient, lived: GlucoseDays) -> None:
        self._days = lived
        self._body, self.counted = Bodies(patient, lived.start), lived.counted

    @property
    def on_board(self) -> Floats:
        return self._body.on_board

    def reading(self, t: int) -> Floats:
        reading: Floats = np.clip((1 + self._days.error[t]) * self._body.glucose, *SENSOR_RANGE)
        return reading

    def advance(self, insulin: Floats, t: int) -> None:
        self._body.advance(insulin, self._days.eaten[t], self._days.response[t])

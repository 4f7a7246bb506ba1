"""Patients like the thirty of simglucose with an insulin pump: days of 288 steps of 5 minutes, time in range at a
bounded time below it. A simulation, no medical device: docs/simglucose.md."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np

from surefoot.arrays import Floats, assign, check_int, finite_array, format_digits
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
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
from surefoot.lab.simglucose import days
from surefoot.lab.simglucose.days import Days, sample_days
from surefoot.lab.simglucose.model import AVERAGE_BASAL, BITES, PARTS, TABLE, Bodies
from surefoot.lab.simglucose.patients import Patient, number_of, patients, sensor
from surefoot.tasks.distribution import Finite, Independent, Normal
from surefoot.tasks.task_distribution import TaskDistribution

LANES = 4096  # days side by side: enough that those who eat just now are many too
MOST_SPREADS = 2.0  # from the patient that others are like
OPTIONS = {
    "left_out": "patient around whom there are no others, such as adult#007",
    "only": "patient around whom all others are",
    "action_spread": "spread of the logarithm of what insulin is worth, around a patient",
    "absorption_spread": "spread of the logarithm of the speed of absorption of insulin, around a patient",
}


def simglucose(
    left_out: str = "", only: str = "", action_spread: float = 0.25, absorption_spread: float = 0.2
) -> TaskDistribution:
    """Patients around the thirty of the package simglucose, which must be installed; the parameter is [number of the
    patient, log action, log absorption].

    Thirty patients are no distribution. So one of them is drawn, and with it by how much insulin is worth more to this
    body, and leaves the skin faster: log-normal factors, independent, cut off at two spreads.

    Args:
        left_out: no patient is around this one, such as adult#007; what is learned without is then tested on `only`.
        only: all patients are around this one.
        action_spread, absorption_spread: of the logarithms of the factors.
    """
    around = [number_of(only)] if only else [k for k, each in enumerate(patients()) if each.Name != left_out]
    if left_out:
        number_of(left_out)
    if left_out and only:
        raise InvalidInput(f"left_out and only must not be given both, got {left_out!r} and {only!r}")
    spread = np.array([action_spread, absorption_spread], dtype=np.float64)
    most = MOST_SPREADS * spread
    bodies = Normal([0.0, 0.0], std=spread, low=-most, high=most, how="truncated")
    recipe = {"left_out": left_out, "only": only, "action_spread": spread[0], "absorption_spread": spread[1]}
    return TaskDistribution(
        build=SimglucoseTask,
        distribution=Independent([Finite(np.array(around, dtype=np.float64)), bodies]),
        recipe={"family": "simglucose", **recipe},
    )


@dataclass(frozen=True, eq=False)
class SimglucoseTask:
    """One patient. An episode is a day from midnight to midnight, 288 steps, with the observations, the action and the
    pay of `GlucoseTask`.

    The pump knows the weight: an action is the insulin that a body of 75 kg would be given, and so is insulin on board.

    Attributes:
        parameter: [3] number in `patients()`, logarithms of action and absorption relative to that patient's.
    """

    parameter: Floats

    def __post_init__(self) -> None:
        parameter = finite_array("parameter", self.parameter)
        if parameter.shape != (3,) or parameter[0] not in range(len(patients())):
            raise InvalidInput(
                "parameter must be [number of a patient, log action, log absorption], the first from 0 to "
                f"{len(patients()) - 1}, got {parameter.tolist()}"
            )
        assign(self, parameter=parameter)

    @property
    def patient(self) -> Patient:
        number, action, absorption = self.parameter.tolist()
        return replace(patients()[int(number)], action=np.exp(action), absorption=np.exp(absorption))

    @property
    def units(self) -> Units:
        return UNITS

    @property
    def spaces(self) -> str:
        return SPACES

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (4,)

    def episodes(self, policy: Policy, steps: int) -> SimulatedDays[Days]:
        check_acts(policy)
        sample = partial(sample_days, meal_size=self.patient.meal_size)
        simulator = DaySimulator(sample, partial(SimglucoseLanes, self.patient), LANES)
        return SimulatedDays(simulator, policy, check_int("steps", steps))

    def digest(self) -> str:
        """SHA-256 of the patient and of every number in the days, the steps and what is paid."""
        name, *body = astuple(self.patient)
        told = [
            ["patient", name, *format_digits(body)],
            *([key, *format_digits(value)] for key, value in days.numbers().items()),
            ["steps", *format_digits([PARTS, BITES, TABLE, AVERAGE_BASAL])],
            ["paid", *format_digits([LOW, HIGH, BUDGET, MOST_INSULIN])],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


class SimglucoseLanes:
    """n days of a patient, side by side."""

    def __init__(self, patient: Patient, lived: Days) -> None:
        self._days = lived
        self._body, self.counted = Bodies(patient, lived.start), lived.counted

    @property
    def on_board(self) -> Floats:
        return self._body.on_board

    def reading(self, t: int) -> Floats:
        reading: Floats = np.clip(self._body.glucose + self._days.error[t], sensor()["min"], sensor()["max"])
        return reading

    def advance(self, insulin: Floats, t: int) -> None:
        self._body.advance(insulin, self._days.meals[5 * t : 5 * t + 5])

"""What is random in a day: where glucose stands at midnight, meals and how they are counted, how sensitive the body is
today, and the errors of the sensor. Where the numbers come from: docs/glucose.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats
from surefoot.lab.pump.model import STEP

STEPS = 288
START_MEDIAN, START_SPREAD, START_RANGE = 130.0, 0.2, (80.0, 220.0)  # mg/dl; of the logarithm

# Of breakfast, lunch, snack and dinner: from and to which hour, median grams of carbohydrates, how often.
MEALS = ((6.5, 8.5, 45.0, 1.0), (12.0, 14.0, 65.0, 1.0), (15.5, 17.0, 20.0, 0.5), (18.5, 20.5, 75.0, 1.0))
MEAL_SPREAD = 0.25  # of the logarithm of a meal
COUNT_SPREAD = 0.25  # of the logarithm of counted over eaten

DAY_SPREAD = 0.15  # of the logarithm of a day's sensitivity
TIDE = 0.15  # by how much of it sensitivity rises and falls within a day, highest at a random hour

SENSOR_SPREAD = 0.11  # of the relative error, whose mean size is then 8.8 %
SENSOR_MEMORY = 0.7 ** (STEP / 15)  # correlation of two errors one step apart


@dataclass(frozen=True, eq=False)
class GlucoseDays:
    """n days, side by side.

    Attributes:
        start: [n] glucose at midnight in mg/dl.
        eaten: [288, n] grams of carbohydrates at the beginning of each step.
        counted: [288, n] the same as the patient tells the pump.
        response: [288, n] ρ, the patient's sensitivity over the usual one, in each step.
        error: [289, n] relative error of the sensor before every step and after the last one.
    """

    start: Floats
    eaten: Floats
    counted: Floats
    response: Floats
    error: Floats


def sample_days(n: int, rng: np.random.Generator) -> GlucoseDays:
    """n independent days; their law is the same whoever the patient is and whatever the settings of the pump are."""
    start = np.clip(START_MEDIAN * np.exp(START_SPREAD * rng.standard_normal(n)), *START_RANGE)
    eaten, counted = _meals(n, rng)
    return GlucoseDays(start, eaten, counted, _response(n, rng), _sensor_error(n, rng))


def _meals(n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Hours do not overlap, so that a step holds one meal at most."""
    eaten, counted, lanes = np.zeros((STEPS, n)), np.zeros((STEPS, n)), np.arange(n)
    for first, last, median, often in MEALS:
        step = (rng.uniform(first, last, n) * 60 / STEP).astype(np.intp)
        grams = median * np.exp(MEAL_SPREAD * rng.standard_normal(n)) * (rng.random(n) < often)
        eaten[step, lanes] = grams
        counted[step, lanes] = grams * np.exp(COUNT_SPREAD * rng.standard_normal(n))
    return eaten, counted


def _response(n: int, rng: np.random.Generator) -> Floats:
    today = np.exp(DAY_SPREAD * rng.standard_normal(n))
    hour, phase = np.arange(STEPS) * (2 * np.pi / STEPS), rng.uniform(0, 2 * np.pi, n)
    # sin(hour + phase), as two products of one sine each
    tide = np.outer(np.sin(hour), today * np.cos(phase)) + np.outer(np.cos(hour), today * np.sin(phase))
    return today + TIDE * tide


def _sensor_error(n: int, rng: np.random.Generator) -> Floats:
    """A stationary autoregression of order one."""
    error = SENSOR_SPREAD * rng.standard_normal((STEPS + 1, n))
    for t in range(1, STEPS + 1):
        error[t] = SENSOR_MEMORY * error[t - 1] + np.sqrt(1 - SENSOR_MEMORY**2) * error[t]
    return error


# What digests are made of, in this order and by these names: they stay, whatever constants are called.
NUMBERS = (
    "COUNT_SPREAD DAY_SPREAD MEALS MEAL_SPREAD SENSOR_MEMORY SENSOR_SPREAD START_MEDIAN START_RANGE "
    "START_SPREAD STEP STEPS TIDE"
)


def numbers() -> dict[str, ArrayLike]:
    """All constants of this file by name."""
    return {name: globals()[name] for name in NUMBERS.split()}

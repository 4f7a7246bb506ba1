"""What is random in a day: where glucose stands at midnight, meals, how they are counted, and the errors of the sensor.

Meals and sensor have the laws of the package simglucose 0.2.11 (RandomScenario; CGMNoise with the parameters of its
GuardianRT, after Breton and Kovatchev 2008, J. Diabetes Sci. Technol. 2:853-862). Midnight and counting are ours:
docs/simglucose.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats
from surefoot.lab.pump.days import START_MEDIAN, START_RANGE, START_SPREAD, STEPS
from surefoot.lab.pump.model import STEP
from surefoot.lab.simglucose.patients import sensor
from surefoot.tasks.distribution import Normal

# Breakfast, snack, lunch, snack, dinner, snack: how often, hours from and to, mean and spread of hours, of grams.
MEALS = (
    (0.95, 5.0, 9.0, 7.0, 1.0, 45.0, 10.0),
    (0.3, 9.0, 10.0, 9.5, 0.5, 10.0, 5.0),
    (0.95, 10.0, 14.0, 12.0, 1.0, 70.0, 10.0),
    (0.3, 14.0, 16.0, 15.0, 0.5, 10.0, 5.0),
    (0.95, 16.0, 20.0, 18.0, 1.0, 80.0, 10.0),
    (0.3, 20.0, 23.0, 21.5, 0.5, 10.0, 5.0),
)
COUNT_SPREAD = 0.2  # of the logarithm of counted over eaten
SENSOR_STEP, SENSOR_BLOCK = 15, 10  # minutes between errors that are drawn, and how many of them a cubic spline joins


@dataclass(frozen=True, eq=False)
class Days:
    """n days, side by side.

    Attributes:
        start: [n] glucose at midnight in mg/dl.
        meals: [1440, n] grams of carbohydrates of a meal that begins in a minute.
        counted: [288, n] grams of the meals that begin in a step, as the patient tells the pump.
        error: [289, n] mg/dl that the sensor is off by, before every step and after the last one.
    """

    start: Floats
    meals: Floats
    counted: Floats
    error: Floats


def sample_days(n: int, rng: np.random.Generator, meal_size: float = 1.0) -> Days:
    """n independent days; meals are so many times those of the package."""
    start = np.clip(START_MEDIAN * np.exp(START_SPREAD * rng.standard_normal(n)), *START_RANGE)
    meals = sample_meals(n, rng) * meal_size
    counted = meals.reshape(STEPS, -1, n).sum(axis=1) * np.exp(COUNT_SPREAD * rng.standard_normal((STEPS, n)))
    return Days(start, meals, counted, sample_errors(n, rng))


def sample_meals(n: int, rng: np.random.Generator) -> Floats:
    """[1440, n] grams: whole minutes and grams, each meal by itself."""
    meals, lanes = np.zeros((1440, n)), np.arange(n)
    for often, first, last, hour, hours, grams, spread in MEALS:
        law = Normal([60 * hour], std=[60 * hours], low=[60 * first], high=[60 * last], how="truncated")
        minute = np.round(law.sample(n, rng)[:, 0]).astype(np.intp)
        eaten = np.maximum(np.round(rng.normal(grams, spread, n)), 0.0)
        meals[minute, lanes] += eaten * (rng.random(n) < often)
    return meals


def sample_errors(n: int, rng: np.random.Generator) -> Floats:
    """[289, n] mg/dl: an autoregression every quarter of an hour, bent by Johnson's transform, splines in between."""
    by_name, blocks = sensor(), -(-(STEPS + 1) * int(STEP) // (SENSOR_STEP * SENSOR_BLOCK))
    hidden = rng.standard_normal((1 + blocks * SENSOR_BLOCK, n))
    for t in range(1, len(hidden)):
        hidden[t] = by_name["PACF"] * (hidden[t - 1] + hidden[t])
    drawn = by_name["xi"] + by_name["lambda"] * np.sinh((hidden - by_name["gamma"]) / by_name["delta"])
    joined = [_spline() @ drawn[k : k + SENSOR_BLOCK + 1] for k in range(0, len(drawn) - 1, SENSOR_BLOCK)]
    return np.concatenate(joined)[: STEPS + 1]


@cache
def _spline() -> Floats:
    """[30, 11] from the errors drawn for a block to those of its readings, of which the first is after 5 minutes."""
    from scipy.interpolate import interp1d  # takes longer to import than all families together

    drawn = SENSOR_STEP * np.arange(SENSOR_BLOCK + 1)
    found: Floats = interp1d(drawn, np.eye(len(drawn)), kind="cubic", axis=0)(np.arange(STEP, drawn[-1] + 1, STEP))
    return found


def numbers() -> dict[str, ArrayLike]:
    """All of what a day's law is made of, by name."""
    return {"MEALS": MEALS, "COUNT_SPREAD": COUNT_SPREAD, "SENSOR": [SENSOR_STEP, SENSOR_BLOCK], **sensor()}

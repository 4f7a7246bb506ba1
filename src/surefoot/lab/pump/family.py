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
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, assign, check_int, finite_array, generator
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.pump import days, model
from surefoot.lab.pump.days import STEPS, GlucoseDays, sample_days
from surefoot.lab.pump.model import Bodies, Patient
from surefoot.tasks.distribution import LogUniform
from surefoot.tasks.task_distribution import TaskDistribution

LOW, HIGH = 70.0, 180.0  # mg/dl, both in range
BUDGET = 0.04
SENSOR_RANGE = (40.0, 400.0)
MOST_INSULIN = 25.0  # U in a step: the largest bolus that usual pumps give
TREND_STEPS = 3
DIGEST_DIGITS = 12
LANES = 1024  # days side by side: their arrays stay in the cache

SPACES = (
    "1 constraint(s), observations [glucose mg/dl, its change in 15 min, counted carbohydrates g, insulin on board U], "
    "actions [insulin U]"
)
OPTIONS = {
    "least_sensitivity": "least sensitivity to insulin, over the mean",
    "most_sensitivity": "largest sensitivity to insulin, over the mean",
    "fastest": "least time of absorption of insulin, in minutes",
    "slowest": "largest time of absorption of insulin, in minutes",
}
DayLaw: TypeAlias = Callable[[int, np.random.Generator], GlucoseDays]
UNITS = Units(1.0, (0.0, 1 / STEPS), np.array([[0.0, 1 / STEPS]]), np.array([BUDGET]), STEPS)


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

    def episodes(self, policy: Policy, steps: int) -> SimulatedDays:
        if not callable(getattr(policy, "act", None)):
            raise InvalidInput(f"policy must be one that can act, got {type(policy).__name__}")
        return SimulatedDays(self.patient, policy, min(check_int("steps", steps), STEPS), self.law)

    def digest(self) -> str:
        """SHA-256 of the patient and of every number in the model, the days and what is paid."""
        told = [
            ["parameter", *_format_digits(self.parameter)],
            *([name, *_format_digits(value)] for part in (model, days) for name, value in part.numbers().items()),
            ["paid", *_format_digits([LOW, HIGH, BUDGET, *SENSOR_RANGE, MOST_INSULIN])],
            *([] if self.law is sample_days else [["law", self.law.__module__, self.law.__qualname__]]),
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class SimulatedDays:
    """Days of a patient under a policy, which end after `steps` steps."""

    patient: Patient
    policy: Policy
    steps: int
    law: DayLaw = sample_days

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Shares of the readings in and below range; if asked for with observations [n, steps+1, 4] and actions
        [n, steps, 1]."""
        count = check_int("episodes", episodes)
        acting = np.random.default_rng(generator("rng", rng).integers(2**63, size=2))
        sizes = [min(LANES, count - done) for done in range(0, count, LANES)]
        return Outcomes.joined([self._block(self.law(size, rng), acting, transitions) for size in sizes])

    def _block(self, days: GlucoseDays, acting: np.random.Generator, transitions: bool) -> Outcomes:
        n, steps = len(days.start), self.steps
        body = Bodies(self.patient, days.start)
        seen, given = np.zeros((steps + 1, 4, n)), np.empty((steps if transitions else 1, n))
        readings = seen[:, 0]
        for t in range(steps + 1):
            np.clip((1 + days.error[t]) * body.glucose, *SENSOR_RANGE, out=readings[t])
            np.subtract(readings[t], readings[max(t - TREND_STEPS, 0)], out=seen[t, 1])
            seen[t, 3] = body.on_board
            if t < steps:
                seen[t, 2] = days.counted[t]
                insulin = _deliverable(self.policy.act(seen[t].T, t, acting), n, t)
                body.advance(insulin, days.eaten[t], days.response[t])
                given[t if transitions else 0] = insulin
        _check_finite(readings)
        return Outcomes(*_reward_and_cost(readings[1:]), observed=_make_observed(seen, given) if transitions else None)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _deliverable(action: Any, n: int, t: int) -> Floats:
    """[n] U that a pump can give."""
    insulin = np.asarray(action, dtype=np.float64)
    if insulin.shape != (n, 1):
        raise InvalidInput(f"actions must have shape [{n}, 1], got {list(insulin.shape)} at step {t}")
    return np.clip(insulin[:, 0], 0.0, MOST_INSULIN)


def _check_finite(readings: Floats) -> None:
    """What is no number as an action is none as a reading after it."""
    if np.isnan(readings).any():
        t = int(np.argmax(np.isnan(readings).any(axis=1)))
        raise InvalidInput(f"actions must be finite, got one that is no number at step {t - 1}")


def _reward_and_cost(readings: Floats) -> tuple[Floats, Floats]:
    """Reward [n] and cost [n, 1] of readings [steps, n]."""
    below = (readings < LOW).sum(axis=0) / STEPS
    within = ((readings >= LOW) & (readings <= HIGH)).sum(axis=0) / STEPS
    return within, below[:, None]


def _make_observed(seen: Floats, given: Floats) -> Observed:
    """From [steps+1, 4, n] and [steps, n]."""
    observations = np.ascontiguousarray(np.moveaxis(seen, 2, 0))
    actions: NDArray[Any] = np.ascontiguousarray(given.T)[..., None]
    return Observed(observations, actions, np.full(seen.shape[2], len(given)))


def _format_digits(value: ArrayLike) -> list[str]:
    """To the digits that all processors agree on."""
    return [f"{each:.{DIGEST_DIGITS}g}" for each in np.ravel(value)]

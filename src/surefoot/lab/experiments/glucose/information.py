"""What one day says about how sensitive a patient is to insulin: what bounds every method that must learn it."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.fan_out import parallel_map
from surefoot.lab.pump.days import DAY_SPREAD
from surefoot.lab.pump.family import glucose
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.streams import Stream

PATIENTS = ((1.7, 55.0), (1.0, 55.0), (0.6, 55.0))  # sensitivity and minutes
STEP = 0.1  # in the logarithm of the sensitivity, to either side
DAYS = 1000
LEAST_VARIANCE = 1e-10  # of a number that never changes


def information(policies: PolicyValueSet, seed: int, jobs: int, show: Progress) -> dict[str, Any]:
    """Per patient and settings the standard error of log-sensitivity after one day: from the two sums of the day, and
    from these and the signals, if the policy set has any."""
    calls = [(policies, patient, policy, seed) for patient in PATIENTS for policy in range(len(policies.policies))]
    return {
        "day_to_day": DAY_SPREAD,
        "days": DAYS,
        "rows": list(parallel_map("what a day says", _of_a_day, calls, jobs, show)),
    }


def _of_a_day(policies: PolicyValueSet, patient: tuple[float, float], policy: int, seed: int) -> dict[str, Any]:
    sensitivity, minutes = patient
    below, above = (
        _numbers(policies, (sensitivity * np.exp(side * STEP), minutes), policy, seed) for side in (-1.0, 1.0)
    )
    return {
        "parameter": list(patient),
        "policy": policy,
        "sums": standard_error(below[:, :2], above[:, :2], 2 * STEP),
        "signals": standard_error(below, above, 2 * STEP),
    }


def _numbers(policies: PolicyValueSet, patient: tuple[float, float], policy: int, seed: int) -> Floats:
    """[days, 2+q] sums of each day, then its signals; both patients live the same days."""
    task = glucose().task(patient)
    watched = task.episodes(policies.policies[policy], task.units.episode_length)
    outcomes = watched.run(DAYS, Stream.GLUCOSE_INFORMATION.rng(seed), transitions=True)
    readings = None if policies.cells is None else policies.cells.readings
    signals = np.empty((DAYS, 0)) if readings is None else readings.signals.of(policy, outcomes.watched())
    return np.column_stack([outcomes.reward, outcomes.cost, signals])


def standard_error(below: Floats, above: Floats, apart: float) -> float | None:
    """1/√I with the linear Fisher information I = Δᵀ Σ⁻¹ Δ / apart², where Δ [k] is the difference in means of what is
    seen [n, k] at two tasks that far apart, and Σ its covariance within a task. None where nothing is learned.

    That is the standard error of the best linear estimate from one day, the other parameters taken for known.
    """
    difference = above.mean(axis=0) - below.mean(axis=0)
    covariance = (np.cov(below.T) + np.cov(above.T)) / 2 + LEAST_VARIANCE * np.eye(below.shape[1])
    found = float(difference @ np.linalg.solve(covariance, difference)) / apart**2
    return found**-0.5 if found > 0 else None

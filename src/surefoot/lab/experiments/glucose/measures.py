"""From what was deployed to numbers: gain over never adapting, days until most of it, and who was ever unsafe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.lab.experiments.glucose.patients import Lived
from surefoot.lab.experiments.judging import STANDARD_ERRORS
from surefoot.lab.pump.family import BUDGET
from surefoot.report.metrics import binomial_interval

REACHED = 0.9  # of the possible gain
LEAST_GAIN = 0.02  # of the day: days until most of less than this are not counted
EARLY = 30  # days


def summary(patients: Sequence[Lived], contender: int, *, certified: bool, risk: float) -> dict[str, Any]:
    """One contender over all patients, as plain data. Shares are ratios of sums over the patients.

    A day counts no more gain than is safely possible: what goes beyond is bought with time below range. Days above the
    budget are not days on which most of the gain was reached. What is deployed on the first day is deployed to
    everybody; who is given anything else has `moved`.
    """
    gains = np.stack([each.gains(each.deployed[contender]) for each in patients])  # [n, D]
    possible = np.array([each.possible_gain for each in patients])
    daily = gains.sum(axis=0) / max(possible.sum(), 1e-12)
    counted = possible >= LEAST_GAIN
    left = [first((each.deployed[contender] != each.deployed[contender][0]).any(axis=1)) for each in patients]
    excess = [each.excess(each.deployed[contender], BUDGET) for each in patients]
    above, error = (np.stack(column) for column in zip(*excess, strict=True))  # [n, D] each
    unsafe_days = above > STANDARD_ERRORS * error
    unsafe = unsafe_days.any(axis=1)
    kept = np.where(unsafe_days, -np.inf, gains)[counted]
    until = [days_until(own, most) for own, most in zip(kept, possible[counted], strict=True)]
    undecided = (above > -STANDARD_ERRORS * error).any(axis=1) & ~unsafe
    worst = np.unravel_index(above.argmax(), above.shape)
    return {
        "certified": certified,
        "risk": risk,
        "tasks": len(patients),
        "unsafe_tasks": int(unsafe.sum()),
        "undecided_tasks": int(undecided.sum()),
        "unsafe_interval": list(binomial_interval(int(unsafe.sum()), len(patients))),
        "unsafe_days": int(unsafe_days.sum()),
        "largest_below": float(BUDGET + above.max()),
        "largest_below_error": float(error[worst]),
        "share_early": float(daily[:EARLY].mean()),
        "share": float(daily.mean()),
        "share_by_day": daily.tolist(),
        "in_range": float(np.mean([(each.deployed[contender] @ each.mean[:, 0]).mean() for each in patients])),
        "counted": int(counted.sum()),
        "reached": sum(each is not None for each in until),
        "days_until": until,
        "median_days": median(until),
        "moved": sum(each is not None for each in left),
        "median_moved": median(left),
    }


def known_cell_summary(patients: Sequence[Lived]) -> dict[str, Any]:
    """What is lost if the patient's cell is known from the first day: the width of the bounds."""
    gains = np.array([each.gains(each.cell_known[None])[0] for each in patients])
    possible = np.array([each.possible_gain for each in patients])
    unsafe = [each.excess(each.cell_known[None], BUDGET) for each in patients]
    return {
        "share": float(gains.sum() / max(possible.sum(), 1e-12)),
        "unsafe_tasks": sum(bool(over > STANDARD_ERRORS * error) for over, error in unsafe),
    }


def days_until(gains: Floats, possible: float) -> int | None:
    """The first day, counted from 1, whose settings have most of the possible gain; None if none does."""
    return first(gains >= REACHED * possible - 1e-12)


def first(days: Any) -> int | None:
    """The first day that is True, counted from 1."""
    return int(np.argmax(days)) + 1 if np.any(days) else None


def median(days: Sequence[int | None]) -> float | None:
    """Those who never got there got there last; None if that is the median."""
    found = float(np.median([np.inf if each is None else each for each in days])) if days else np.inf
    return found if np.isfinite(found) else None

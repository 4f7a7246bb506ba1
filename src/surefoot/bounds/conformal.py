"""By how much bounds from one sample of tasks must be widened to hold for a fresh one: a conformal quantile of what a
second, independent sample asks for (docs/guarantees.md, Theorem 1b)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.settings import Settled
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput

# How what is granted to a draw of held-out tasks is spent: on bounds from all of them; on bounds from those on which
# the safe policy is feasible, used when too many are not; and, then, on the count of the latter being misleading.
ALL_SHARE, FEASIBLE_SHARE, DOUBT_SHARE = 0.6, 0.3, 0.1


def check_holdout(settings: Settled) -> None:
    needed = 1 / (ALL_SHARE * settings.granted_seen) - 1
    if settings.holdout < needed:
        raise InvalidInput(
            f"holdout must be at least {math.ceil(needed)} for uncovered={settings.uncovered:g} in "
            f"attempt {settings.attempt}, got {settings.holdout}",
            argument="holdout",
        )


def widening_of(scores: Floats, granted: float, unsettled: Sequence[float] = ()) -> tuple[float, float]:
    """By how many widths the bounds must grow, and the probability of an infeasible safe policy that comes on top.

    An infinite score may be so only because somebody stopped to look. `unsettled` is what these would be at most if
    they turned out to be finite: they count as infeasible, and as the feasible tasks that they may be.
    """
    widening = _quantile(scores, ALL_SHARE * granted)
    if math.isfinite(widening):
        return widening, 0.0
    feasible = scores[np.isfinite(scores)]
    infeasible = binomial_upper(len(scores) - len(feasible), len(scores), DOUBT_SHARE * granted)
    return _quantile_or_largest(feasible, FEASIBLE_SHARE * granted, unsettled), infeasible


def deciding(scores: Floats, granted: float) -> int:
    """Of how many of the largest scores the widening is the smallest; infinite ones decide what comes on top."""
    count, feasible = len(scores), int(np.isfinite(scores).sum())
    most = count + 1 - _rank(count, ALL_SHARE * granted)
    return most if count - feasible < most else count + 1 - min(_rank(feasible, FEASIBLE_SHARE * granted), feasible)


def _quantile(scores: Floats, level: float) -> float:
    """The score that a further one exceeds with probability at most `level`; infinite if there are too few."""
    rank = _rank(len(scores), level)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def _quantile_or_largest(scores: Floats, level: float, further: Sequence[float]) -> float:
    """The same whichever of `further` are among the scores, and the largest of all where there are too few: of tasks
    that may be infeasible that is exceeded seldom enough as well (Theorem 1b)."""
    if not len(scores):
        raise InvalidInput(
            "holdout must leave tasks on which the safe policy is feasible, got none; take a safer safe policy (xi), "
            "and where tasks are simulated more episodes. A new draw is another attempt, to be declared and paid for "
            "as such",
            argument="holdout",
        )
    beyond = len(scores) - min(_rank(len(scores), level), len(scores))  # scores that may be larger
    return float(np.sort(np.append(scores, further))[-1 - beyond])


def _rank(count: int, level: float) -> int:
    """The k for which the k-th smallest of `count` scores is exceeded by a further one with probability ≤ `level`."""
    return math.ceil((1 - level) * (count + 1))

"""How much held-out tasks widen bounds, and what they leave uncovered: Theorem 1b, computed exactly.

Of n held-out tasks each is infeasible with probability p, and the scores of the others are all equally likely to be in
any order. So what a fresh task does depends on the number of infeasible ones and on ranks alone, and the probability
that it is not covered is a sum over that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from surefoot.arrays import Floats
from surefoot.bounds.conformal import ALL_SHARE, FEASIBLE_SHARE, check_holdout, deciding, widening_of
from surefoot.bounds.settings import Settled
from surefoot.errors import InvalidInput

Widening: TypeAlias = Callable[[Floats, float], tuple[float, float]]


def scores(count: int, infeasible: int) -> Floats:
    """One after the other, then infinite ones."""
    return np.append(np.arange(count - infeasible, dtype=np.float64), np.full(infeasible, math.inf))


def not_covered(count: int, granted: float, p: float, widening: Widening = widening_of) -> float:
    """P(a fresh task is not covered) less E[q], what is said to come on top: must be at most `granted`."""
    total = 0.0
    for infeasible in range(count):  # if all are, nothing is made of them
        reach, on_top = widening(scores(count, infeasible), granted)
        feasible = count - infeasible
        above = feasible - 1 - int(reach)  # feasible ones beyond the bounds; a fresh one is as likely in any place
        lost = p + (1 - p) * (above + 1) / (feasible + 1)
        total += stats.binom.pmf(infeasible, count, p) * (lost - on_top)
    return total


def smallest(granted: float) -> int:
    return math.ceil(1 / (ALL_SHARE * granted) - 1)


grants = st.floats(0.02, 0.3)


@settings(deadline=None, max_examples=150)
@given(grants, st.floats(1.0, 5.0), st.floats(0.0, 1.0))
def test_a_fresh_task_is_not_covered_with_at_most_the_probability_that_is_granted(
    granted: float, more: float, place: float
) -> None:
    count = math.ceil(more * smallest(granted))
    p = (5 / count) ** place / 5 if place < 1 else 0.0
    assert not_covered(count, granted, p) <= granted + 1e-12


def test_it_is_not_much_less_either() -> None:
    assert max(not_covered(41, 0.0397, p) for p in np.linspace(0, 0.1, 21)) > 0.5 * 0.0397


def nothing_on_top(found: Floats, granted: float) -> tuple[float, float]:
    return widening_of(found, granted)[0], 0.0


def the_second_largest(found: Floats, granted: float) -> tuple[float, float]:
    reach, on_top = widening_of(found, granted)
    return max(reach - 1, 0.0), on_top


@pytest.mark.parametrize("mutant", [nothing_on_top, the_second_largest])
def test_mutants_are_caught(mutant: Widening) -> None:
    granted = 0.04
    worst = max(not_covered(smallest(granted), granted, p, mutant) for p in (0.0, 0.01, 0.03, 0.1))
    assert worst > granted


@given(grants, st.integers(0, 12))
def test_the_smallest_number_that_is_accepted_survives_doubtful_tasks(granted: float, doubtful: int) -> None:
    """With one of them or more it used to take twice as many held-out tasks."""
    count = smallest(granted)
    check_holdout(Settled(cells=1, holdout=count, uncovered=2 * granted))
    doubtful = min(doubtful, count - 1)
    found = scores(count, doubtful)
    reach, on_top = widening_of(found, granted)
    assert reach == count - doubtful - 1, "the largest that is known"
    assert (on_top > 0) == (doubtful > 0)
    assert deciding(found, granted) == doubtful + 1


def test_without_any_feasible_task_there_are_no_bounds() -> None:
    with pytest.raises(InvalidInput, match="holdout must leave tasks on which the safe policy is feasible, got none"):
        widening_of(scores(50, 50), 0.1)


def test_where_there_are_enough_feasible_tasks_the_quantile_is_theirs() -> None:
    granted = 0.1
    count = math.ceil(3 / (FEASIBLE_SHARE * granted))
    reach, _ = widening_of(scores(count + 20, 20), granted)
    assert count - 1 - reach == math.floor(FEASIBLE_SHARE * granted * (count + 1)) - 1 == 2

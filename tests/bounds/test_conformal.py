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
from surefoot.bounds.conformal import ALL_SHARE, FEASIBLE_SHARE, check_holdout, conformal_quantile, quantile_rank
from surefoot.bounds.settings import ResolvedBounds
from surefoot.errors import InvalidInput

Widening: TypeAlias = Callable[[Floats, float], tuple[float, float]]


def scores(count: int, infeasible: int) -> Floats:
    """One after the other, then infinite ones."""
    return np.append(np.arange(count - infeasible, dtype=np.float64), np.full(infeasible, math.inf))


def not_covered(count: int, alpha: float, p: float, widening: Widening = conformal_quantile) -> float:
    """P(a fresh task is not covered) less E[q], what is said to come on top: must be at most `alpha`."""
    total = 0.0
    for infeasible in range(count):  # if all are, nothing is made of them
        reach, on_top = widening(scores(count, infeasible), alpha)
        feasible = count - infeasible
        above = feasible - 1 - int(reach)  # feasible ones beyond the bounds; a fresh one is as likely in any place
        lost = p + (1 - p) * (above + 1) / (feasible + 1)
        total += stats.binom.pmf(infeasible, count, p) * (lost - on_top)
    return total


def smallest(alpha: float) -> int:
    return math.ceil(1 / (ALL_SHARE * alpha) - 1)


grants = st.floats(0.02, 0.3)


@settings(max_examples=3 * settings().max_examples)
@given(grants, st.floats(1.0, 5.0), st.floats(0.0, 1.0))
def test_a_fresh_task_is_not_covered_with_at_most_the_probability_alpha(
    alpha: float, more: float, place: float
) -> None:
    count = math.ceil(more * smallest(alpha))
    p = (5 / count) ** place / 5 if place < 1 else 0.0
    assert not_covered(count, alpha, p) <= alpha + 1e-12


def test_it_is_not_much_less_either() -> None:
    assert max(not_covered(41, 0.0397, p) for p in np.linspace(0, 0.1, 21)) > 0.5 * 0.0397


def nothing_on_top(found: Floats, alpha: float) -> tuple[float, float]:
    return conformal_quantile(found, alpha)[0], 0.0


def the_second_largest(found: Floats, alpha: float) -> tuple[float, float]:
    reach, on_top = conformal_quantile(found, alpha)
    return max(reach - 1, 0.0), on_top


@pytest.mark.parametrize("mutant", [nothing_on_top, the_second_largest])
def test_mutants_are_caught(mutant: Widening) -> None:
    alpha = 0.04
    worst = max(not_covered(smallest(alpha), alpha, p, mutant) for p in (0.0, 0.01, 0.03, 0.1))
    assert worst > alpha


@given(grants, st.integers(0, 12))
def test_the_smallest_number_that_is_accepted_survives_doubtful_tasks(alpha: float, doubtful: int) -> None:
    """With one of them or more it used to take twice as many held-out tasks."""
    count = smallest(alpha)
    check_holdout(ResolvedBounds(cells=1, holdout=count, uncovered=2 * alpha))
    doubtful = min(doubtful, count - 1)
    found = scores(count, doubtful)
    reach, on_top = conformal_quantile(found, alpha)
    assert reach == count - doubtful - 1, "the largest that is known"
    assert (on_top > 0) == (doubtful > 0)
    assert quantile_rank(found, alpha) == doubtful + 1


def test_without_any_feasible_task_there_are_no_bounds() -> None:
    with pytest.raises(InvalidInput, match="holdout must leave tasks on which the safe policy is feasible, got none"):
        conformal_quantile(scores(50, 50), 0.1)


def test_where_there_are_enough_feasible_tasks_the_quantile_is_theirs() -> None:
    alpha = 0.1
    count = math.ceil(3 / (FEASIBLE_SHARE * alpha))
    reach, _ = conformal_quantile(scores(count + 20, 20), alpha)
    assert count - 1 - reach == math.floor(FEASIBLE_SHARE * alpha * (count + 1)) - 1 == 2

"""Names at the ends of lines: apart, in order, and as close to their lines as that allows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from surefoot.report.figures import spread

PLACES = st.lists(st.floats(0, 100), min_size=1, max_size=8)


@given(PLACES)
def test_names_keep_their_order_their_distance_and_stay_inside(places: list[float]) -> None:
    found = spread(places, gap=10, low=0, high=100)
    order = sorted(range(len(places)), key=lambda k: (places[k], -k))
    assert all(found[after] - found[before] >= 10 - 1e-9 for before, after in pairwise(order))
    assert min(found) >= -1e-9
    assert max(found) <= 100 + 1e-9


def test_names_that_do_not_touch_stay_where_their_lines_end() -> None:
    assert spread([5.0, 40.0, 90.0], gap=10, low=0, high=100) == [5.0, 40.0, 90.0]


def test_of_equal_ends_the_first_is_the_highest() -> None:
    assert spread([50.0, 50.0, 50.0], gap=10, low=0, high=100) == [60.0, 50.0, 40.0]


@pytest.mark.parametrize("seed", range(5))
def test_they_are_moved_by_the_least_squares(seed: int) -> None:
    """Against a general solver, on distances alone."""
    places = np.sort(np.random.default_rng(seed).uniform(40, 60, 5))
    bounds = [{"type": "ineq", "fun": lambda y, k=k: y[k + 1] - y[k] - 8} for k in range(4)]
    best = minimize(lambda y: ((y - places) ** 2).sum(), places + 8 * np.arange(5), constraints=bounds, tol=1e-12)
    assert spread(list(places), gap=8, low=-1e3, high=1e3) == pytest.approx(best.x, abs=1e-4)

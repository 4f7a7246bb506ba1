"""What bounds allow, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surefoot.bounds.prospects import Prospects

# One cell: the safe policy earns 0 with margin 1, "good" earns 2 and keeps the budget, "best" earns 3 and does not.
REWARD = np.array([[0.0, 2.0, 3.0]])
MARGIN = np.array([[[1.0], [0.2], [-1.0]]])
NAMES = ("safe", "good", "best")


def prospects(*shown: float, prior: float = 1.0) -> Prospects:
    return Prospects(np.array([prior]), REWARD, MARGIN, np.array(shown)[None, :, None])


def test_known_values_allow_everything() -> None:
    assert prospects(1.0, 0.2, -1.0).share == 1
    assert prospects(1.0, 0.2, -1.0).lines(NAMES, 60) == (
        "with these bounds about 100% of the possible gain can be had at most",
    )


def test_a_bound_beyond_the_budget_allows_a_part_of_a_policy() -> None:
    """Beside a margin of 1 a shortfall of 1/3 allows 3/4 of the policy, hence 1.5 of 2."""
    found = prospects(1.0, -1 / 3, -4.0)
    assert found.share == pytest.approx(0.75)
    assert found.limiting == 1
    assert found.after(16) == 1, "the bound is then a quarter as far from 0.2, which is above 0"


def test_of_several_bounds_the_one_that_costs_most_is_named_with_what_more_simulation_would_give() -> None:
    found = prospects(0.5, -2.0, -30.0)
    assert found.share == pytest.approx(0.2)
    line, other_way = found.lines(NAMES, seconds=30)
    assert "calibrate(policies, tasks, method='posterior'" in other_way
    assert "about 20% of the possible gain" in line
    assert "the cost bound of 'good' limits it most" in line
    times = 32
    assert found.after(times) >= 0.75 > found.after(times / 2)
    assert f"About {math.ceil((times - 1) / 2)} minute(s) more of simulation, {times} times as many episodes" in line


def test_more_episodes_never_allow_less() -> None:
    found = prospects(0.5, -2.0, -30.0)
    shares = [found.after(times) for times in (1, 2, 4, 8, 16, 32)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(found.share)


def test_where_no_candidate_is_better_nothing_can_be_gained() -> None:
    worse = Prospects(np.array([1.0]), -REWARD, MARGIN, MARGIN)
    assert math.isnan(worse.share)
    assert "nothing can be gained" in worse.lines(NAMES, 60)[0]

"""Units: what is refused, and the conversions with a horizon and without."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot import theory
from surefoot.cmdp.units import NEGLIGIBLE, Units
from surefoot.errors import InvalidInput

UNITS = Units(0.9, (-1.0, 3.0), np.array([[0.0, 10.0], [-2.0, 1.0]]), np.array([1.5, 4.0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": 1.0}, "discount must lie strictly between 0 and 1, or be 1 with a horizon, got 1.0"),
        ({"discount": 0.0, "horizon": 5}, "discount must .* got 0.0 with horizon 5"),
        ({"discount": 1.1, "horizon": 5}, "discount must .* got 1.1 with horizon 5"),
        ({"discount": "x"}, "discount must be a number, got 'x'"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"horizon": 3.0}, "horizon must be a whole number of at least 1, got 3.0"),
        ({"reward_range": (3.0, -1.0)}, "reward_range must be .low, high. with low ≤ high"),
        ({"reward_range": (0.0, np.nan)}, r"reward_range\[1\] must be finite"),
        ({"cost_range": np.zeros((1, 2))}, r"cost_range must be .* \[m, 2\] with low ≤ high"),
        ({"cost_range": [[0, 1], [1, 0]]}, r"cost_range must be .* with low ≤ high"),
        ({"budget": np.array([1, np.nan])}, r"budget\[1\] must be finite"),
        ({"budget": np.zeros((1, 1))}, r"budget must be a number or \[m\]"),
    ],
)
def test_what_is_no_unit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        dataclasses.replace(UNITS, **change)


def test_arrays_are_copied_and_read_only() -> None:
    budget = np.array([1.5, 4.0])
    units = dataclasses.replace(UNITS, budget=budget)
    budget[0] = 7
    assert units.budget.tolist() == [1.5, 4.0]
    with pytest.raises(ValueError, match="read-only"):
        units.cost_range[0, 0] = 1


def test_one_range_for_all_constraints() -> None:
    units = Units(0.9, (0, 1), (0.0, 2.0), [1.0, 2.0])  # type: ignore[arg-type]
    assert units.cost_range.tolist() == [[0.0, 2.0], [0.0, 2.0]]


discounts = st.one_of(st.just(1.0), st.floats(0.05, 0.999))


@given(discounts, st.integers(1, 300))
def test_value_ranges_with_a_horizon_are_those_of_the_sums(discount: float, horizon: int) -> None:
    units = dataclasses.replace(UNITS, discount=discount, horizon=horizon)
    weight = sum(discount**t for t in range(horizon))
    np.testing.assert_allclose(units.reward_value_range, (-weight, 3 * weight), rtol=1e-9)
    np.testing.assert_allclose(units.cost_value_range, weight * units.cost_range, rtol=1e-9)
    worst = units.worst_value(ends=False) * units.cost_scale
    np.testing.assert_allclose(worst, [max(10 * weight - 1.5, 0), max(weight - 4, 0)])
    # What the conversion is for: spending the even rate in every step is exactly the budget.
    even = units.rate * units.budget
    np.testing.assert_allclose(units.unit_constraint(even[:, None]), 0, atol=1e-12)
    np.testing.assert_allclose(weight * even, units.budget, rtol=1e-9)


@given(discounts, st.integers(1, 40), st.integers(1, 60))
def test_what_a_shorter_episode_misses(discount: float, horizon: int, steps: int) -> None:
    units = dataclasses.replace(UNITS, discount=discount, horizon=horizon)
    weights = [discount**t for t in range(horizon)]
    assert units.missing_share(steps) == pytest.approx(sum(weights[steps:]) / sum(weights), abs=1e-12)


def test_without_a_horizon_nothing_has_changed() -> None:
    assert UNITS.rate == 1 - 0.9
    assert UNITS.effective_discount == 0.9
    assert UNITS.missing_share(7) == 0.9**7
    assert UNITS.reward_value_range == (-1 / (1 - 0.9), 3 / (1 - 0.9))
    length = UNITS.episode_length
    assert 0.9**length <= NEGLIGIBLE < 0.9 ** (length - 1)


@given(discounts, st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_the_lipschitz_constant_of_the_effective_discount_holds(discount: float, horizon: int, seed: int) -> None:
    """|V - V'| ≤ L·d for two random chains over H steps: the one step of the proofs that knows of time."""
    rng = np.random.default_rng(seed)
    units = dataclasses.replace(UNITS, discount=discount, horizon=horizon)
    first, second = rng.dirichlet(np.ones(3), (2, 3))
    rewards = rng.random((2, 3))
    values = []
    for chain, reward in ((first, rewards[0]), (second, rewards[1])):
        onwards = np.zeros(3)
        for _ in range(horizon):
            onwards = reward + discount * chain @ onwards
        values.append(onwards[0])
    distance = max(np.abs(first - second).sum(axis=1).max() / 2, np.abs(rewards[0] - rewards[1]).max())
    assert abs(values[0] - values[1]) <= theory.lipschitz_constant(units.effective_discount) * distance + 1e-9


def test_same_units_have_the_same_horizon() -> None:
    assert UNITS.same_as(dataclasses.replace(UNITS))
    assert not UNITS.same_as(dataclasses.replace(UNITS, horizon=10))


# ------------------------------------------------------------------------------ what is possible where nothing is known

ends_of_a_range = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).map(sorted)


@given(discounts, st.integers(1, 5), ends_of_a_range, ends_of_a_range, st.booleans())
def test_possible_values_are_those_of_all_episodes(
    discount: float, horizon: int, reward: list[float], cost: list[float], ends: bool
) -> None:
    """By enumerating episodes whose steps pay the least or the most, which may end after each of their steps."""
    units = Units(discount, tuple(reward), np.array([cost]), np.array([0.7]), horizon)  # type: ignore[arg-type]
    lengths = range(horizon + 1) if ends else [horizon]
    rewards, costs = (
        [
            sum(discount**t * x for t, x in enumerate(steps))
            for n in lengths
            for steps in itertools.product(pays, repeat=n)
        ]
        for pays in (reward, cost)
    )
    least, most = units.possible_values(ends=ends)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(least, [min(rewards), min(0.7 - max(costs), 0.0)], **close)
    np.testing.assert_allclose(most, [max(rewards), 0.7 - min(costs)], **close)
    spread, scale = max(costs) - min(costs), units.cost_scale
    np.testing.assert_allclose(units.constraint_width(ends=ends) * scale / units.rate, spread, **close)
    np.testing.assert_allclose(units.worst_value(ends=ends) * scale, max(max(costs) - 0.7, 0.0), **close)
    assert units.reward_width(ends=ends) * units.reward_scale / units.rate >= max(rewards) - min(rewards) - 1e-9


def test_ranges_that_hold_0_are_the_same_with_and_without_ends() -> None:
    for units in (UNITS, dataclasses.replace(UNITS, discount=1.0, horizon=7)):
        for with_ends, without in zip(units.possible_values(ends=True), units.possible_values(ends=False), strict=True):
            assert with_ends.tobytes() == without.tobytes()
        assert units.constraint_width(ends=True).tobytes() == units.constraint_width(ends=False).tobytes()
        assert units.worst_value(ends=True).tobytes() == units.worst_value(ends=False).tobytes()
        assert units.reward_width(ends=True) == units.reward_width(ends=False) == 1.0

"""Confidence sequences: formulas against slow second computations, and exact equality of blocks and single steps."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from confidence_paths import path
from surefoot import confidence
from surefoot.confidence import Betting, one_bet
from surefoot.errors import InvalidInput

SEQUENCES = [
    Betting(0.05),
    Betting(0.1, side="lower"),
    Betting(0.1, side="upper", stakes=(0.1, 0.5, 0.9)),
]

unit = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.1, 0.5]))


def each(sequences):
    return pytest.mark.parametrize("sequence", sequences, ids=label)


def label(sequence):
    return f"{sequence.level}-{sequence.side}"


# ------------------------------------------------------------------------------------------- formulas, computed twice


def slow_betting_upper_bound(values, stakes, threshold):
    """Least m with avg Π(1 + f(m-X)/(1-m)) ≥ threshold, f = b(1-m)/(1-bm), by plain products and bisection."""

    def excess(mean):
        capital = 0.0
        for stake in stakes:
            fraction = stake * (1 - mean) / (1 - stake * mean)
            capital += math.prod(1 + fraction * (mean - x) / (1 - mean) for x in values) / len(stakes)
        return math.log(capital / threshold)

    highest = 1 - 1e-12
    if excess(highest) < 0:
        return 1.0
    return optimize.brentq(excess, 0.0, highest, xtol=1e-14)


@given(
    st.lists(unit, min_size=1, max_size=40),
    st.sampled_from([0.001, 0.05, 0.6]),
    st.sampled_from([confidence.DEFAULT_STAKES, (0.3,), (0.05, 0.5, 0.99)]),
)
def test_betting_bound_is_the_mean_at_which_the_capital_reaches_the_threshold(values, level, stakes):
    sequence = Betting(level, stakes=stakes)
    lower, upper = sequence.interval(sequence.update(sequence.start(), values))
    expected_upper = slow_betting_upper_bound(values, stakes, 2 / level)
    expected_lower = 1 - slow_betting_upper_bound([1 - x for x in values], stakes, 2 / level)
    assert upper == pytest.approx(expected_upper, abs=1e-9)
    assert lower == pytest.approx(expected_lower, abs=1e-9)
    assert upper >= expected_upper - 1e-12  # stopped early, the iteration errs outwards
    assert lower <= expected_lower + 1e-12


def test_betting_bound_after_many_observations():
    values = np.random.default_rng(0).beta(2, 6, size=50_000)
    sequence = Betting(0.05)
    _, upper = sequence.interval(sequence.update(sequence.start(), values))
    stakes = np.array(confidence.DEFAULT_STAKES)
    sums = [math.fsum(np.log1p(-b * values)) for b in stakes]
    logs = np.array(sums) - len(values) * np.log1p(-stakes * float(upper))
    assert np.logaddexp.reduce(logs) - math.log(len(stakes)) == pytest.approx(math.log(40), abs=1e-6)


# ------------------------------------------------------------------------------------ blocks and single steps, exactly


@st.composite
def split_values(draw):
    values = draw(st.lists(unit, min_size=1, max_size=30))
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=5)))
    return np.array(values), [0, *cuts, len(values)]


@each(SEQUENCES)
@given(split_values())
def test_any_split_gives_the_same_state_to_the_last_bit(sequence, split):
    values, cuts = split
    whole = sequence.update(sequence.start(), values)
    parts = sequence.start()
    for first, last in pairwise(cuts):
        parts = sequence.update(parts, values[first:last])
    assert parts.count == whole.count == len(values)
    assert np.array_equal(parts.sums, whole.sums)
    assert sequence.interval(parts) == sequence.interval(whole)


@each(SEQUENCES)
def test_long_block_equals_single_steps_and_path_equals_the_intervals_on_the_way(sequence):
    rng = np.random.default_rng(1)
    values = np.where(rng.random(1200) < 0.5, rng.random(1200), rng.random(1200) < 0.1)
    lower, upper = path(sequence, values)
    state = sequence.start()
    for i, value in enumerate(values):
        state = sequence.update(state, [value])
        assert sequence.interval(state) == (lower[i], upper[i])
    assert np.array_equal(sequence.update(sequence.start(), values).sums, state.sums)


@each(SEQUENCES)
def test_means_side_by_side_equal_separate_sequences(sequence):
    values = np.random.default_rng(2).random((300, 2, 3))
    state = sequence.update(sequence.start((2, 3)), values)
    lower, upper = sequence.interval(state)
    path_lower, path_upper = path(sequence, values)
    assert lower.shape == upper.shape == (2, 3)
    assert path_lower.shape == path_upper.shape == (300, 2, 3)
    for i, j in np.ndindex(2, 3):
        alone = sequence.update(sequence.start(), values[:, i, j])
        assert np.array_equal(state.sums[i, j], alone.sums)
        assert (lower[i, j], upper[i, j]) == sequence.interval(alone)
        assert np.array_equal(np.stack(path(sequence, values[:, i, j])), [path_lower[:, i, j], path_upper[:, i, j]])


@each(SEQUENCES)
def test_state_has_constant_size_and_updates_leave_the_old_one_alone(sequence):
    start = sequence.start()
    before = start.sums.copy()
    after = sequence.update(start, np.full(5000, 0.25))
    assert start.count == 0
    assert np.array_equal(start.sums, before)
    assert after.sums.shape == start.sums.shape
    assert after.sums.base is None  # a view would keep the whole block in memory
    assert not after.sums.flags.writeable
    assert sequence.update(after, []) is after


# ------------------------------------------------------------------------------------------------ order and symmetry


@given(st.lists(st.tuples(unit, unit), min_size=1, max_size=30))
def test_larger_observations_move_both_bounds_up(pairs):
    sequence = Betting(0.1)
    smaller, larger = np.sort(np.array(pairs), axis=1).T
    low = np.stack(path(sequence, smaller))
    high = np.stack(path(sequence, larger))
    assert (low <= high + 1e-9).all()


@given(st.lists(unit, min_size=1, max_size=30))
def test_interval_contains_the_average_and_grows_as_the_level_falls(values):
    average = np.cumsum(values) / np.arange(1, len(values) + 1)
    lower, upper = path(Betting(0.05), values)
    assert (lower <= average + 1e-12).all()
    assert (average <= upper + 1e-12).all()
    strict_lower, strict_upper = path(Betting(0.01), values)
    assert (strict_lower <= lower + 1e-9).all()
    assert (upper <= strict_upper + 1e-9).all()


def test_mirrored_observations_mirror_the_interval():
    sequence = Betting(0.1)
    values = np.random.default_rng(3).beta(1, 5, size=400)
    lower, upper = path(sequence, values)
    mirrored_lower, mirrored_upper = path(sequence, 1 - values)
    np.testing.assert_allclose(mirrored_lower, 1 - upper, atol=1e-9)
    np.testing.assert_allclose(mirrored_upper, 1 - lower, atol=1e-9)


def test_one_side_has_the_bound_of_both_sides_at_twice_the_level():
    values = np.random.default_rng(4).random(500)
    lower, upper = path(Betting(0.1), values)
    only_lower = path(Betting(0.05, side="lower"), values)
    only_upper = path(Betting(0.05, side="upper"), values)
    np.testing.assert_allclose(only_lower[0], lower, atol=1e-9)
    np.testing.assert_allclose(only_upper[1], upper, atol=1e-9)
    assert (only_lower[1] == 1).all()
    assert (only_upper[0] == 0).all()


def test_the_interval_recovers_from_a_mean_that_drifts():
    lower, upper = path(Betting(0.05), np.repeat([0.0, 1.0], 500))
    assert upper[-1] > upper[499]
    assert (lower <= upper).all()


# -------------------------------------------------------------------------------------------- width and degenerate data


def fixed_time_radius(count):
    """Hoeffding's, at level 0.05: the best that does not look at the variance, and for one time only."""
    return math.sqrt(math.log(40) / (2 * count))


def test_low_variance_makes_betting_far_narrower_than_hoeffding():
    lower, upper = path(Betting(0.05), 0.3 + 0.02 * np.random.default_rng(5).random(2000))
    assert upper[-1] - lower[-1] < 0.2 * fixed_time_radius(2000)


def test_betting_keeps_up_where_the_variance_is_largest():
    values = (np.random.default_rng(6).random((3000, 20)) < 0.5).astype(float)
    lower, upper = path(Betting(0.05), values)
    for count in (100, 1000, 3000):
        assert (upper - lower)[count - 1].mean() < 2 * 1.7 * fixed_time_radius(count)


@pytest.mark.short_for(value=[0.3], sequence=SEQUENCES[::2])
@each(SEQUENCES)
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_constant_observations_close_in_on_their_value(sequence, value):
    lower, upper = path(sequence, np.full(20_000, value))
    assert (lower <= value).all()
    assert (upper >= value).all()
    if sequence.side != "upper":
        assert lower[-1] > value - 0.02
        assert (np.diff(lower) >= -1e-9).all()
    if sequence.side != "lower":
        assert upper[-1] < value + 0.02
        assert (np.diff(upper) <= 1e-9).all()


def test_all_zero_observations_give_the_fast_rate():
    """Without variance the bound falls like 1/n: excluding a mean m takes about ln(1/α)/m observations."""
    _, upper = path(Betting(0.05), np.zeros(10_000))
    assert upper[9999] == pytest.approx(upper[999] / 10, rel=0.1)
    assert upper[9999] < 10 / 10_000


@each(SEQUENCES)
def test_nothing_is_known_before_the_first_observation(sequence):
    assert sequence.interval(sequence.start()) == (0.0, 1.0)
    lower, upper = sequence.interval(sequence.start((2,)))
    assert lower.tolist() == [0, 0]
    assert upper.tolist() == [1, 1]


# ------------------------------------------------------------------------------------------------------------ refusals


@each(SEQUENCES)
@pytest.mark.parametrize("bad", [-0.001, 1.0000001, math.nan, math.inf])
def test_observation_outside_the_unit_interval_is_refused_by_place_and_value(sequence, bad):
    with pytest.raises(InvalidInput, match=r"observations\[2\]") as error:
        sequence.update(sequence.start(), [0.5, 1.0, bad, 7.0])
    assert repr(bad) in str(error.value)


def test_observations_of_another_shape_are_refused():
    sequence = Betting(0.05)
    with pytest.raises(InvalidInput, match=r"shape \[n\], got \[3, 2\]"):
        sequence.update(sequence.start(), np.zeros((3, 2)))
    with pytest.raises(InvalidInput, match=r"shape \[n, 2\], got \[3\]"):
        sequence.update(sequence.start((2,)), np.zeros(3))
    with pytest.raises(InvalidInput, match="shape"):
        sequence.update(sequence.start(), 0.5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Betting(0.0), "level .* got 0.0"),
        (lambda: Betting(1.0), "level .* got 1.0"),
        (lambda: Betting(math.nan), "level .* got nan"),
        (lambda: Betting(0.05, side="left"), "side .* got 'left'"),
        (lambda: Betting(0.05, stakes=()), "stakes"),
        (lambda: Betting(0.05, stakes=(0.5, 1.0)), "stakes .*1.0"),
    ],
)
def test_options_out_of_range_are_refused(build, message):
    with pytest.raises(InvalidInput, match=message):
        build()


# ------------------------------------------------------------------------------------------------------ a single bet


@given(st.lists(unit, min_size=1, max_size=60), st.floats(0.01, 0.97), st.floats(0.001, 0.9))
def test_one_bet_is_a_sequence_with_one_stake(values, stake, error):
    sequence = Betting(error, side="upper", stakes=(stake,))
    _, upper = sequence.interval(sequence.update(sequence.start(), values))
    gains = np.log1p(-stake * np.array(values)).sum()
    assert one_bet(gains, len(values), np.array(stake), error) == pytest.approx(float(upper), abs=1e-8)


def ever_wrong(error, bound, runs=1500, length=300, stake=0.6):
    """How many runs of numbers with a known mean have a bound below it at some time."""
    numbers = (np.random.default_rng(2).random((runs, length)) < 0.25).astype(np.float64)
    gains, count = np.log1p(-stake * numbers).cumsum(axis=1), np.arange(1, length + 1)
    return int((bound(gains, count, stake, error) < 0.25).any(axis=1).sum())


@pytest.mark.parametrize("error", [0.05, 0.45])
def test_a_single_bet_is_ever_wrong_as_rarely_as_it_says(error):
    wrong = ever_wrong(error, one_bet)
    assert stats.binomtest(wrong, 1500, error, alternative="greater").pvalue > 1e-4
    assert wrong > 0.1 * error * 1500, "a bound that is never wrong would be too wide"


def test_a_single_bet_without_its_price_is_caught():
    wrong = ever_wrong(0.05, lambda gains, count, stake, error: one_bet(gains, count, stake, 0.5))
    assert stats.binomtest(wrong, 1500, 0.05, alternative="greater").pvalue < 1e-4

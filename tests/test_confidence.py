"""Confidence sequences: formulas against slow second computations, and exact equality of blocks and single steps."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize

from surefoot import confidence
from surefoot.confidence import Betting, EmpiricalBernstein, Hoeffding, Running
from surefoot.errors import InvalidInput

SEQUENCES = [
    Hoeffding(0.05),
    Hoeffding(0.2, side="upper", tight_at=50),
    EmpiricalBernstein(0.05),
    EmpiricalBernstein(0.1, side="lower"),
    Betting(0.05),
    Betting(0.1, side="lower"),
    Betting(0.1, side="upper", stakes=(0.1, 0.5, 0.9)),
    Running(Hoeffding(0.05)),
    Running(EmpiricalBernstein(0.05)),
    Running(Betting(0.05)),
    Running(Betting(0.05, side="upper")),
]
CURRENT = [sequence for sequence in SEQUENCES if not isinstance(sequence, Running)]

unit = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.1, 0.5]))


def each(sequences):
    return pytest.mark.parametrize("sequence", sequences, ids=label)


def label(sequence):
    inner = getattr(sequence, "sequence", sequence)
    name = f"{type(inner).__name__}-{inner.level}-{inner.side}"
    return name if inner is sequence else f"Running-{name}"


# ------------------------------------------------------------------------------------------- formulas, computed twice


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("count", [1, 30, 1000, 40_000])
def test_hoeffding_radius_is_where_the_mixture_of_gaussian_bets_pays(level, count):
    sequence = Hoeffding(level)
    alpha = level / 2
    rho = 250 / (2 * math.log(1 / alpha) + math.log(1 + 2 * math.log(1 / alpha)))
    deviation, spread = count * sequence.radius(count), count / 4 + rho

    def integrand(stake):  # the density of |N(0, 1/ρ)| times exp(λS - λ²n/8), logarithms added before exp
        density = math.log(2) + 0.5 * math.log(rho / (2 * math.pi)) - rho * stake**2 / 2
        return math.exp(density + stake * deviation - stake**2 * count / 8)

    peak, width = deviation / spread, 1 / math.sqrt(spread)
    capital = integrate.quad(integrand, max(0.0, peak - 12 * width), peak + 12 * width, epsabs=0, epsrel=1e-11)[0]
    assert capital >= 1 / alpha
    assert capital <= (1 / alpha) * 1.2  # the closed form gives little away


def test_hoeffding_radius_is_close_to_its_best_where_it_is_said_to_be():
    best = min(float(Hoeffding(0.05, tight_at=at).radius(1000)) for at in range(100, 5000, 50))
    assert Hoeffding(0.05, tight_at=1000).radius(1000) <= 1.001 * best


def slow_bernstein_interval(values, level, cap):
    """Theorem 2 of Waudby-Smith & Ramdas with every sum written out from the start for every t, weights included."""
    regularised = [(0.5 + sum(values[: i + 1])) / (i + 2) for i in range(len(values))]
    weights, penalties = [], []
    for t in range(1, len(values) + 1):
        past = zip(values[: t - 1], regularised[: t - 1], strict=True)
        variance = (0.25 + sum((x - m) ** 2 for x, m in past)) / t
        weight = min(math.sqrt(2 * math.log(2 / level) / (variance * t * math.log(t + 1))), cap)
        before = regularised[t - 2] if t > 1 else 0.5
        psi = (-math.log(1 - weight) - weight) / 4
        weights.append(weight)
        penalties.append(4 * (values[t - 1] - before) ** 2 * psi)
    centre = sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
    radius = (math.log(2 / level) + sum(penalties)) / sum(weights)
    return max(centre - radius, 0), min(centre + radius, 1), weights


@settings(max_examples=50, deadline=None)
@given(st.lists(unit, min_size=1, max_size=40), st.sampled_from([0.01, 0.3]), st.sampled_from([0.5, 0.75]))
def test_empirical_bernstein_against_the_sums_of_the_paper_written_out(values, level, cap):
    sequence = EmpiricalBernstein(level, largest_weight=cap)
    lower, upper = sequence.interval(sequence.update(sequence.start(), values))
    expected_lower, expected_upper, _ = slow_bernstein_interval(values, level, cap)
    assert lower == pytest.approx(expected_lower, abs=1e-12)
    assert upper == pytest.approx(expected_upper, abs=1e-12)


def test_empirical_bernstein_where_the_weights_follow_the_variance():
    values = (np.random.default_rng(8).random(400) < 0.5).astype(float).tolist()
    sequence = EmpiricalBernstein(0.2)
    lower, upper = sequence.interval(sequence.update(sequence.start(), values))
    expected_lower, expected_upper, weights = slow_bernstein_interval(values, 0.2, 0.5)
    assert 0 < expected_lower < expected_upper < 1
    assert np.mean(np.array(weights) < 0.5) > 0.8  # below the cap nearly always
    assert lower == pytest.approx(expected_lower, abs=1e-12)
    assert upper == pytest.approx(expected_upper, abs=1e-12)


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


@settings(max_examples=60, deadline=None)
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
@settings(max_examples=40, deadline=None)
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
    lower, upper = sequence.path(values)
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
    path_lower, path_upper = sequence.path(values)
    assert lower.shape == upper.shape == (2, 3)
    assert path_lower.shape == path_upper.shape == (300, 2, 3)
    for i, j in np.ndindex(2, 3):
        alone = sequence.update(sequence.start(), values[:, i, j])
        assert np.array_equal(state.sums[i, j], alone.sums)
        assert (lower[i, j], upper[i, j]) == sequence.interval(alone)
        assert np.array_equal(np.stack(sequence.path(values[:, i, j])), [path_lower[:, i, j], path_upper[:, i, j]])


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


@each([Hoeffding(0.1), Betting(0.1)])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(unit, unit), min_size=1, max_size=30))
def test_larger_observations_move_both_bounds_up(sequence, pairs):
    smaller, larger = np.sort(np.array(pairs), axis=1).T
    low = np.stack(sequence.path(smaller))
    high = np.stack(sequence.path(larger))
    assert (low <= high + 1e-9).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(unit, min_size=1, max_size=30))
def test_interval_contains_the_average_and_grows_as_the_level_falls(values):
    average = np.cumsum(values) / np.arange(1, len(values) + 1)
    for rule in (Hoeffding, Betting):
        lower, upper = rule(0.05).path(values)
        assert (lower <= average + 1e-12).all()
        assert (average <= upper + 1e-12).all()
    strict_lower, strict_upper = Betting(0.01).path(values)
    assert (strict_lower <= lower + 1e-9).all()
    assert (upper <= strict_upper + 1e-9).all()


@each([Hoeffding(0.1), EmpiricalBernstein(0.1), Betting(0.1), Running(Betting(0.1))])
def test_mirrored_observations_mirror_the_interval(sequence):
    values = np.random.default_rng(3).beta(1, 5, size=400)
    lower, upper = sequence.path(values)
    mirrored_lower, mirrored_upper = sequence.path(1 - values)
    np.testing.assert_allclose(mirrored_lower, 1 - upper, atol=1e-9)
    np.testing.assert_allclose(mirrored_upper, 1 - lower, atol=1e-9)


@pytest.mark.parametrize("rule", [Hoeffding, EmpiricalBernstein, Betting])
def test_one_side_has_the_bound_of_both_sides_at_twice_the_level(rule):
    values = np.random.default_rng(4).random(500)
    lower, upper = rule(0.1).path(values)
    only_lower = rule(0.05, side="lower").path(values)
    only_upper = rule(0.05, side="upper").path(values)
    np.testing.assert_allclose(only_lower[0], lower, atol=1e-9)
    np.testing.assert_allclose(only_upper[1], upper, atol=1e-9)
    assert (only_lower[1] == 1).all()
    assert (only_upper[0] == 0).all()


def test_running_intersection_never_widens_and_may_become_empty_when_the_mean_drifts():
    values = np.repeat([0.0, 1.0], 500)
    current, running = Betting(0.05).path(values), Running(Betting(0.05)).path(values)
    assert np.array_equal(running[0], np.maximum.accumulate(current[0]))
    assert np.array_equal(running[1], np.minimum.accumulate(current[1]))
    assert current[1][-1] > current[1][499]  # the current interval recovers
    assert running[0][-1] > running[1][-1]
    assert (current[0] <= current[1]).all()


# -------------------------------------------------------------------------------------------- width and degenerate data


def test_low_variance_makes_betting_and_bernstein_far_narrower_than_hoeffding():
    values = 0.3 + 0.02 * np.random.default_rng(5).random(2000)
    widths = {}
    for rule in (Hoeffding, EmpiricalBernstein, Betting):
        lower, upper = rule(0.05).path(values)
        widths[rule] = upper - lower
    assert (widths[Betting][10:] < widths[Hoeffding][10:]).all()
    assert widths[Betting][-1] < 0.1 * widths[Hoeffding][-1]
    assert widths[Betting][-1] < widths[EmpiricalBernstein][-1]
    # With next to no variance all weights are at their cap 1/2, so the radius is ln(2/level)/(n/2).
    assert widths[EmpiricalBernstein][-1] == pytest.approx(2 * math.log(40) / 1000, rel=0.01)


def test_betting_keeps_up_with_hoeffding_where_hoeffding_is_best():
    """A fair coin has the largest variance, and Hoeffding is tuned to n = 1000."""
    values = (np.random.default_rng(6).random((10_000, 20)) < 0.5).astype(float)
    betting, hoeffding = (np.subtract(*rule(0.05).path(values)[::-1]).mean(axis=1) for rule in (Betting, Hoeffding))
    assert betting[99] < hoeffding[99]
    assert (betting[[999, 9999]] < 1.2 * hoeffding[[999, 9999]]).all()


@each(CURRENT)
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_constant_observations_close_in_on_their_value(sequence, value):
    lower, upper = sequence.path(np.full(20_000, value))
    assert (lower <= value).all()
    assert (upper >= value).all()
    if sequence.side != "upper":
        assert lower[-1] > value - 0.02
        assert (np.diff(lower) >= -1e-9).all()
    if sequence.side != "lower":
        assert upper[-1] < value + 0.02
        assert (np.diff(upper) <= 1e-9).all()


@pytest.mark.parametrize("rule", [EmpiricalBernstein, Betting])
def test_all_zero_observations_give_the_fast_rate(rule):
    """Without variance the bound falls like 1/n: excluding a mean m takes about ln(1/α)/m observations."""
    _, upper = rule(0.05).path(np.zeros(10_000))
    assert upper[9999] == pytest.approx(upper[999] / 10, rel=0.1)
    assert upper[9999] < 10 / 10_000


@each(SEQUENCES)
def test_nothing_is_known_before_the_first_observation(sequence):
    assert sequence.interval(sequence.start()) == (0.0, 1.0)
    lower, upper = sequence.interval(sequence.start((2,)))
    assert lower.tolist() == [0, 0]
    assert upper.tolist() == [1, 1]
    lower, upper = sequence.path(np.zeros((0, 2)))
    assert lower.shape == upper.shape == (0, 2)


# ------------------------------------------------------------------------------------------------------------ refusals


@each(SEQUENCES)
@pytest.mark.parametrize("bad", [-0.001, 1.0000001, math.nan, math.inf])
def test_observation_outside_the_unit_interval_is_refused_by_place_and_value(sequence, bad):
    for call in (sequence.path, lambda values: sequence.update(sequence.start(), values)):
        with pytest.raises(InvalidInput, match=r"observations\[2\]") as error:
            call([0.5, 1.0, bad, 7.0])
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
        (lambda: Hoeffding(0.0), "level .* got 0.0"),
        (lambda: EmpiricalBernstein(1.0), "level .* got 1.0"),
        (lambda: Betting(math.nan), "level .* got nan"),
        (lambda: Betting(0.05, side="left"), "side .* got 'left'"),
        (lambda: Betting(0.05, stakes=()), "stakes"),
        (lambda: Betting(0.05, stakes=(0.5, 1.0)), "stakes .*1.0"),
        (lambda: Hoeffding(0.05, tight_at=0), "tight_at .* got 0"),
        (lambda: EmpiricalBernstein(0.05, largest_weight=1.0), "largest_weight .* got 1.0"),
    ],
)
def test_options_out_of_range_are_refused(build, message):
    with pytest.raises(InvalidInput, match=message):
        build()

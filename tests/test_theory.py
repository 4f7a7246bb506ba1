"""The paper's formulas against numbers worked by hand (γ = 0.9 unless said otherwise) and against their own meaning."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from surefoot import theory

GAMMA = 0.9
XI = 0.15
EPSILON = theory.largest_epsilon(XI, GAMMA)  # 9.75e-5

discounts = st.floats(0.05, 0.99)
margins = st.floats(1e-3, 1.0)
deltas = st.floats(1e-4, 0.5)


# ------------------------------------------------------------------------------------------------ constants and horizon


def test_lipschitz_constants_and_precondition() -> None:
    assert theory.lipschitz_constant(GAMMA) == pytest.approx(190, rel=1e-13)
    assert theory.slater_requirement(1, GAMMA) == pytest.approx(1538, rel=1e-13)
    assert theory.elimination_slack(1, GAMMA) == pytest.approx(191, rel=1e-13)
    assert theory.largest_epsilon(0.15, GAMMA) == pytest.approx(9.8e-5, abs=5e-7)
    assert theory.largest_epsilon(0.05, GAMMA) == pytest.approx(3.3e-5, abs=5e-7)
    assert theory.lipschitz_constant(0.5) == pytest.approx(2 + 4)


@given(discount=discounts, xi=margins)
def test_largest_epsilon_spends_the_whole_margin(discount: float, xi: float) -> None:
    assert theory.slater_requirement(theory.largest_epsilon(xi, discount), discount) == pytest.approx(xi, rel=1e-12)


def test_horizon_of_the_gridworld() -> None:
    assert theory.horizon(GAMMA, theory.largest_epsilon(0.15, GAMMA)) == 110
    assert theory.horizon(GAMMA, theory.largest_epsilon(0.05, GAMMA)) == 120


@given(discount=discounts, tolerance=st.floats(1e-9, 100))
def test_horizon_is_the_first_with_a_small_tail(discount: float, tolerance: float) -> None:
    steps = theory.horizon(discount, tolerance)
    assert discount**steps / (1 - discount) <= tolerance * (1 + 1e-9)
    assert steps == 1 or discount ** (steps - 1) / (1 - discount) > tolerance * (1 - 1e-9)


def test_horizon_is_never_empty() -> None:
    assert theory.horizon(0.9, 10) == theory.horizon(0.9, 1e9) == 1


# ------------------------------------------------------------------------------------------------ training, Algorithm 1


@pytest.mark.parametrize(("delta", "size"), [(0.1, 531), (0.05, 3590), (0.01, 212076), (0.999, 1), (1.0, 1)])
def test_initial_sample_size(delta: float, size: int) -> None:
    assert theory.initial_sample_size(delta) == size


def test_coverage_error_by_hand() -> None:
    # 10 centres among 1010 samples, ln(2·1010/0.1) = ln 20200 = 9.9134: √(10·9.9134/1000)
    assert theory.coverage_error(10, 1010, 0.1) == pytest.approx(math.sqrt(0.0991344), rel=1e-5)
    assert theory.coverage_error(10, 10, 0.1) == theory.coverage_error(11, 10, 0.1) == math.inf
    assert theory.coverage_error(0, 10, 0.1) == 0


def gridworld_cover(mass: float, radius: float) -> float:
    """Balls of `radius` that cover the densest `mass` of the noise N(0.3, variance 0.03) cut to [0, 0.5]."""
    noise = np.linspace(0, 0.5, 100_001)
    density = norm.pdf(noise, 0.3, math.sqrt(0.03))
    densest = np.cumsum(np.sort(density)[::-1]) / density.sum()
    return 0.5 * float(np.searchsorted(densest, mass)) / len(noise) / (2 * radius)


# xi, delta, |U|, N at stop, 25δ + 9δ ln C
TABLE = [
    (0.15, 0.10, 1084, 2.2e6, 9.1),
    (0.15, 0.05, 1407, 1.5e7, 4.6),
    (0.15, 0.01, 1769, 8.7e8, 0.93),
    (0.05, 0.10, 3251, 8.7e6, 10),
    (0.05, 0.05, 4221, 5.9e7, 5.1),
    (0.05, 0.01, 5307, 1.7e9, 1.03),
]


@pytest.mark.parametrize(("xi", "delta", "cover", "samples", "failure"), TABLE)
def test_table_of_training_sizes(xi: float, delta: float, cover: int, samples: float, failure: float) -> None:
    radius = 4 / 3 * theory.largest_epsilon(xi, GAMMA)  # the transitions at noise i and j are 0.75|i-j| apart
    assert gridworld_cover(1, radius) == pytest.approx({0.15: 1923, 0.05: 5768}[xi], rel=1e-3)
    assert gridworld_cover(1 - 3 * delta, radius) == pytest.approx(cover, rel=2e-3)
    assert theory.samples_until_stop(cover, delta) == pytest.approx(samples, rel=0.03)
    number = round(gridworld_cover(1 - delta, radius))
    training_failure = 1 - theory.theorem_probability(delta, number) - delta  # the test phase adds one δ
    assert training_failure == pytest.approx(failure, rel=0.012)


@given(cover=st.integers(1, 5000), delta=deltas)
def test_sampling_stops_at_the_first_doubling_that_is_enough(cover: int, delta: float) -> None:
    first, samples = theory.initial_sample_size(delta), theory.samples_until_stop(cover, delta)
    doublings = math.log2(samples / first)
    assert doublings == pytest.approx(round(doublings), abs=1e-9)
    assert theory.coverage_error(cover, samples, delta) <= delta
    assert samples == first or theory.coverage_error(cover, samples // 2, delta) > delta


def test_the_paper_s_own_sample_size_misses_its_stopping_rule_for_tiny_covers() -> None:
    """N₀ = 4C ln²(C/δ)/δ² with |U| = (C+1) ln(1/δ) leaves an error of 1.5δ for C = 1 and 1.1δ for C = 2."""
    delta = 0.1
    for number, ratio in ((1, 1.5), (2, 1.1)):
        samples = 4 * number * math.log(number / delta) ** 2 / delta**2
        cover = (number + 1) * math.log(1 / delta)
        assert theory.coverage_error(cover, samples, delta) / delta == pytest.approx(ratio, abs=0.04)


def test_probability_of_the_theorem_is_vacuous_from_a_delta_of_0_011_on() -> None:
    covers = [round(gridworld_cover(1 - 0.01, 4 / 3 * theory.largest_epsilon(xi, GAMMA))) for xi in (0.15, 0.05)]
    assert covers == pytest.approx([1865, 5594], rel=1e-3)
    for number in covers:
        assert theory.theorem_probability(0.011, number) < 0
    assert theory.theorem_probability(0.0105, covers[0]) > 0
    assert theory.theorem_probability(5e-4, 1923) == pytest.approx(0.95, abs=0.005)
    assert theory.theorem_probability(0.01, 1) == pytest.approx(1 - 0.26)
    assert theory.theorem_probability(0.01, 0) == pytest.approx(1 - 0.26)


def test_tasks_needed_for_95_percent() -> None:
    """The stopping rule is met from 2.6e11 tasks on; doubling from ln²(δ)/δ² first passes that at 4.7e11."""
    delta, cover = 5e-4, 1916
    assert theory.coverage_error(cover, int(2.7e11), delta) < delta < theory.coverage_error(cover, int(2.6e11), delta)
    assert theory.samples_until_stop(cover, delta) == pytest.approx(4.73e11, rel=2e-3)


# ---------------------------------------------------------------------------------------- test phase: lengths of phases


def test_phase_zero_of_the_gridworld() -> None:
    assert theory.phase_length(XI, 1, GAMMA, 2) == pytest.approx(1.42e5, rel=2e-3)
    assert theory.phase_length(XI, 1, GAMMA, 2) == pytest.approx(32 / (0.1 * 0.15) ** 2, rel=1e-12)
    assert theory.phase_length(XI, 1, GAMMA, 1) * 4 == pytest.approx(theory.phase_length(XI, 1, GAMMA, 2), rel=1e-12)
    # Plugging the user's margin 1.5 into formulas meant for 0.15 would shorten phases a hundredfold.
    assert theory.phase_length(1.5, 1, GAMMA, 2) * 100 == pytest.approx(theory.phase_length(XI, 1, GAMMA, 2), rel=1e-12)
    assert theory.phase_length(0, 1, GAMMA, 2) == theory.phase_length(-0.1, 1, GAMMA, 2) == math.inf


@given(margin=margins, logarithm=st.floats(1, 50), discount=discounts, width=st.floats(0.1, 2))
def test_a_phase_ends_when_the_deviation_is_a_quarter_of_the_margin(
    margin: float, logarithm: float, discount: float, width: float
) -> None:
    length = theory.phase_length(margin, logarithm, discount, width)
    deviation = theory.deviation(length, logarithm, discount, width)
    assert deviation == pytest.approx(margin / 4, rel=1e-12)


@given(count=st.integers(1, 10**7), logarithm=st.floats(1, 50), discount=discounts)
def test_deviation_is_the_paper_s_for_width_two(count: int, logarithm: float, discount: float) -> None:
    printed = math.sqrt(2 * logarithm / (count * (1 - discount) ** 2))
    assert theory.deviation(count, logarithm, discount, 2) == pytest.approx(printed, rel=1e-12)


def test_deviation_holds_for_bounded_averages() -> None:
    """Hoeffding: averages of 100 fair coins leave the two-sided radius of level 0.1 at most 10% of the time.

    Truly 1.2%, so 20 000 of them never reach 10% by chance; with half the radius it is 19%.
    """
    rng = np.random.default_rng(0)
    discount, width = 0.5, 1.0  # a return constant along the episode: 0 or 1/(1-γ)
    averages = rng.integers(2, size=(20_000, 100)).mean(axis=1) * width / (1 - discount)
    radius = theory.deviation(100, math.log(2 / 0.1), discount, width)
    error = np.abs(averages - 0.5 / (1 - discount))
    assert (error > radius).mean() <= 0.1
    assert (error > radius / 2).mean() > 0.1


def test_union_bound() -> None:
    assert theory.log_term(10_000, 1, 0.05) == pytest.approx(math.log(4 * 10_000 / 0.05), rel=1e-14)
    assert theory.log_term(10_000, 750, 0.05) == pytest.approx(math.log(4 * 10_000 * 750 / 0.05), rel=1e-14)
    # two-sided events: reward and three constraints, K episodes, Φ phases, each of probability exp(-log_term)
    events = 2 * 4 * 10_000 * 750
    assert events * math.exp(-theory.log_term(10_000, 750, 0.05, quantities=4)) == pytest.approx(0.05, rel=1e-12)


def episodes_to_leave(margin: float, delta: float, phases: int = 1, width: float = 2) -> float:
    """The least K whose phase 0 ends within K episodes."""
    episodes = 10**6
    for _ in range(100):
        episodes = math.ceil(theory.phase_length(margin, theory.log_term(episodes, phases, delta), GAMMA, width))
    return episodes


@pytest.mark.parametrize(
    ("margin", "delta", "episodes"),
    [
        (0.15, 0.1, 2.63e6),
        (0.15, 0.05, 2.73e6),
        (0.15, 0.01, 2.97e6),
        (0.124, 0.1, 3.93e6),
        (0.124, 0.01, 4.43e6),
        (0.05, 0.1, 2.66e7),
        (0.05, 0.01, 2.97e7),
    ],
)
def test_episodes_before_the_safe_policy_is_left(margin: float, delta: float, episodes: float) -> None:
    assert episodes_to_leave(margin, delta) == pytest.approx(episodes, rel=2e-3)


def test_the_full_union_bound_costs_a_factor_below_two() -> None:
    assert episodes_to_leave(0.15, 0.05, phases=56_000) == pytest.approx(4.4e6, rel=0.015)


# ------------------------------------------------------------------------------------------ test phase: mixture weights


def weights(margin: float, epsilon: float, discount: float, worst_value: float, count: int) -> list[float]:
    """α₁ … α_count by the recursion."""
    result = [theory.first_weight(margin, epsilon, discount, worst_value)]
    while len(result) < count:
        result.append(theory.next_weight(result[-1], margin, epsilon, discount))
    return result


def closed_form(first: float, margin: float, epsilon: float, discount: float, exponent: int) -> float:
    """Eq. (closeform), with the exponent of C_l left open."""
    gain = margin - (4 * theory.lipschitz_constant(discount) + 9) * epsilon
    power = theory.contraction(margin, epsilon, discount) ** exponent
    return gain * first / (margin * first + (gain - margin * first) * power)


def test_weights_of_the_gridworld() -> None:
    steps = theory.weight_steps(XI, EPSILON, GAMMA)
    assert steps == 51
    alphas = weights(XI, EPSILON, GAMMA, 10, steps)
    assert alphas[0] == pytest.approx(0.0056, abs=5e-5)
    assert alphas[9] == pytest.approx(0.028, abs=5e-4)
    assert alphas[-1] == pytest.approx(0.495, abs=5e-4)
    assert theory.contraction(XI, EPSILON, GAMMA) == pytest.approx(1 / 1.2, rel=1e-12)
    assert max(b / a for a, b in itertools.pairwise(alphas)) <= 1.2
    # The true range of c, V₋ = 9.85 instead of 10, buys little:
    assert theory.first_weight(XI, EPSILON, GAMMA, 9.85) == pytest.approx(0.00568, abs=5e-6)


def test_contraction_without_its_epsilon_would_collapse() -> None:
    printed = 2 / 3 + (4 * theory.lipschitz_constant(GAMMA) + 9) / (3 * XI)
    assert printed == pytest.approx(1710, abs=1)
    assert theory.contraction(XI, EPSILON, GAMMA) < 1


@pytest.mark.parametrize(("xi", "margin", "episodes"), [(0.15, 0.15, 3.8e8), (0.05, 0.15, 1.3e9), (0.05, 0.05, 4.0e9)])
def test_episodes_to_finish_one_candidate(xi: float, margin: float, episodes: float) -> None:
    """Phases 0 … m(l), the last weight's included, for a candidate that predicts v = 0."""
    epsilon = theory.largest_epsilon(xi, GAMMA)
    verified = [0.0, *weights(margin, epsilon, GAMMA, 10, theory.weight_steps(margin, epsilon, GAMMA))]
    total = 10**8
    for _ in range(100):
        logarithm = theory.log_term(total, 1, 0.05)
        total = math.ceil(sum(theory.phase_length((1 - a) * margin, logarithm, GAMMA, 2) for a in verified))
    assert total == pytest.approx(episodes, rel=0.03)


@given(discount=discounts, xi=margins, share=st.floats(0.01, 1), surplus=st.floats(1, 20), steps=st.integers(2, 60))
def test_closed_form_has_exponent_m_minus_one(
    discount: float, xi: float, share: float, surplus: float, steps: int
) -> None:
    epsilon, margin = share * theory.largest_epsilon(xi, discount), xi * surplus
    alphas = weights(margin, epsilon, discount, 1 / (1 - discount), steps)
    for m, alpha in enumerate(alphas, start=1):
        assert closed_form(alphas[0], margin, epsilon, discount, m - 1) == pytest.approx(alpha, rel=1e-12)


def test_the_printed_exponent_skips_a_step() -> None:
    alphas = weights(XI, EPSILON, GAMMA, 10, 40)
    for m in range(1, 20):
        printed = closed_form(alphas[0], XI, EPSILON, GAMMA, m)
        assert printed == pytest.approx(alphas[m], rel=1e-12)  # it is α_{m+1}
        assert 0.1 < printed / alphas[m - 1] - 1 <= 0.2 + 1e-12


@given(discount=discounts, xi=margins, share=st.floats(0.01, 1), surplus=st.floats(1, 20))
def test_weights_grow_towards_their_limit(discount: float, xi: float, share: float, surplus: float) -> None:
    """Under the theorem's precondition: a proper first weight, then growth below 1 - (4L+9)ε/v_s, at least 1/2."""
    epsilon, margin = share * theory.largest_epsilon(xi, discount), xi * surplus
    limit = 1 - (4 * theory.lipschitz_constant(discount) + 9) * epsilon / margin
    alphas = weights(margin, epsilon, discount, 1 / (1 - discount), 200)
    assert limit >= 0.5 - 1e-12
    assert 0 < alphas[0] < limit
    assert all(a <= b * (1 + 1e-15) for a, b in itertools.pairwise(alphas))
    assert max(alphas) <= limit * (1 + 1e-12)
    assert alphas[-1] == pytest.approx(limit, rel=1e-9)
    assert theory.next_weight(limit, margin, epsilon, discount) == pytest.approx(limit, rel=1e-12)


@given(discount=discounts, xi=margins, share=st.floats(0.01, 1), surplus=st.floats(1, 20))
def test_weight_steps_is_the_first_power_below_epsilon(
    discount: float, xi: float, share: float, surplus: float
) -> None:
    epsilon, margin = share * theory.largest_epsilon(xi, discount), xi * surplus
    base, steps = theory.contraction(margin, epsilon, discount), theory.weight_steps(margin, epsilon, discount)
    assert base**steps <= epsilon * (1 + 1e-9)
    assert base ** (steps - 1) > epsilon * (1 - 1e-9)


def test_a_margin_that_is_too_small_never_raises_the_weight() -> None:
    step_slack = (4 * 190 + 9) * EPSILON
    for margin in (step_slack, step_slack / 2, 1e-9, 0.0, -1e-6, -step_slack):
        assert theory.weight_steps(margin, EPSILON, GAMMA) == 0
    assert theory.weight_steps(1.01 * step_slack, EPSILON, GAMMA) > 0
    for margin in (2 * EPSILON * 192, 0.0, -0.5):
        assert theory.first_weight(margin, EPSILON, GAMMA, 10) == pytest.approx(0, abs=1e-15)
    assert theory.first_weight(-0.5, EPSILON, GAMMA, 0.1) == 0  # numerator and denominator both negative
    assert theory.first_weight(XI, EPSILON, GAMMA, 0) == 1  # no policy can violate: nothing to fear


# ------------------------------------------------------------------------------- test phase: what the weights guarantee


def worst_next_value(weight: float, following: float, margin: float, epsilon: float, discount: float) -> float:
    """Least V_c of the next mixture over all tasks and candidates that pass the tests at 0 and at `weight`.

    Passing at α means |V_c(π_α) - v_α| ≤ v_α/2 + ε(L+2) with v_α = αv + (1-α)v_s and v ≥ -ε. The next value is
    ρ·V_c(π_α) - (ρ-1)·V_c(π_s) with ρ = α'/α: worst at the least first and the largest second.
    """
    slack = epsilon * (theory.lipschitz_constant(discount) + 2)
    least = (-weight * epsilon + (1 - weight) * margin) / 2 - slack
    ratio = following / weight
    return ratio * least - (ratio - 1) * (1.5 * margin + slack)


def test_first_weight_is_the_largest_safe_one() -> None:
    least = XI / 2 - EPSILON * 192  # what phase 0 proves of V_c(π_s)
    alpha = theory.first_weight(XI, EPSILON, GAMMA, 10)
    assert (1 - alpha) * least - alpha * 10 == pytest.approx(0, abs=1e-15)


@given(discount=discounts, xi=margins, share=st.floats(0.01, 1), surplus=st.floats(1, 20))
def test_no_weight_can_be_unsafe(discount: float, xi: float, share: float, surplus: float) -> None:
    epsilon, margin = share * theory.largest_epsilon(xi, discount), xi * surplus
    alphas = weights(margin, epsilon, discount, 1 / (1 - discount), 300)
    for alpha, following in itertools.pairwise(alphas):
        assert worst_next_value(alpha, following, margin, epsilon, discount) >= -1e-12


def test_weights_that_forget_epsilon_can_be_unsafe() -> None:
    alphas = weights(XI, 0.0, GAMMA, 10, 60)
    worst = [worst_next_value(a, b, XI, EPSILON, GAMMA) for a, b in itertools.pairwise(alphas)]
    assert min(worst) < -0.01


# --------------------------------------------------------------------------------------------------------------- bounds


def test_bounds_by_hand() -> None:
    # √(4·10⁴)/(0.1²·0.1) = 2e5 and 10⁻³·10⁴/(0.1·0.1³) = 1e5
    assert theory.regret_bound(10_000, 4, 1e-3, 0.1, GAMMA) == pytest.approx(3e5, rel=1e-9)
    # 4/(0.1²·10⁻⁶·0.1⁵)
    assert theory.sample_complexity(4, 1e-3, 0.1, GAMMA) == pytest.approx(4e13, rel=1e-9)


@given(episodes=st.integers(1, 10**9), cover=st.integers(1, 10**4), xi=margins, discount=discounts)
def test_regret_splits_into_a_square_root_and_a_linear_part(
    episodes: int, cover: int, xi: float, discount: float
) -> None:
    def bound(episodes: int, epsilon: float) -> float:
        return theory.regret_bound(episodes, cover, epsilon, xi, discount)

    assert bound(4 * episodes, 0) == pytest.approx(2 * bound(episodes, 0), rel=1e-12)
    linear = bound(episodes, 0.01) - bound(episodes, 0)
    assert bound(2 * episodes, 0.01) - bound(2 * episodes, 0) == pytest.approx(2 * linear, rel=1e-5)
    assert linear == pytest.approx(0.01 * episodes / (xi * (1 - discount) ** 3), rel=1e-5)


@given(cover=st.integers(1, 10**4), accuracy=st.floats(1e-3, 0.5), xi=margins, discount=discounts)
def test_sample_complexity_makes_the_average_regret_small(
    cover: int, accuracy: float, xi: float, discount: float
) -> None:
    """Corollary: n samples are n(1-γ) episodes; the square-root part of their average regret is then the accuracy."""
    episodes = theory.sample_complexity(cover, accuracy, xi, discount) * (1 - discount)
    average = theory.regret_bound(episodes, cover, 0, xi, discount) / episodes
    assert average == pytest.approx(accuracy, rel=1e-9)


def test_regret_bound_with_constants_is_the_sum_of_the_four_terms():
    """An independent transcription of the proof, term by term, with its weights by the closed form (exponent m-1)."""
    K, C, eps, xi, delta, g = 1e7, 30, 2e-6, 0.05, 1e-3, 0.9
    L = 1 / (1 - g) + 2 * g / (1 - g) ** 2
    slack = (4 * L + 9) * eps
    base = (2 * xi + slack) / (3 * xi)
    steps = int(np.ceil(np.log(eps) / np.log(base)))
    first = (xi - 2 * eps * (L + 2)) / (xi - 2 * eps * (L + 2) + 2 / (1 - g))
    last = (xi - slack) * first / (xi * first + (xi - slack - xi * first) * base ** (steps - 1))
    E = 2 * C * np.log(1 / delta)
    log = np.log(4 * K * E * (steps + 1) / delta)
    one = 4 * eps * L * K * (1 + 1 / (xi * (1 - g)))
    two = 2 * K * (1 - last) / (1 - g) + 32 * np.sqrt(E * (steps + 1) * K * log) / ((1 - g) ** 2 * xi)
    three = eps * (L + 1) * K + np.sqrt(2 * E * (steps + 1) * K * log) / (1 - g) + E / (1 - g)
    four = eps * K + np.sqrt(2 * E * (steps + 1) * K * log) / (1 - g)
    assert theory.regret_bound_with_constants(K, C, eps, xi, delta, g) == pytest.approx(one + two + three + four)


def test_regret_bound_grows_with_episodes_and_cover_and_falls_with_the_margin():
    def bound(K=1e6, C=20, xi=0.05):
        return theory.regret_bound_with_constants(K, C, 1e-6, xi, 1e-3, 0.9)

    assert bound() < bound(K=2e6)
    assert bound() < bound(C=40)
    assert bound() > bound(xi=0.1)
    assert bound() > theory.trivial_regret(1e6, 0.9), "vacuous at a million episodes"
    assert bound(K=1e15) < theory.trivial_regret(1e15, 0.9)

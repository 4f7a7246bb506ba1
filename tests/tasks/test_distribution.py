from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import InvalidInput
from surefoot.tasks.distribution import Finite, Independent, LogUniform, Normal, ParameterDistribution, Uniform

# Empirical frequencies are compared at five standard errors: unlucky with probability 6e-7 each.
SIGMAS = 5.0
INFINITY = float("inf")

CLIPPED = Normal([0.3, -1.0], std=[0.3, 2.0], low=[0.0, -2.0], high=[0.5, 3.0], how="clipped")
TRUNCATED = Normal([0.3, -1.0], std=[0.3, 2.0], low=[0.0, -2.0], high=[0.5, 3.0], how="truncated")
UNIFORM = Uniform([0.0, -2.0], [0.5, 3.0])
FINITE = Finite([[0.0, 1.0], [0.5, -2.0], [0.25, 3.0]], [0.5, 0.2, 0.3])
JOINED = Independent([Normal(0.3, std=0.3, low=0, high=0.5), Finite([-2.0, 3.0], [0.1, 0.9])])
ALL = [CLIPPED, TRUNCATED, UNIFORM, FINITE, JOINED]


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: d.describe()["kind"])
def test_every_distribution_keeps_the_protocol(distribution: ParameterDistribution) -> None:
    assert isinstance(distribution, ParameterDistribution)
    assert distribution.dimension == 2
    sample = distribution.sample(1000, np.random.default_rng(0))
    assert sample.shape == (1000, 2)
    low, high = distribution.support.T
    np.testing.assert_array_equal(low, [0.0, -2.0])
    np.testing.assert_array_equal(high, [0.5, 3.0])
    for points in (sample, distribution.probes()):
        assert ((points >= low) & (points <= high)).all()
    assert distribution.mass(low, high) == pytest.approx(1, abs=1e-15)
    assert distribution.mass([-INFINITY, -INFINITY], [INFINITY, INFINITY]) == pytest.approx(1, abs=1e-15)
    assert distribution.mass(high + 1, high + 2) == 0
    assert distribution.mass([0.0, -4.0], [0.5, -3.0]) == 0
    np.testing.assert_array_equal(sample, distribution.sample(1000, np.random.default_rng(0)))
    np.testing.assert_array_equal(distribution.probes(), distribution.probes())
    assert json.loads(json.dumps(distribution.describe(), allow_nan=False)) == distribution.describe()


ends = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 3.0]), min_size=4, max_size=4)


@given(ends, st.sampled_from(ALL))
def test_mass_is_the_frequency_of_the_box(corners: list[float], distribution: ParameterDistribution) -> None:
    low, high = np.sort(np.reshape(corners, (2, 2)), axis=0)
    sample = distribution.sample(20_000, np.random.default_rng(1))
    frequency = ((sample >= low) & (sample <= high)).all(axis=1).mean()
    mass = distribution.mass(low, high)
    assert abs(frequency - mass) <= SIGMAS * np.sqrt(mass * (1 - mass) / len(sample)) + 1e-12


@given(st.floats(-0.1, 0.6), st.floats(-0.1, 0.6), st.floats(-0.1, 0.6), st.sampled_from(["clipped", "truncated"]))
def test_mass_is_additive_up_to_the_shared_end(a: float, b: float, c: float, how: Any) -> None:
    a, b, c = sorted((a, b, c))
    normal = Normal(0.2, std=0.3, low=0, high=0.5, how=how)
    parts = normal.mass(a, b) + normal.mass(b, c) - normal.mass(b, b)
    assert parts == pytest.approx(normal.mass(a, c), abs=1e-14)


def test_clipped_normal_has_atoms_at_its_ends() -> None:
    normal = Normal(0.3, std=0.03, low=0.0, high=0.5, how="clipped")
    law = scipy.stats.norm(0.3, 0.03)
    assert normal.mass(0.5, 0.5) == pytest.approx(law.sf(0.5), rel=1e-12)  # 1.3e-11, seven standard deviations out
    assert normal.mass(0.0, 0.0) == pytest.approx(law.cdf(0.0), rel=1e-12)
    assert normal.mass(0.3, 0.3) == 0
    assert normal.mass(0.4, 0.5) == pytest.approx(law.sf(0.4), rel=1e-12)  # the published family above noise 0.4: 4e-4
    assert normal.mass(0.4, 0.5) == pytest.approx(4.29e-4, rel=1e-3)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.03), (0.3, 1.0), (-3.0, 0.3), (3.5, 0.3)])
def test_truncated_normal_against_quadrature(mean: float, std: float) -> None:
    """The far means put the interval many standard deviations into one tail, where naive formulas lose all digits."""
    normal = Normal(mean, std=std, low=0.0, high=0.5, how="truncated")

    def density(x: float) -> float:
        nearest = min(max(mean, 0.0), 0.5)
        return float(np.exp(((nearest - mean) ** 2 - (x - mean) ** 2) / (2 * std**2)))

    # Subdivision points at the mode keep the quadrature from missing a narrow peak.
    peak = min(max(mean, 0.0), 0.5)
    points = [min(max(peak + k * std * 0.1, 0.0), 0.5) for k in range(-60, 61)]
    total = scipy.integrate.quad(density, 0, 0.5, points=sorted(set(points)), limit=500)[0]
    for low, high in [(0.0, 0.1), (0.05, 0.31), (0.28, 0.5), (0.45, 0.5)]:
        inner = sorted({low, high, *(x for x in points if low < x < high)})
        part = scipy.integrate.quad(density, low, high, points=inner, limit=500)[0]
        assert normal.mass(low, high) == pytest.approx(part / total, rel=1e-8, abs=1e-14)

    def moment(x: float) -> float:
        return x * density(x)

    expected = scipy.integrate.quad(moment, 0, 0.5, points=sorted(set(points)), limit=500)[0] / total
    sample = normal.sample(50_000, np.random.default_rng(0))
    assert abs(sample.mean() - expected) <= SIGMAS * sample.std() / np.sqrt(50_000)


def test_clipped_and_truncated_samples_differ_at_the_ends() -> None:
    clipped = Normal(0.3, std=0.3, low=0, high=0.5, how="clipped").sample(10_000, np.random.default_rng(0))
    truncated = Normal(0.3, std=0.3, low=0, high=0.5, how="truncated").sample(10_000, np.random.default_rng(0))
    assert (np.isin(clipped, [0, 0.5]).mean()) == pytest.approx(0.25 + 0.159, abs=0.02)
    assert not np.isin(truncated, [0, 0.5]).any()
    law = scipy.stats.truncnorm(-1, 2 / 3, loc=0.3, scale=0.3)
    assert scipy.stats.kstest(truncated[:, 0], law.cdf).pvalue > 1e-6
    assert scipy.stats.kstest(np.clip(truncated[:, 0] + 0.02, 0, 0.5), law.cdf).pvalue < 1e-6


def test_the_keyword_says_standard_deviation_or_variance() -> None:
    by_std = Normal(0.0, std=0.5, low=-9, high=9)
    by_variance = Normal(0.0, variance=0.25, low=-9, high=9)
    assert by_std.describe() == by_variance.describe()
    assert by_std.describe() != Normal(0.0, variance=0.5, low=-9, high=9).describe()


def test_scalars_stand_for_every_coordinate() -> None:
    both = Normal([0.0, 1.0], std=2.0, low=-3, high=[3, 4])
    assert both.describe()["std"] == [2.0, 2.0]
    np.testing.assert_array_equal(both.support, [[-3, 3], [-3, 4]])
    np.testing.assert_array_equal(Uniform(0, [1, 2]).support, [[0, 1], [0, 2]])


def test_finite_ignores_impossible_points_in_its_support_and_samples() -> None:
    points = Finite([[0.0], [1.0], [9.0]], [0.25, 0.75, 0.0])
    np.testing.assert_array_equal(points.support, [[0, 1]])
    assert set(points.sample(500, np.random.default_rng(0)).ravel()) == {0.0, 1.0}
    assert points.mass(1, 9) == 0.75
    assert Finite(range(3)).mass(0, 1) == pytest.approx(2 / 3, abs=1e-15)


def test_independent_joins_in_order() -> None:
    joined = Independent([Uniform(0, 1), Finite([[5.0, 6.0]]), Uniform(2, 3)])
    assert joined.dimension == 4
    np.testing.assert_array_equal(joined.support, [[0, 1], [5, 5], [6, 6], [2, 3]])
    assert joined.mass([0, 5, 6, 2], [0.5, 5, 6, 2.25]) == pytest.approx(0.125)
    assert joined.mass([0, 5.5, 6, 2], [0.5, 6, 6, 2.25]) == 0
    for part, columns in zip(joined.parts, ([0], [1, 2], [3]), strict=True):
        rows = {tuple(row) for row in joined.probes()[:, columns]}
        assert rows == {tuple(row) for row in part.probes()}


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_probes_of_a_box_hold_corners_centre_ends_and_interior(dimension: int) -> None:
    probes = Uniform(np.zeros(dimension), np.arange(1, dimension + 1)).probes()
    rows = {tuple(row) for row in probes}
    high = np.arange(1, dimension + 1)
    assert {tuple(np.zeros(dimension)), tuple(high), tuple(high / 2)} <= rows
    for k in range(dimension):
        for end in (0, high[k]):
            assert tuple(np.where(np.arange(dimension) == k, end, high / 2)) in rows
    interior = probes[((probes > 0) & (probes < high) & (probes != high / 2)).all(axis=1)]
    assert len(interior) == 5
    assert len(np.unique(interior[:, 0])) == 5


def test_distributions_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        CLIPPED.mean[0] = 1
    with pytest.raises(AttributeError):
        CLIPPED.how = "truncated"  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------------------ checks


def normal(mean: Any, low: Any = -1, high: Any = 1, **given: Any) -> Normal:
    return Normal(mean, low=low, high=high, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: normal(0), "exactly one of std and variance"),
        (lambda: normal(0, std=1, variance=1), "exactly one of std and variance"),
        (lambda: normal(0, std=0), r"std must be positive .*got \[0.0\]"),
        (lambda: normal(0, variance=-1), r"variance must be positive .*got \[-1.0\]"),
        (lambda: normal(0, std=1, low=1), "low must be less than high"),
        (lambda: normal(0, std=1, low=-INFINITY), "low.* must be finite"),
        (lambda: normal(np.nan, std=1), "mean must be finite"),
        (lambda: normal([], std=1), "mean must be a number or a vector"),
        (lambda: normal([[0.0]], std=1), "mean must be a number or a vector"),
        (lambda: normal([0, 0], std=[1, 1, 1]), r"std must be a number or a vector \[2\], got shape \[3\]"),
        (lambda: normal("zero", std=1), "mean must be an array of numbers"),
        (lambda: normal(0, std=1, how="cut"), "how must be 'clipped' or 'truncated', got 'cut'"),
        (lambda: normal(99, std=0.1, how="truncated"), "must have positive probability before truncation"),
        (lambda: Uniform([0, 0], [1, 1, 1]), r"low must be a number or a vector \[3\]"),
        (lambda: Uniform(1, 0), "low must be less than high in every coordinate, got 1.0 and 0.0"),
        (lambda: Uniform(0, INFINITY), "high must be finite"),
        (lambda: Uniform([[1], [1, 2]], 0), "low must be an array of numbers"),  # type: ignore[list-item]
        (lambda: LogUniform([0.0, 1.0], 2.0), r"low must be positive, got \[0.0, 1.0\]"),
        (lambda: LogUniform(2.0, 1.0), "low must be less than high"),
        (lambda: Finite([]), "points must have shape"),
        (lambda: Finite(np.zeros((2, 0))), "points must have shape"),
        (lambda: Finite(np.zeros((1, 1, 1))), "points must have shape"),
        (lambda: Finite([0, np.nan]), r"points\[1\] must be finite"),
        (lambda: Finite([0, 1], [1]), r"weights must have one entry per point \(\[2\]\)"),
        (lambda: Finite([0, 1], [0.5, 0.6]), "weights must be non-negative and sum to 1"),
        (lambda: Finite([0, 1], [1.5, -0.5]), "weights must be non-negative and sum to 1"),
        (lambda: Independent([]), "parts"),
        (lambda: Independent(UNIFORM), "parts"),  # type: ignore[arg-type]
        (lambda: Independent([UNIFORM, "uniform"]), "parts"),  # type: ignore[list-item]
    ],
)
def test_what_is_no_distribution_is_refused(make: Callable[[], ParameterDistribution], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: d.describe()["kind"])
def test_every_method_checks_its_arguments(distribution: ParameterDistribution) -> None:
    rng = np.random.default_rng(0)
    n: Any
    for n in (0, -1, 1.5, True, None):
        with pytest.raises(InvalidInput, match="n must be a whole number of at least 1"):
            distribution.sample(n, rng)
    with pytest.raises(InvalidInput, match=r"rng must be a numpy.random.Generator"):
        distribution.sample(3, 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"low and high must have shape \[2\], got \[1\] and \[1\]"):
        distribution.mass(0, 1)
    with pytest.raises(InvalidInput, match="low must not exceed high"):
        distribution.mass([0, 1], [1, 0])
    with pytest.raises(InvalidInput, match="low must not exceed high"):
        distribution.mass([0, np.nan], [1, 1])
    with pytest.raises(InvalidInput, match="low and high must be vectors of numbers"):
        distribution.mass(["a", "b"], [1, 1])


# -------------------------------------------------------------------------------------------------------- log-uniform


LOG_UNIFORM = LogUniform([0.5, 40.0], [2.0, 75.0])


def test_log_uniform_keeps_the_protocol() -> None:
    assert isinstance(LOG_UNIFORM, ParameterDistribution)
    low, high = LOG_UNIFORM.support.T
    np.testing.assert_array_equal((low, high), [[0.5, 40.0], [2.0, 75.0]])
    sample = LOG_UNIFORM.sample(1000, np.random.default_rng(0))
    for points in (sample, LOG_UNIFORM.probes()):
        assert ((points >= low) & (points <= high)).all()
    assert {(0.5, 40.0), (2.0, 75.0)} <= set(map(tuple, LOG_UNIFORM.probes().tolist()))
    assert LOG_UNIFORM.mass(low, high) == LOG_UNIFORM.mass([-INFINITY] * 2, [INFINITY] * 2) == 1
    assert LOG_UNIFORM.mass([0.5, 80.0], [2.0, 90.0]) == LOG_UNIFORM.mass([-2.0, 40.0], [-1.0, 75.0]) == 0
    assert json.loads(json.dumps(LOG_UNIFORM.describe(), allow_nan=False)) == LOG_UNIFORM.describe()


@given(st.lists(st.floats(0.3, 3.0), min_size=2, max_size=2), st.lists(st.floats(30.0, 90.0), min_size=2, max_size=2))
def test_mass_of_log_uniform_is_that_of_independent_reciprocal_laws(first: list[float], second: list[float]) -> None:
    (a, b), (c, d) = sorted(first), sorted(second)
    laws = scipy.stats.loguniform(0.5, 2.0), scipy.stats.loguniform(40.0, 75.0)
    expected = (laws[0].cdf(b) - laws[0].cdf(a)) * (laws[1].cdf(d) - laws[1].cdf(c))
    assert LOG_UNIFORM.mass([a, c], [b, d]) == pytest.approx(expected, abs=1e-12)
    sample = LOG_UNIFORM.sample(20_000, np.random.default_rng(1))
    frequency = ((sample >= [a, c]) & (sample <= [b, d])).all(axis=1).mean()
    assert abs(frequency - expected) <= SIGMAS * np.sqrt(expected * (1 - expected) / len(sample)) + 1e-12

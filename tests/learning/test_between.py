"""Alternatives between the centres: the lower bound on the integral against quadrature, and that it is a law."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from surefoot.arrays import Floats
from surefoot.learning.certified.evidence.likelihood import NODES, log_integral, log_normal
from surefoot.tabular.transition_model import TransitionModel

BOX = np.zeros(2), np.ones(2)


def two_coins(parameters: int = 2) -> TransitionModel:
    """One state, one coin for each action, with heads of probability θ_k; tails for all else."""
    classes = 2 * parameters
    base, slope = np.tile([0.0, 1.0], parameters), np.zeros((classes, parameters))
    for k in range(parameters):
        slope[2 * k, k], slope[2 * k + 1, k] = 1.0, -1.0
    return TransitionModel(
        indptr=np.arange(0, classes * 2 + 1, 2),
        successor=np.tile([0, 1], classes),
        classes=np.tile(np.arange(classes), 2),
        row_type=np.repeat(np.arange(parameters), 2),
        probability=np.full((1, classes), 0.5),
        affine=(base, slope),
        radius=np.zeros(1),
        start=np.array([1.0, 0.0]),
    )


def by_quadrature(seen: Floats, centre: Floats, width: Floats, points: int = 2000) -> float:
    """log of the integral over the unit square, which is a product of two."""
    total = 0.0
    for k in range(2):
        theta = (np.arange(points) + 0.5) / points
        log = seen[2 * k] * np.log(theta) + seen[2 * k + 1] * np.log1p(-theta)
        log = log + stats.norm.logpdf(theta, centre[k], width[k])
        total += np.log(np.exp(log - log.max()).mean()) + log.max()
    return float(total)


def two_coins_log_likelihood(seen: Floats, theta: Floats) -> float:
    return float(seen[::2] @ np.log(theta) + seen[1::2] @ np.log1p(-theta))


def bound(seen: Floats, mode: Floats, centre: Floats, width: Floats) -> float:
    return float(log_integral(seen, two_coins(), mode, BOX, centre[None], width[None])[0])


@pytest.mark.parametrize("seed", range(40))
def test_it_is_below_the_integral_and_near_it_where_there_are_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tosses, theta = rng.integers(0, 3000, 2), rng.uniform(0.02, 0.98, 2)
    heads = rng.binomial(tosses, theta)
    seen = np.array([heads[0], tosses[0] - heads[0], heads[1], tosses[1] - heads[1]], dtype=np.float64)
    centre, width = rng.uniform(0.1, 0.9, 2), rng.uniform(0.05, 0.5, 2)
    exact = by_quadrature(seen, centre, width)
    mode = np.clip((heads + 0.5) / (tosses + 1), 0.01, 0.99)
    found = bound(seen, mode, centre, width)
    assert found <= exact + 1e-6
    if (np.minimum(heads, tosses - heads) > 30).all() and (np.abs(mode - centre) < 3 * width).all():
        # Four nodes lose log √(2π) - log(∑ of their tiles), 0.24 nats a parameter; what is skew, a little more.
        assert found > exact - 2 * 0.24 - 0.3
    elsewhere = bound(seen, rng.uniform(0.05, 0.95, 2), centre, width)
    assert elsewhere <= exact + 1e-6, "any mode is valid"


def test_the_loss_of_four_nodes() -> None:
    steps = np.array(NODES)
    tiles = np.diff(steps) * np.exp(-(steps[1:] ** 2 + steps[:-1] ** 2) / 4)
    assert np.log(np.sqrt(2 * np.pi) / tiles.sum()) == pytest.approx(0.237, abs=0.001)


def test_over_all_that_can_be_observed_it_sums_to_at_most_one() -> None:
    """What makes it a numerator. All outcomes of four tosses of each coin, with the mode of each."""
    centre, width, total, fitted = np.array([0.3, 0.6]), np.array([0.4, 0.4]), 0.0, 0.0
    for heads in product(range(5), repeat=2):
        seen = np.array([heads[0], 4 - heads[0], heads[1], 4 - heads[1]], dtype=np.float64)
        ways = np.prod(stats.binom.pmf(heads, 4, 0.5)) * 2.0**8
        mode = (np.array(heads) + 0.5) / 5
        total += ways * np.exp(bound(seen, mode, centre, width))
        fitted += ways * np.exp(two_coins_log_likelihood(seen, mode))
    assert 0.1 < total <= 1
    assert fitted > 2, "the likelihood at the mode itself is no law, and this sum would show it"


def test_no_room_is_no_evidence() -> None:
    model = two_coins(9)
    ones = np.ones((3, 9))
    found = log_integral(np.ones(18), model, np.full(9, 0.5), (np.zeros(9), np.ones(9)), ones, ones)
    np.testing.assert_array_equal(found, -np.inf)


def test_normal_densities() -> None:
    rng = np.random.default_rng(0)
    points, centre, width = rng.normal(size=(7, 3)), rng.normal(size=(4, 3)), rng.uniform(0.1, 2, (4, 3))
    expected = stats.norm.logpdf(points[None], centre[:, None], width[:, None]).sum(axis=2)
    np.testing.assert_allclose(log_normal(points, centre, width), expected, rtol=1e-9)

"""Gaussian processes through tasks: close where these change smoothly, flat where there is nothing but noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.arrays import Floats
from surefoot.bounds.gaussian_process import JITTER, QuantileTransform, TrainingInputs

seeds = st.integers(0, 10**6)


def spread(rng: np.random.Generator, n: int, axes: int = 2) -> Floats:
    return np.asarray(np.exp(rng.uniform(-1.5, 1.5, size=(n, axes))))


def bent(parameters: Floats) -> Floats:
    """[n, 2] smooth in the logarithms."""
    first, last = np.log(parameters[:, 0]), np.log(parameters[:, -1])
    return np.column_stack([np.sin(first) + last, np.tanh(2 * first - last)])


def test_coordinates_are_ranks() -> None:
    parameters = spread(np.random.default_rng(0), 2000)
    at = QuantileTransform.of(parameters)(parameters)
    assert at.min() == -1
    assert at.max() == 1
    for own, raw in zip(at.T, parameters.T, strict=True):
        assert (np.diff(own[np.argsort(raw)]) >= 0).all()
        np.testing.assert_allclose(np.quantile(own, [0.25, 0.5, 0.75]), [-0.5, 0.0, 0.5], atol=0.05)
    beyond = QuantileTransform.of(parameters)(np.array([[0.0, 1e9]]))
    assert beyond.tolist() == [[-1.0, 1.0]]


@given(seeds, st.integers(1, 3))
def test_what_is_linear_is_found_exactly(seed: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    parameters, fresh = spread(rng, 40, axes), spread(rng, 20, axes)
    inputs, weights = TrainingInputs.of(parameters), rng.normal(size=(axes, 3, 2))
    process = inputs.fit(1.0 + np.tensordot(inputs.at, weights, axes=1))
    assert process.mean(fresh).shape == (20, 3, 2)
    expected = 1.0 + np.tensordot(inputs.transform(fresh), weights, axes=1)
    np.testing.assert_allclose(process.mean(fresh), expected, atol=1e-7)


@pytest.mark.short_for(axes=[1])
@pytest.mark.parametrize("axes", [1, 2])
def test_fits_are_closer_to_the_truth_than_what_tasks_show(axes: int) -> None:
    rng = np.random.default_rng(axes)
    parameters, fresh = spread(rng, 300, axes), spread(rng, 300, axes)
    for noise in (0.0, 0.05, 0.3):
        process = TrainingInputs.of(parameters).fit(bent(parameters) + noise * rng.normal(size=(300, 2)))
        off = np.sqrt(((process.mean(fresh) - bent(fresh)) ** 2).mean())
        assert off < 0.05 + noise / 2


def test_fits_know_how_far_off_they_are() -> None:
    """To a factor of three on average, also where tasks differ in noise."""
    rng = np.random.default_rng(3)
    parameters, fresh = spread(rng, 300), spread(rng, 400)
    noise = 0.02 + 0.2 * (QuantileTransform.of(parameters)(parameters)[:, :1] > 0)
    numbers = bent(parameters) + noise * rng.normal(size=(300, 2))
    inputs = TrainingInputs.of(parameters)
    aware, blind = inputs.fit(numbers, np.repeat(noise**2, 2, axis=1)), inputs.fit(numbers)
    inside = (np.abs(inputs.transform(fresh)) < 0.95).all(axis=1)
    off = (aware.mean(fresh) - bent(fresh))[inside]
    size = np.sqrt(((off / aware.std(fresh)[inside]) ** 2).mean(axis=0))
    assert (size > 1 / 3).all()
    assert (size < 3).all()
    assert (off**2).mean() < ((blind.mean(fresh) - bent(fresh))[inside] ** 2).mean()
    quiet = inputs.transform(fresh)[:, 0] < -0.2
    smooth = aware.std(fresh)[:, 0]
    assert smooth[quiet].mean() < smooth[~quiet].mean() / 1.5


def test_a_coordinate_may_be_a_category() -> None:
    """Thirty of them, each with a level of its own: smooth kernels alone miss by 0.55."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=30)

    def truth(at: Floats) -> Floats:
        return np.asarray(level[at[:, 0].astype(int)] + np.sin(2 * at[:, 1]) + 0.3 * at[:, 2])

    def draw(n: int) -> Floats:
        return np.column_stack([rng.integers(30, size=n), rng.uniform(-1, 1, (n, 2))])

    sample, fresh = draw(400), draw(200)
    fit = TrainingInputs.of(sample).fit((truth(sample) + 0.05 * rng.normal(size=400))[:, None])
    assert np.sqrt(np.mean((fit.mean(fresh)[:, 0] - truth(fresh)) ** 2)) < 0.25


def test_noise_is_smoothed_away() -> None:
    rng = np.random.default_rng(1)
    parameters = rng.uniform(size=(100, 1))
    flat = TrainingInputs.of(parameters).fit(0.1 * rng.normal(size=(100, 40))).mean(parameters)
    assert np.abs(flat).mean() < 0.04


@given(seeds)
def test_a_fit_is_the_mean_of_a_gaussian_process_given_what_was_seen(seed: int) -> None:
    """By the textbook's formula with the smoothness that was chosen, all tasks equally noisy."""
    rng = np.random.default_rng(seed)
    parameters, fresh = spread(rng, 40, 1), spread(rng, 5, 1)
    numbers = bent(parameters)[:, :1] + 0.3 * rng.normal(size=(40, 1))
    inputs = TrainingInputs.of(parameters)
    process, same = inputs.fit(numbers), inputs.fit(numbers, np.ones((40, 1)))
    (local,) = process.fits
    linear, at = np.column_stack([np.ones(40), inputs.at]), inputs.transform(fresh)
    left = numbers - linear @ process.trend
    seen = np.linalg.inv(inputs.kernel(local.kernel, inputs.at) + np.diag(local.noise + JITTER))
    near = inputs.kernel(local.kernel, at)
    np.testing.assert_allclose(
        process.mean(fresh), np.column_stack([np.ones(5), at]) @ process.trend + near @ seen @ left, atol=1e-5
    )
    variance = float((left.T @ seen @ left).item()) / 40
    known = np.einsum("ni,ij,nj->n", near, seen, near)[:, None]
    np.testing.assert_allclose(process.std(fresh) ** 2, variance * (1 - known), atol=1e-5 * (1 + variance))
    np.testing.assert_allclose(same.mean(fresh), process.mean(fresh), atol=1e-9)


def test_few_tasks_or_few_different_ones() -> None:
    twice = np.repeat([[0.2], [0.8]], 50, axis=0)
    found = TrainingInputs.of(twice).fit(np.repeat([[1.0], [3.0]], 50, axis=0))
    np.testing.assert_allclose(found.mean(np.array([[0.2], [0.8]]))[:, 0], [1.0, 3.0], atol=1e-9)
    same = np.full((60, 1), 0.5)
    assert TrainingInputs.of(same).fit(np.arange(60.0)[:, None]).mean(same)[0, 0] == pytest.approx(29.5)
    few = np.array([[0.1], [0.9], [0.4]])
    assert np.isfinite(TrainingInputs.of(few).fit(few).mean(few)).all()

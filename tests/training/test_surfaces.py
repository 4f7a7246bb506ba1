"""Surfaces through tasks: exact where tasks follow a polynomial, flat where there is nothing but noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.arrays import Floats
from surefoot.training.surfaces import HIGHEST_DEGREE, TASKS_PER_TERM, Coordinates, basis, fitted

seeds = st.integers(0, 10**6)


def spread(rng: np.random.Generator, n: int = 150, axes: int = 2) -> Floats:
    return rng.lognormal(size=(n, axes))


def test_coordinates_are_ranks() -> None:
    parameters = spread(np.random.default_rng(0), 2000)
    at = Coordinates.of(parameters)(parameters)
    assert at.min() == -1
    assert at.max() == 1
    for own, raw in zip(at.T, parameters.T, strict=True):
        assert (np.diff(own[np.argsort(raw)]) >= 0).all()
        np.testing.assert_allclose(np.quantile(own, [0.25, 0.5, 0.75]), [-0.5, 0.0, 0.5], atol=0.05)
    beyond = Coordinates.of(parameters)(np.array([[0.0, 1e9]]))
    assert beyond.tolist() == [[-1.0, 1.0]]


@given(seeds, st.integers(1, 3), st.integers(0, 4))
def test_the_basis_is_all_products_up_to_a_degree(seed: int, axes: int, degree: int) -> None:
    """As many as there are, and monomials of that degree are combinations of them."""
    rng = np.random.default_rng(seed)
    at = rng.uniform(-1, 1, size=(80, axes))
    found = basis(at, degree)
    assert found.shape == (80, math.comb(axes + degree, degree))
    power = rng.multinomial(degree, np.ones(axes) / axes)
    aim = (at**power).prod(axis=1)
    weights = np.linalg.lstsq(found, aim, rcond=None)[0]
    np.testing.assert_allclose(found @ weights, aim, atol=1e-9)


@given(seeds, st.integers(1, 2), st.integers(0, 3))
def test_polynomials_are_found_exactly(seed: int, axes: int, degree: int) -> None:
    rng = np.random.default_rng(seed)
    parameters, fresh = spread(rng, axes=axes), spread(rng, 20, axes)
    coordinates = Coordinates.of(parameters)
    weights = rng.normal(size=(math.comb(axes + degree, degree), 3, 2))
    surfaces = fitted(coordinates, parameters, np.tensordot(basis(coordinates(parameters), degree), weights, axes=1))
    assert surfaces.degree.shape == (3, 2)
    expected = np.tensordot(basis(coordinates(fresh), degree), weights, axes=1)
    np.testing.assert_allclose(surfaces(fresh), expected, atol=1e-7)
    np.testing.assert_allclose(surfaces.missed, 0.0, atol=1e-7)


def test_noise_has_a_low_degree_and_what_bends_a_higher_one() -> None:
    rng = np.random.default_rng(1)
    parameters = rng.uniform(size=(100, 1))
    numbers = np.concatenate([0.1 * rng.normal(size=(100, 40)), np.sin(5 * parameters)], axis=1)
    surfaces = fitted(Coordinates.of(parameters), parameters, numbers)
    assert (surfaces.degree[:40] <= 1).mean() > 0.6
    assert np.abs(surfaces(parameters)[:, :40]).mean() < 0.04
    assert surfaces.degree[40] >= 3
    assert (surfaces.degree <= HIGHEST_DEGREE).all()


@given(seeds)
def test_what_is_missed_is_what_a_fit_without_the_task_misses(seed: int) -> None:
    """By brute force, leaving out one task after the other."""
    rng = np.random.default_rng(seed)
    parameters = spread(rng, 60, 1)
    coordinates = Coordinates.of(parameters)
    numbers = np.cos(parameters) + 0.3 * rng.normal(size=(60, 1))
    surfaces = fitted(coordinates, parameters, numbers)
    rows, others = basis(coordinates(parameters), int(surfaces.degree[0])), np.arange(60)
    for k in range(0, 60, 7):
        kept = others != k
        weights = np.linalg.lstsq(rows[kept], numbers[kept, 0], rcond=None)[0]
        assert surfaces.missed[k, 0] == pytest.approx(numbers[k, 0] - rows[k] @ weights, abs=1e-7)


def test_few_tasks_or_few_different_ones_have_few_terms() -> None:
    rng = np.random.default_rng(0)
    few = rng.uniform(size=(TASKS_PER_TERM * 3, 1))
    assert set(fitted(Coordinates.of(few), few, rng.normal(size=(len(few), 200))).coefficients) == {0, 1, 2}
    twice = np.repeat([[0.2], [0.8]], 50, axis=0)
    found = fitted(Coordinates.of(twice), twice, np.repeat([[1.0], [3.0]], 50, axis=0))
    np.testing.assert_allclose(found(np.array([[0.2], [0.8]]))[:, 0], [1.0, 3.0], atol=1e-9)
    same = np.full((60, 1), 0.5)
    assert fitted(Coordinates.of(same), same, np.arange(60.0)[:, None])(same)[0, 0] == pytest.approx(29.5)

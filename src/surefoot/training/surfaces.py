"""Smooth functions of a task's parameter through what a sample of tasks was seen to do.

Values of policies on simulated tasks change smoothly from task to task, and what each task shows is noisy. A polynomial
through all of them is closer to the values than any task's own mean. Nothing is claimed of it here: by how much it is
off is for held-out tasks to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.polynomial.legendre import legvander

from surefoot.arrays import Floats, Integers

KNOTS = 33  # of each coordinate's distribution function
HIGHEST_DEGREE = 6
TASKS_PER_TERM = 4  # at least, so that a polynomial follows tasks and not their noise


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Parameters as coordinates in [-1, 1]^d that are spread evenly: knots [d, K] are quantiles."""

    knots: Floats

    @classmethod
    def of(cls, parameters: Floats) -> Coordinates:
        return cls(np.quantile(parameters, np.linspace(0, 1, KNOTS), axis=0).T)

    def __call__(self, parameters: Floats) -> Floats:
        """[n, d]"""
        level = np.linspace(-1, 1, self.knots.shape[1])
        columns = [np.interp(own, knots, level) for own, knots in zip(parameters.T, self.knots, strict=True)]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Polynomials of the coordinates, one for each of the numbers [...], of a degree of its own.

    Attributes:
        coefficients: {degree: [t, ...]} for all numbers.
        degree: [...] that missed least the tasks that it was not fitted to.
        missed: [n, ...] by how much, on each of the tasks.
    """

    coordinates: Coordinates
    coefficients: dict[int, Floats]
    degree: Integers
    missed: Floats

    def __call__(self, parameters: Floats) -> Floats:
        """[n, ...] at parameters [n, d]."""
        at, found = self.coordinates(parameters), np.zeros((len(parameters), *self.degree.shape))
        for degree, coefficients in self.coefficients.items():
            here = self.degree == degree
            if here.any():
                found[:, here] = basis(at, degree) @ coefficients[:, here]
        return found


def fitted(coordinates: Coordinates, parameters: Floats, numbers: Floats, most: int = HIGHEST_DEGREE) -> Surfaces:
    """Surfaces through numbers [n, ...] of tasks of parameters [n, d], by least squares."""
    at, flat = coordinates(parameters), numbers.reshape(len(numbers), -1)
    coefficients, missed = {}, {}
    for degree in range(most + 1):
        if degree and len(at) < TASKS_PER_TERM * math.comb(at.shape[1] + degree, degree):
            break
        q, r = np.linalg.qr(basis(at, degree))
        if np.abs(np.diag(r)).min() < 1e-9 * np.abs(r).max():  # a coordinate of few different values
            break
        residual = flat - q @ (q.T @ flat)
        left = 1 - (q**2).sum(axis=1)  # leaving a task out leaves this part of its weight
        missed[degree] = residual / np.maximum(left, 1e-6)[:, None]
        coefficients[degree] = np.linalg.solve(r, q.T @ flat).reshape(-1, *numbers.shape[1:])
    every = np.stack(list(missed.values()))  # [D, n, N]
    best = (every**2).mean(axis=1).argmin(axis=0)
    chosen = every[best, :, np.arange(flat.shape[1])].T.reshape(numbers.shape)
    return Surfaces(coordinates, coefficients, best.reshape(numbers.shape[1:]), chosen)


def basis(at: Floats, degree: int) -> Floats:
    """[n, t] products of Legendre polynomials of total degree at most `degree` at coordinates [n, d]."""
    each, axes = legvander(at, degree), range(at.shape[1])  # [n, d, degree+1]
    powers = [np.bincount(chosen, minlength=at.shape[1]) for k in range(degree + 1) for chosen in _chosen(axes, k)]
    return np.stack([each[:, np.arange(at.shape[1]), power].prod(axis=1) for power in powers], axis=1)


def _chosen(axes: range, count: int) -> Iterator[list[int]]:
    """`count` axes, in any number of times."""
    return (list(each) for each in combinations_with_replacement(axes, count))

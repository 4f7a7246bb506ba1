"""Smooth functions of a task's parameter through what a sample of tasks was seen to do.

Values of policies on simulated tasks change smoothly from task to task, and what each task shows is noisy. A surface
through all of them is closer to the values than any task's own mean: a linear trend, and around it a Gaussian process
(kriging; Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5). It also says how far
off it expects to be, and where. Nothing is claimed of that here: by how much it is off is for held-out tasks to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.spatial.distance import cdist

from surefoot.arrays import Floats, Integers

KNOTS = 33  # of each coordinate's distribution function

# How far what tasks do is alike, in parts of the range of a coordinate; and how many times as far along all
# coordinates but one.
LENGTHS, STRETCHED = (0.1, 0.2, 0.4, 0.8, 1.6), 4.0
# Variance of what one task shows by chance, in parts of that of the surface.
NOISES = 10.0 ** np.arange(-5, 2)
LEAST_NOISE = 1e-3  # of a task, in parts of the mean over all tasks
JITTER = 1e-9


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
class Sample:
    """Tasks at coordinates [n, d], through which surfaces are laid."""

    coordinates: Coordinates
    at: Floats

    @classmethod
    def of(cls, parameters: Floats) -> Sample:
        coordinates = Coordinates.of(parameters)
        return cls(coordinates, coordinates(parameters))

    def surfaces(self, numbers: Floats, variance: Floats | None = None) -> Surfaces:
        """Through numbers [n, ...] of the tasks, which are as noisy as one another, or in proportion to variances
        [n, ...] if these are given."""
        flat = numbers.reshape(len(numbers), -1)
        trend: Floats = np.linalg.lstsq(_linear(self.at), flat, rcond=None)[0].astype(np.float64, copy=False)
        left = flat - _linear(self.at) @ trend
        shape, noise = self._smoothness(left)
        if variance is None:
            kinds, kind = np.unique(np.stack([shape, noise]), axis=1, return_inverse=True)
            groups = [np.flatnonzero(kind.ravel() == k) for k in range(kinds.shape[1])]
            noises = [np.full(len(flat), noise[own[0]]) for own in groups]
        else:
            groups = [np.array([k]) for k in np.argsort(shape, kind="stable")]
            noises = [noise[k] * _relative(variance.reshape(flat.shape)[:, k]) for (k,) in groups]
        pieces = [self._piece(int(shape[own[0]]), own, each, left) for own, each in zip(groups, noises, strict=True)]
        return Surfaces(self, numbers.shape[1:], trend, pieces)

    def alike(self, shape: int, at: Floats) -> Floats:
        """[n', n] how much tasks at coordinates [n', d] are taken to be like those of the sample."""
        return _matern(at / self._lengths[shape], self.at / self._lengths[shape])

    def _smoothness(self, left: Floats) -> tuple[Integers, Floats]:
        """[N] each: of each of the numbers [n, N] the shape and noise with the least generalised cross-validation
        n‖(I-S)y‖²/tr(I-S)² (Golub, Heath & Wahba 1979)."""
        least = np.full(left.shape[1], np.inf)
        shape, chosen = np.zeros(left.shape[1], dtype=np.int64), np.full(left.shape[1], NOISES[-1])
        for k, (values, vectors) in enumerate(self._spectra):
            turned = vectors.T @ left
            for noise in NOISES:
                missed = noise / (values + noise)  # the part of each component that is not followed
                score = ((missed[:, None] * turned) ** 2).sum(axis=0) / missed.sum() ** 2
                better = score < least
                least[better], shape[better], chosen[better] = score[better], k, noise
        return shape, chosen

    def _piece(self, shape: int, own: Integers, noise: Floats, left: Floats) -> Piece:
        weights = cho_solve((self.factor(shape, noise), True), left[:, own])
        return Piece(own, shape, noise, weights, (left[:, own] * weights).mean(axis=0))

    def factor(self, shape: int, noise: Floats) -> Floats:
        """[n, n] Cholesky factor of the covariance of what the tasks showed."""
        factor: Floats = cho_factor(self._own[shape] + np.diag(noise + JITTER), lower=True)[0]
        return factor

    @cached_property
    def _lengths(self) -> list[Floats]:
        """[d] along every coordinate: all the same, and one of them shorter than the others."""
        d = self.at.shape[1]
        patterns = [np.ones(d)] + [np.where(np.arange(d) == k, 1.0, STRETCHED) for k in range(d) if d > 1]
        return [2 * length * np.sqrt(d) * pattern for length in LENGTHS for pattern in patterns]

    @cached_property
    def _own(self) -> list[Floats]:
        """[n, n] of each shape."""
        return [self.alike(k, self.at) for k in range(len(self._lengths))]

    @cached_property
    def _spectra(self) -> list[tuple[Floats, Floats]]:
        """Eigenvalues [n] and eigenvectors [n, n] of each shape."""
        found = [np.linalg.eigh(own) for own in self._own]
        return [(np.maximum(values, 0.0), vectors) for values, vectors in found]


class Piece(NamedTuple):
    """Surfaces of one shape: which [g], the noise of every task [n] in parts of what they vary by around the trend [g],
    and weights of the tasks [n, g]."""

    own: Integers
    shape: int
    noise: Floats
    weights: Floats
    variance: Floats


@dataclass(frozen=True, eq=False)
class Surfaces:
    """One surface for each of the numbers [...], of which there are N; trend [1+d, N] is linear."""

    sample: Sample
    size: tuple[int, ...]
    trend: Floats
    pieces: list[Piece]

    def __call__(self, parameters: Floats) -> Floats:
        """[n', ...] at parameters [n', d]."""
        at = self.sample.coordinates(parameters)
        found = _linear(at) @ self.trend
        for piece, alike in self._near(at):
            found[:, piece.own] += alike @ piece.weights
        return found.reshape(len(parameters), *self.size)

    def off_by(self, parameters: Floats) -> Floats:
        """[n', ...] standard deviations of what surfaces are off by at parameters [n', d], if they are what they were
        taken for."""
        at, found = self.sample.coordinates(parameters), np.empty((len(parameters), self.trend.shape[1]))
        for piece, alike in self._near(at):
            factor = self.sample.factor(piece.shape, piece.noise)
            known = (solve_triangular(factor, alike.T, lower=True) ** 2).sum(axis=0)
            found[:, piece.own] = np.sqrt(np.maximum(1 - known, 0.0)[:, None] * piece.variance)
        return found.reshape(len(parameters), *self.size)

    def _near(self, at: Floats) -> Iterator[tuple[Piece, Floats]]:
        """Pieces, and how much tasks at coordinates [n', d] are like those of the sample [n', n]."""
        for shape, pieces in groupby(self.pieces, key=lambda piece: piece.shape):
            alike = self.sample.alike(shape, at)
            for piece in pieces:
                yield piece, alike


# ------------------------------------------------------------------------------------------------- parts, in call order


def _linear(at: Floats) -> Floats:
    """[n, 1+d]"""
    return np.column_stack([np.ones(len(at)), at])


def _relative(variance: Floats) -> Floats:
    """[n] in parts of the mean, and never next to nothing."""
    mean = variance.mean()
    return np.maximum(variance / mean, LEAST_NOISE) if mean > 0 else np.ones_like(variance)


def _matern(here: Floats, there: Floats) -> Floats:
    """[n', n] Matérn's covariance of smoothness 5/2 between points [n', d] and [n, d]: twice differentiable."""
    r = np.sqrt(5.0) * cdist(here, there)
    covariance: Floats = (1 + r + r**2 / 3) * np.exp(-r)
    return covariance

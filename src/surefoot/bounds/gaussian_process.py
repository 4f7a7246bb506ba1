"""Gaussian-process regression of what a sample of simulated tasks was seen to do on their parameters.

Values of policies change smoothly from task to task, and what each task shows is noisy. A fit to all of them is closer
to the values than any task's own mean: a linear trend, and around it a Gaussian process with a Matérn 5/2 kernel whose
hyperparameters are chosen by generalised cross-validation (kriging; Rasmussen & Williams, Gaussian Processes for
Machine Learning, 2006, chapters 2 and 5). It also has a standard deviation everywhere. Nothing is claimed of that here:
by how much a fit is off is for held-out tasks to say.
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

# Length scales in parts of the range of a coordinate; and how many times as long along all coordinates but one.
LENGTH_SCALES, ANISOTROPY = (0.1, 0.2, 0.4, 0.8, 1.6), 4.0
# A coordinate whose values repeat is a category, such as the number of a patient, and neighbours in it have little in
# common: length scales along it, and along the others.
CATEGORY_SCALES, OTHER_SCALES = (0.0125, 0.05), (0.4, 1.6)
# Variance of the noise, in parts of that of the process.
NOISE_LEVELS = 10.0 ** np.arange(-5, 2)
LEAST_NOISE = 1e-3  # of a task, in parts of the mean over all tasks
JITTER = 1e-9


@dataclass(frozen=True, eq=False)
class QuantileTransform:
    """Parameters as coordinates in [-1, 1]^d that are spread evenly: knots [d, K] are quantiles."""

    knots: Floats

    @classmethod
    def of(cls, parameters: Floats) -> QuantileTransform:
        return cls(np.quantile(parameters, np.linspace(0, 1, KNOTS), axis=0).T)

    def __call__(self, parameters: Floats) -> Floats:
        """[n, d]"""
        level = np.linspace(-1, 1, self.knots.shape[1])
        columns = [np.interp(own, knots, level) for own, knots in zip(parameters.T, self.knots, strict=True)]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """Tasks at coordinates [n, d], to whose numbers processes are fitted."""

    transform: QuantileTransform
    at: Floats

    @classmethod
    def of(cls, parameters: Floats) -> TrainingInputs:
        transform = QuantileTransform.of(parameters)
        return cls(transform, transform(parameters))

    def fit(self, targets: Floats, variance: Floats | None = None) -> GaussianProcess:
        """A process for each of the targets [n, ...], whose noise is the same on all tasks, or in proportion to
        variances [n, ...] if these are given."""
        flat = targets.reshape(len(targets), -1)
        trend: Floats = np.linalg.lstsq(_trend_basis(self.at), flat, rcond=None)[0].astype(np.float64, copy=False)
        residual = flat - _trend_basis(self.at) @ trend
        kernel, noise = self._cross_validate(residual)
        if variance is None:
            kinds, kind = np.unique(np.stack([kernel, noise]), axis=1, return_inverse=True)
            groups = [np.flatnonzero(kind.ravel() == k) for k in range(kinds.shape[1])]
            noises = [np.full(len(flat), noise[own[0]]) for own in groups]
        else:
            groups = [np.array([k]) for k in np.argsort(kernel, kind="stable")]
            noises = [noise[k] * _relative(variance.reshape(flat.shape)[:, k]) for (k,) in groups]
        fits = [self._fit(int(kernel[own[0]]), own, each, residual) for own, each in zip(groups, noises, strict=True)]
        return GaussianProcess(self, targets.shape[1:], trend, fits)

    def kernel(self, number: int, at: Floats) -> Floats:
        """[n', n] covariance by one of the kernels between coordinates [n', d] and those of the sample."""
        return _matern(at / self._length_scales[number], self.at / self._length_scales[number])

    def _cross_validate(self, residual: Floats) -> tuple[Integers, Floats]:
        """[N] each: of each of the residuals [n, N] the kernel and noise with the least generalised cross-validation
        score n‖(I-S)y‖²/tr(I-S)² (Golub, Heath & Wahba 1979)."""
        least = np.full(residual.shape[1], np.inf)
        kernel, chosen = np.zeros(residual.shape[1], dtype=np.int64), np.full(residual.shape[1], NOISE_LEVELS[-1])
        for k, (values, vectors) in enumerate(self._spectra):
            rotated = vectors.T @ residual
            for noise in NOISE_LEVELS:
                missed = noise / (values + noise)  # the part of each component that is not followed
                score = ((missed[:, None] * rotated) ** 2).sum(axis=0) / missed.sum() ** 2
                better = score < least
                least[better], kernel[better], chosen[better] = score[better], k, noise
        return kernel, chosen

    def _fit(self, kernel: int, own: Integers, noise: Floats, residual: Floats) -> LocalFit:
        weights = cho_solve((self.cholesky(kernel, noise), True), residual[:, own])
        return LocalFit(own, kernel, noise, weights, (residual[:, own] * weights).mean(axis=0))

    def cholesky(self, kernel: int, noise: Floats) -> Floats:
        """[n, n] factor of the covariance of what the tasks showed."""
        factor: Floats = cho_factor(self._gram[kernel] + np.diag(noise + JITTER), lower=True)[0]
        return factor

    @cached_property
    def _length_scales(self) -> list[Floats]:
        """[d] of each kernel: along all coordinates the same, or along one of them shorter."""
        d = self.at.shape[1]
        alone = np.eye(d, dtype=bool) if d > 1 else np.empty((0, d), dtype=bool)
        smooth = [length * each for length in LENGTH_SCALES for each in (np.ones(d), *np.where(alone, 1.0, ANISOTROPY))]
        categories = [each for each in alone if len(np.unique(self.at[:, each])) < len(self.at) / 2]
        rough = [np.where(each, own, other) for own in CATEGORY_SCALES for other in OTHER_SCALES for each in categories]
        return [2 * np.sqrt(d) * scales for scales in (*smooth, *rough)]

    @cached_property
    def _gram(self) -> list[Floats]:
        """[n, n] of each kernel."""
        return [self.kernel(k, self.at) for k in range(len(self._length_scales))]

    @cached_property
    def _spectra(self) -> list[tuple[Floats, Floats]]:
        """Eigenvalues [n] and eigenvectors [n, n] of each kernel."""
        found = [np.linalg.eigh(gram) for gram in self._gram]
        return [(np.maximum(values, 0.0), vectors) for values, vectors in found]


class LocalFit(NamedTuple):
    """Targets with one kernel: which [g], the noise of every task [n] in parts of the variance around the trend [g],
    and weights of the tasks [n, g]."""

    own: Integers
    kernel: int
    noise: Floats
    weights: Floats
    variance: Floats


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """One process for each of the targets [...], of which there are N; trend [1+d, N] is linear."""

    inputs: TrainingInputs
    shape: tuple[int, ...]
    trend: Floats
    fits: list[LocalFit]

    def mean(self, parameters: Floats) -> Floats:
        """[n', ...] at parameters [n', d]."""
        at = self.inputs.transform(parameters)
        found = _trend_basis(at) @ self.trend
        for fit, covariance in self._covariances(at):
            found[:, fit.own] += covariance @ fit.weights
        return found.reshape(len(parameters), *self.shape)

    def std(self, parameters: Floats) -> Floats:
        """[n', ...] standard deviations at parameters [n', d], of the values and not of what a task shows."""
        at, found = self.inputs.transform(parameters), np.empty((len(parameters), self.trend.shape[1]))
        for fit, covariance in self._covariances(at):
            factor = self.inputs.cholesky(fit.kernel, fit.noise)
            explained = (solve_triangular(factor, covariance.T, lower=True) ** 2).sum(axis=0)
            found[:, fit.own] = np.sqrt(np.maximum(1 - explained, 0.0)[:, None] * fit.variance)
        return found.reshape(len(parameters), *self.shape)

    def _covariances(self, at: Floats) -> Iterator[tuple[LocalFit, Floats]]:
        """Fits, each with the covariance [n', n] between coordinates [n', d] and those of the sample."""
        for kernel, fits in groupby(self.fits, key=lambda fit: fit.kernel):
            covariance = self.inputs.kernel(kernel, at)
            for fit in fits:
                yield fit, covariance


# ------------------------------------------------------------------------------------------------- parts, in call order


def _trend_basis(at: Floats) -> Floats:
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

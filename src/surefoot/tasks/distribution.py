"""Distributions over the parameters of a task family: sampled, measured exactly on boxes, described as plain data.

Parameters are vectors [d]. Supports are bounded: a family must be able to build every task it can draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, assign, check_int, finite_array
from surefoot.errors import InvalidInput


@runtime_checkable
class ParameterDistribution(Protocol):
    """What a task family asks of the distribution of its parameters."""

    @property
    def dimension(self) -> int:
        """d, the length of a parameter."""

    @property
    def support(self) -> Floats:
        """[d, 2] low and high of the smallest box that holds every parameter."""

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """[n, d] independent parameters."""

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        """Probability of the closed box from low [d] to high [d], which may be infinite."""

    def probes(self) -> Floats:
        """[k, d] parameters that tell families apart, the same on every machine and for every NumPy version."""

    def describe(self) -> dict[str, Any]:
        """Plain JSON data that determines the distribution."""


How: TypeAlias = Literal["clipped", "truncated"]


class BoxDistribution:
    """What distributions on the box from low [d] to high [d] share."""

    low: Floats
    high: Floats

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def support(self) -> Floats:
        return np.stack([self.low, self.high], axis=1)

    def probes(self) -> Floats:
        return _box_probes(self.support)


@dataclass(frozen=True, eq=False, init=False)
class Normal(BoxDistribution):
    """Independent normal coordinates kept within [low, high].

    "clipped" moves what falls outside to the nearer end, which so has positive probability; "truncated" conditions on
    not falling outside. State the spread either as `std` or as `variance`.
    """

    mean: Floats  # [d]
    std: Floats  # [d]
    low: Floats  # [d]
    high: Floats  # [d]
    how: How

    def __init__(
        self,
        mean: ArrayLike,
        *,
        std: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        low: ArrayLike,
        high: ArrayLike,
        how: How = "clipped",
    ) -> None:
        if (std is None) == (variance is None):
            raise InvalidInput(f"give exactly one of std and variance, got std={std!r} and variance={variance!r}")
        if how not in ("clipped", "truncated"):
            raise InvalidInput(f"how must be 'clipped' or 'truncated', got {how!r}")
        centre = _vector("mean", mean)
        name, spread = ("std", std) if std is not None else ("variance", variance)
        scale = _vector(name, spread, len(centre))
        if (scale <= 0).any():
            raise InvalidInput(f"{name} must be positive (use Finite for a fixed value), got {scale.tolist()}")
        bounds = _bounds(low, high, len(centre))
        assign(
            self, mean=centre, std=scale if name == "std" else np.sqrt(scale), low=bounds[0], high=bounds[1], how=how
        )
        if how == "truncated" and not (self._inside > 0).all():
            raise InvalidInput(
                f"[low, high] must have positive probability before truncation, got {self.low.tolist()} to "
                f"{self.high.tolist()} for mean {self.mean.tolist()} and std {self.std.tolist()}"
            )

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        shape = (_sample_size(n, rng), self.dimension)
        if self.how == "clipped":
            return np.clip(self.mean + self.std * rng.standard_normal(shape), self.low, self.high)
        # Inverse distribution function, mirrored where the interval lies right of the mean: there it keeps its digits.
        a, b = self._standard(self.low), self._standard(self.high)
        mirror = a > 0
        first, last = ndtr(np.where(mirror, -b, a)), ndtr(np.where(mirror, -a, b))
        z = ndtri(first + rng.random(shape) * (last - first))
        sample: Floats = np.clip(self.mean + self.std * np.where(mirror, -z, z), self.low, self.high)
        return sample

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        lower, upper = _box(low, high, self.dimension)
        if (upper < self.low).any() or (lower > self.high).any():
            return 0.0
        if self.how == "truncated":
            lower, upper = np.maximum(lower, self.low), np.minimum(upper, self.high)
            return float(np.prod(_normal_mass(self._standard(lower), self._standard(upper)) / self._inside))
        # An end of the support stands for all that lies beyond it.
        lower, upper = np.where(lower <= self.low, -np.inf, lower), np.where(upper >= self.high, np.inf, upper)
        return float(np.prod(_normal_mass(self._standard(lower), self._standard(upper))))

    def describe(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name).tolist() for name in ("mean", "std", "low", "high")}
        return {"kind": "normal", "how": self.how, **numbers}

    def _standard(self, x: Floats) -> Floats:
        return (x - self.mean) / self.std

    @property
    def _inside(self) -> Floats:
        """[d] probability of [low, high] before anything is done about the rest."""
        return _normal_mass(self._standard(self.low), self._standard(self.high))


@dataclass(frozen=True, eq=False, init=False)
class Uniform(BoxDistribution):
    """Uniform on the box from low [d] to high [d]."""

    low: Floats  # [d]
    high: Floats  # [d]

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        bounds = _bounds(low, high, max(len(_vector("low", low)), len(_vector("high", high))))
        assign(self, low=bounds[0], high=bounds[1])

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        size = _sample_size(n, rng)
        return rng.uniform(self.low, self.high, (size, self.dimension))

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        lower, upper = _box(low, high, self.dimension)
        overlap = np.minimum(upper, self.high) - np.maximum(lower, self.low)
        return float(np.prod(np.maximum(overlap, 0) / (self.high - self.low)))

    def describe(self) -> dict[str, Any]:
        return {"kind": "uniform", "low": self.low.tolist(), "high": self.high.tolist()}


class LogUniform(Uniform):
    """Coordinates whose logarithms are uniform on the box from low [d] to high [d]: a factor of 2 is as likely anywhere
    in between."""

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        super().__init__(low, high)
        if not (self.low > 0).all():
            raise InvalidInput(f"low must be positive, got {self.low.tolist()}")

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        size = _sample_size(n, rng)
        logarithms = rng.uniform(np.log(self.low), np.log(self.high), (size, self.dimension))
        return np.clip(np.exp(logarithms), self.low, self.high)  # rounding must not leave the support

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        lower, upper = _box(low, high, self.dimension)
        lower, upper = np.maximum(lower, self.low), np.minimum(upper, self.high)
        overlap = np.log(np.maximum(upper / lower, 1.0))
        return float(np.prod(overlap / np.log(self.high / self.low)))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "kind": "log-uniform"}


@dataclass(frozen=True, eq=False, init=False)
class Finite:
    """One of the given points [n, d], or [n] for d = 1; equally likely unless weights [n] say otherwise."""

    points: Floats  # [n, d]
    weights: Floats  # [n]

    def __init__(self, points: ArrayLike, weights: ArrayLike | None = None) -> None:
        array = finite_array("points", points)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or 0 in array.shape:
            raise InvalidInput(f"points must have shape [n, d] with n, d ≥ 1, got {list(array.shape)}")
        n = len(array)
        share = np.full(n, 1 / n) if weights is None else finite_array("weights", weights)
        if share.shape != (n,):
            raise InvalidInput(f"weights must have one entry per point ([{n}]), got shape {list(share.shape)}")
        if (share < 0).any() or abs(share.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidInput(f"weights must be non-negative and sum to 1, got {share.tolist()}")
        assign(self, points=array, weights=share)

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    @property
    def support(self) -> Floats:
        possible = self.points[self.weights > 0]
        return np.stack([possible.min(axis=0), possible.max(axis=0)], axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        size = _sample_size(n, rng)
        return self.points[rng.choice(len(self.points), size, p=self.weights / self.weights.sum())]

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        lower, upper = _box(low, high, self.dimension)
        inside = ((self.points >= lower) & (self.points <= upper)).all(axis=1)
        return math.fsum(self.weights[inside]) / math.fsum(self.weights)

    def probes(self) -> Floats:
        return self.points.copy()

    def describe(self) -> dict[str, Any]:
        return {"kind": "finite", "points": self.points.tolist(), "weights": self.weights.tolist()}


@dataclass(frozen=True, eq=False, init=False)
class Independent:
    """Independent parts, their coordinates joined in order."""

    parts: tuple[ParameterDistribution, ...]

    def __init__(self, parts: Sequence[ParameterDistribution]) -> None:
        if not isinstance(parts, Sequence) or not len(parts):
            raise InvalidInput(f"parts must be a sequence of at least one distribution, got {parts!r}")
        for k, part in enumerate(parts):
            if not isinstance(part, ParameterDistribution):
                raise InvalidInput(f"parts[{k}] must be a parameter distribution, got {type(part).__name__}")
        assign(self, parts=tuple(parts))

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.parts)

    @property
    def support(self) -> Floats:
        return np.concatenate([part.support for part in self.parts])

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        return np.concatenate([part.sample(n, rng) for part in self.parts], axis=1)

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        lower, upper = _box(low, high, self.dimension)
        ends = np.cumsum([part.dimension for part in self.parts])[:-1]
        boxes = zip(self.parts, np.split(lower, ends), np.split(upper, ends), strict=True)
        return math.prod(part.mass(*box) for part, *box in boxes)

    def probes(self) -> Floats:
        """Every part's probes, side by side, the shorter lists starting over."""
        probes = [part.probes() for part in self.parts]
        rows = np.arange(max(map(len, probes)))
        return np.concatenate([points[rows % len(points)] for points in probes], axis=1)

    def describe(self) -> dict[str, Any]:
        return {"kind": "independent", "parts": [part.describe() for part in self.parts]}


# ---------------------------------------------------------------------------------------------------- shared by several


def _normal_mass(a: Floats, b: Floats) -> Floats:
    """P(a ≤ Z ≤ b) of a standard normal, from whichever tail keeps the digits."""
    mass: Floats = np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))
    return mass


INTERIOR_PROBES = 5


def _box_probes(support: Floats) -> Floats:
    """Both extreme corners, the centre, the centre with one coordinate at an end, and a few points in between.

    Those in between are a Kronecker sequence, not a random one: NumPy does not promise to keep its random streams.
    """
    low, high = support.T
    d = len(support)
    centre = np.full(d, 0.5)
    ends = [np.where(np.arange(d) == k, end, centre) for k in range(d) for end in (0.0, 1.0)]
    steps = np.sqrt(1.0 + 4 * np.arange(1, d + 1) ** 2)  # irrational for every coordinate
    between = [(0.5 + j * steps) % 1 for j in range(1, INTERIOR_PROBES + 1)]
    fractions = np.stack([np.zeros(d), np.ones(d), centre, *ends, *between])
    return np.unique(low + fractions * (high - low), axis=0)


# -------------------------------------------------------------------------------------------------------------- checks


def _vector(name: str, value: Any, length: int | None = None) -> Floats:
    """`value` as [d]; a single number stands for all d coordinates when the length is known."""
    array = np.atleast_1d(finite_array(name, value))
    if length is not None and array.shape == (1,):
        array = np.repeat(array, length)
    if array.ndim != 1 or not array.size or length not in (None, array.size):
        expected = "a number or a vector" if length is None else f"a number or a vector [{length}]"
        raise InvalidInput(f"{name} must be {expected}, got shape {list(np.shape(value))}")
    return array


def _bounds(low: Any, high: Any, length: int) -> tuple[Floats, Floats]:
    lower, upper = _vector("low", low, length), _vector("high", high, length)
    if (lower >= upper).any():
        k = int(np.argmax(lower >= upper))
        raise InvalidInput(f"low must be less than high in every coordinate, got {lower[k]} and {upper[k]} in {k}")
    return lower, upper


def _box(low: Any, high: Any, length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    try:
        lower, upper = (np.atleast_1d(np.array(end, dtype=np.float64)) for end in (low, high))
    except (TypeError, ValueError):
        raise InvalidInput(f"low and high must be vectors of numbers, got {low!r} and {high!r}") from None
    if lower.shape != (length,) or upper.shape != (length,):
        raise InvalidInput(f"low and high must have shape [{length}], got {list(lower.shape)} and {list(upper.shape)}")
    if not (lower <= upper).all():
        raise InvalidInput(f"low must not exceed high, got {lower.tolist()} and {upper.tolist()}")
    return lower, upper


def _sample_size(n: Any, rng: Any) -> int:
    if not isinstance(rng, np.random.Generator):
        raise InvalidInput(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    return check_int("n", n)

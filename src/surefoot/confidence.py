"""Confidence sequences: intervals for the mean of observations in [0, 1] that hold at all times at once.

The observations need not be independent: it is enough that each has conditional mean μ given the past. Then, with
probability at least 1 - level, μ lies in the interval after *every* observation, so a learner may look as often as it
likes and stop when it likes. `Hoeffding` uses nothing but the range, `EmpiricalBernstein` and `Betting` adapt to the
variance; `Betting` is the sharpest.

A sequence is a frozen rule and its state a frozen value of constant size:

    sequence = Betting(level=0.05)
    state = sequence.start()
    state = sequence.update(state, block)   # [n]; to the last bit the state that n single updates lead to
    lower, upper = sequence.interval(state)

Sums are therefore accumulated strictly in order of arrival. The interval is the *current* one: it may widen again, so
that one unlucky stretch does not count for ever. `Running` keeps the intersection of all intervals so far, which has
the same level, but may become empty (lower > upper), which happens for a fixed mean with probability at most `level`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, finite_array, fraction, frozen
from surefoot.errors import InvalidInput

Side: TypeAlias = Literal["both", "lower", "upper"]

# Blocks are worked off in pieces of about this many observations: a long one needs no more memory than a short one.
PIECE = 1024

# Odds 2⁻⁸ … 2⁵: small stakes for many noisy observations, large ones for observations that hardly vary.
DEFAULT_STAKES = tuple(2.0**k / (1 + 2.0**k) for k in range(-8, 6))

# Newton's iteration for the betting bound stops at steps below this; it approaches the bound from outside.
SMALLEST_STEP = 1e-10


@dataclass(frozen=True, eq=False)
class State:
    """All that a sequence remembers of `count` observations, for `shape` means side by side.

    Attributes:
        count: the number of observations; [n, 1, …, 1] where n states are stacked.
        sums: [*shape, k], or [n, *shape, k] stacked; k depends on the sequence, not on the count.
    """

    count: Any
    sums: Floats


class ConfidenceSequence(ABC):
    """What all sequences share. A sequence adds its sums and its bounds."""

    @abstractmethod
    def start(self, shape: tuple[int, ...] = ()) -> State:
        """The state before the first observation, for means of the given shape."""

    @abstractmethod
    def history(self, state: State, observations: Floats) -> State:
        """The n ≥ 1 states after each of the observations [n, *shape] that follow `state`, stacked on axis 0."""

    @abstractmethod
    def bounds(self, state: State) -> tuple[Floats, Floats]:
        """`interval` of a state, or of n stacked states, with at least one observation."""

    def update(self, state: State, observations: ArrayLike) -> State:
        """The state after a block of observations [n, *shape]."""
        for piece in _pieces(_checked(observations, state.sums.shape[:-1])):
            after = self.history(state, piece)
            state = State(state.count + len(piece), frozen(after.sums[-1].copy()))
        return state

    def interval(self, state: State) -> tuple[Floats, Floats]:
        """(lower, upper), each of the shape of the means. A side that was not asked for has its trivial bound."""
        shape = state.sums.shape[:-1]
        return self.bounds(state) if state.count else (np.zeros(shape), np.ones(shape))

    def path(self, observations: ArrayLike) -> tuple[Floats, Floats]:
        """(lower, upper), each [n, *shape]: the interval after each of the observations [n, *shape]."""
        values = _checked(observations)
        state, lower, upper = self.start(values.shape[1:]), [np.zeros((0, *values.shape[1:]))], [values[:0]]
        for piece in _pieces(values):
            after = self.history(state, piece)
            low, high = self.bounds(after)
            lower.append(low)
            upper.append(high)
            state = State(state.count + len(piece), after.sums[-1])
        return np.concatenate(lower), np.concatenate(upper)


# -------------------------------------------------------------------------------------------------------- the sequences


@dataclass(frozen=True)
class Hoeffding(ConfidenceSequence):
    """Mean ± radius that depends on the count only: the half-normal mixture of Howard et al. (2021).

    exp(λS - λ²V/2) with S = Σ(X-μ), V = n/4 is a supermartingale for every λ; its mixture over λ ~ |N(0, 1/ρ)| is
    2√(ρ/(V+ρ)) exp(S²/2(V+ρ)) Φ(S/√(V+ρ)), and Φ(x) ≥ 1 - exp(-x²/2)/2 turns Ville's inequality into a closed form.

    Attributes:
        level: probability that the mean ever leaves the interval; half of it for either side when both are asked for.
        tight_at: the count at which the radius is close to its smallest.
    """

    level: float
    side: Side = "both"
    tight_at: int = 1000

    def __post_init__(self) -> None:
        _check_level(self.level, self.side)
        if not self.tight_at >= 1:
            raise InvalidInput(f"tight_at must be a count of at least 1, got {self.tight_at!r}")

    def start(self, shape: tuple[int, ...] = ()) -> State:
        return State(0, frozen(np.zeros((*shape, 1))))

    def history(self, state: State, observations: Floats) -> State:
        return _stacked(state, _accumulate(state.sums, observations[..., None])[1:])

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        mean = state.sums[..., 0] / state.count
        return _clipped(mean, self.radius(state.count), self.side)

    def radius(self, count: Any) -> Any:
        """√(2(V+ρ) ln((√((V+ρ)/ρ)/α + 1)/2)) / n, with α the level of one side."""
        alpha = math.exp(-_log_inverse_level(self.level, self.side))
        rho = self.tight_at / 4 / (2 * math.log(1 / alpha) + math.log1p(2 * math.log(1 / alpha)))
        spread = count / 4 + rho
        return np.sqrt(2 * spread * np.log((np.sqrt(spread / rho) / alpha + 1) / 2)) / count


@dataclass(frozen=True)
class EmpiricalBernstein(ConfidenceSequence):
    """Weighted mean ± radius that shrinks with the variance: Waudby-Smith & Ramdas (2023), Theorem 2.

    Attributes:
        level: as in `Hoeffding`.
        largest_weight: the cap c on the weights λ, in (0, 1).
    """

    level: float
    side: Side = "both"
    largest_weight: float = 0.5

    def __post_init__(self) -> None:
        _check_level(self.level, self.side)
        fraction("largest_weight", self.largest_weight)

    def start(self, shape: tuple[int, ...] = ()) -> State:
        return State(0, frozen(np.zeros((*shape, 5))))

    def history(self, state: State, observations: Floats) -> State:
        """Sums of X, (X_i-μ̂_i)², λ_i, λ_iX_i and (X_i-μ̂_{i-1})²·(-ln(1-λ_i)-λ_i); λ_i knows X_1 … X_{i-1} only."""
        total, squares, weight, weighted, penalty = np.moveaxis(state.sums, -1, 0)
        t = _counts(state, observations)
        totals = _accumulate(total, observations)
        means = (0.5 + totals) / np.concatenate([t, t[-1:] + 1])
        deviations = _accumulate(squares, (observations - means[1:]) ** 2)
        variance = (0.25 + deviations[:-1]) / t
        confidence = _log_inverse_level(self.level, self.side)
        weights = np.minimum(np.sqrt(2 * confidence / (variance * t * np.log1p(t))), self.largest_weight)
        increments = (observations - means[:-1]) ** 2 * (-np.log1p(-weights) - weights)
        columns = (
            totals,
            deviations,
            _accumulate(weight, weights),
            _accumulate(weighted, weights * observations),
            _accumulate(penalty, increments),
        )
        return _stacked(state, np.stack([column[1:] for column in columns], axis=-1))

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        _, _, weight, weighted, penalty = np.moveaxis(state.sums, -1, 0)
        radius = (_log_inverse_level(self.level, self.side) + penalty) / weight
        return _clipped(weighted / weight, radius, self.side)


@dataclass(frozen=True)
class Betting(ConfidenceSequence):
    """Bets at fixed stakes against every mean m at once; m is excluded when the average capital reaches 1/α.

    Against "mean ≥ m" the stake b in (0, 1) earns Π(1-bX)/(1-bm): a supermartingale if the mean is at least m, and
    with b = f/(1-m+fm) the usual Π(1 + f(m-X)/(1-m)). Written in b, the data enter through Σ ln(1-bX) alone, whatever
    m, so that a few sums give the exact bound on a continuum of means. Against "mean ≤ m" bet likewise on 1-X.

    Attributes:
        level: as in `Hoeffding`.
        stakes: the values of b.
    """

    level: float
    side: Side = "both"
    stakes: tuple[float, ...] = DEFAULT_STAKES

    def __post_init__(self) -> None:
        _check_level(self.level, self.side)
        stakes = finite_array("stakes", self.stakes)
        if stakes.ndim != 1 or not stakes.size or not ((stakes > 0) & (stakes < 1)).all():
            raise InvalidInput(f"stakes must be numbers strictly between 0 and 1, got {self.stakes!r}")
        object.__setattr__(self, "stakes", tuple(stakes.tolist()))

    def start(self, shape: tuple[int, ...] = ()) -> State:
        sides = 2 if self.side == "both" else 1
        return State(0, frozen(np.zeros((*shape, sides * len(self.stakes)))))

    def history(self, state: State, observations: Floats) -> State:
        sided = {
            "both": (observations, 1 - observations),
            "upper": (observations,),
            "lower": (1 - observations,),
        }[self.side]
        stakes = np.array(self.stakes)
        logarithms = np.concatenate([np.log1p(-stakes * values[..., None]) for values in sided], axis=-1)
        return _stacked(state, _accumulate(state.sums, logarithms)[1:])

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        shape = state.sums.shape[:-1]
        logs = state.sums.reshape(*shape, -1, len(self.stakes))
        threshold = _log_inverse_level(self.level, self.side)
        count = np.asarray(state.count, dtype=np.float64)[..., None]
        largest = _largest_mean(logs, count, np.array(self.stakes), threshold)
        upper = np.ones(shape) if self.side == "lower" else largest[..., 0]
        lower = np.zeros(shape) if self.side == "upper" else 1 - largest[..., -1]
        return lower, upper


@dataclass(frozen=True)
class Running(ConfidenceSequence):
    """The intersection of all intervals that `sequence` has given so far; its bounds never move outwards."""

    sequence: ConfidenceSequence

    def start(self, shape: tuple[int, ...] = ()) -> State:
        sums = self.sequence.start(shape).sums
        return State(0, frozen(np.concatenate([sums, np.zeros((*shape, 1)), np.ones((*shape, 1))], axis=-1)))

    def history(self, state: State, observations: Floats) -> State:
        inner = self.sequence.history(State(state.count, state.sums[..., :-2]), observations)
        lower, upper = self.sequence.bounds(inner)
        lower = np.maximum(np.maximum.accumulate(lower), state.sums[..., -2])
        upper = np.minimum(np.minimum.accumulate(upper), state.sums[..., -1])
        return State(inner.count, np.concatenate([inner.sums, lower[..., None], upper[..., None]], axis=-1))

    def bounds(self, state: State) -> tuple[Floats, Floats]:
        return state.sums[..., -2].copy(), state.sums[..., -1].copy()


# ------------------------------------------------------------------------------------------------- parts, in call order


def _checked(observations: ArrayLike, shape: tuple[int, ...] | None = None) -> Floats:
    values = finite_array("observations", observations)
    if values.ndim == 0 or (shape is not None and values.shape[1:] != shape):
        expected = "[n, …]" if shape is None else f"[{', '.join(['n', *map(str, shape)])}]"
        raise InvalidInput(f"observations must have shape {expected}, got {list(values.shape)}")
    bad = (values < 0) | (values > 1)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        place = ", ".join(map(str, index))
        raise InvalidInput(
            f"observations[{place}] must lie in [0, 1], got {float(values[index])!r}; scale them by their range first"
        )
    return values


def _pieces(values: Floats) -> list[Floats]:
    rows = max(1, PIECE // max(1, math.prod(values.shape[1:])))
    return [values[first : first + rows] for first in range(0, len(values), rows)]


def _accumulate(first: Floats, increments: Floats) -> Floats:
    """[n+1, …] partial sums first, first + increments[0], …: strictly in order, so that no split of a block shows."""
    return np.add.accumulate(np.concatenate([first[None], increments]), axis=0)


def _stacked(state: State, sums: Floats) -> State:
    return State(_counts(state, sums[..., 0]), sums)


def _counts(state: State, observations: Floats) -> NDArray[np.int64]:
    """[n, 1, …, 1] number of observations once each of those given has been counted."""
    counts: NDArray[np.int64] = state.count + np.arange(1, len(observations) + 1)
    return counts.reshape(-1, *[1] * (observations.ndim - 1))


def _largest_mean(logs: Floats, count: Floats, stakes: Floats, threshold: float) -> Floats:
    """The m in [0, 1] with ln avg_b Π(1-bX)/(1-bm) = threshold, or 1 if there is none: [...] of Σ ln(1-bX) [..., Q].

    The left side is convex and increasing in m. The smallest m at which one stake alone suffices is an outer bound,
    and from there Newton's iteration descends to the root without ever passing it. No stake's capital exceeds the
    threshold on the way, and at m = 1 none has lost, so the exponentials neither overflow nor all vanish.
    """
    shape, count = logs.shape[:-1], np.broadcast_to(count, logs.shape[:-1]).ravel()
    logs = np.ascontiguousarray(logs.reshape(-1, len(stakes)).T) - (math.log(len(stakes)) + threshold)
    stakes = stakes[:, None]
    mean: Floats = np.minimum((-np.expm1(logs / count) / stakes).min(axis=0), 1.0)
    while True:
        left = 1 - stakes * mean
        capital = np.exp(logs - count * np.log(left))
        total = _sum_rows(capital)
        step = np.log(total) * total / (count * _sum_rows(capital * stakes / left))
        # An entry that has stopped stays where it is, whatever entries it shares the array with.
        moving = step > SMALLEST_STEP
        if not moving.any():
            return mean.reshape(shape)
        mean = np.where(moving, mean - step, mean)


def _sum_rows(rows: Floats) -> Floats:
    """[N] sums of [Q, N], each in the order of the rows; NumPy's own sum pairs the terms if there is one column."""
    total: Floats = rows.sum(axis=0) if rows.shape[1] > 1 else np.add.accumulate(rows)[-1]
    return total


def _clipped(centre: Floats, radius: Any, side: Side) -> tuple[Floats, Floats]:
    lower = np.zeros_like(centre) if side == "upper" else np.maximum(centre - radius, 0.0)
    upper = np.ones_like(centre) if side == "lower" else np.minimum(centre + radius, 1.0)
    return lower, upper


def _log_inverse_level(level: float, side: Side) -> float:
    """ln(1/α) with α the error probability of one side."""
    return math.log((2 if side == "both" else 1) / level)


def _check_level(level: float, side: Side) -> None:
    fraction("level", level)
    if side not in ("both", "lower", "upper"):
        raise InvalidInput(f"side must be 'both', 'lower' or 'upper', got {side!r}")

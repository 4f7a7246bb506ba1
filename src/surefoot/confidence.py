"""Betting confidence sequences: intervals for the mean of observations in [0, 1] that hold at all times at once.

The observations need not be independent: it is enough that each has conditional mean μ given the past. Then, with
probability at least 1 - level, μ lies in the interval after *every* observation, so a learner may look as often as it
likes and stop when it likes (Waudby-Smith & Ramdas 2023). A sequence is a frozen rule and its state a frozen value of
constant size:

    sequence = Betting(level=0.05)
    state = sequence.start()
    state = sequence.update(state, block)   # [n]; to the last bit the state that n single updates lead to
    lower, upper = sequence.interval(state)

Sums are therefore accumulated strictly in order of arrival. The interval is the *current* one: it may widen again, so
that one unlucky stretch does not count for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from surefoot.arrays import Floats, check_unit_interval, finite_array, make_readonly, raise_at
from surefoot.errors import InvalidInput

Side: TypeAlias = Literal["both", "lower", "upper"]

# Blocks are worked off in pieces of about this many observations: a long one needs no more memory than a short one.
PIECE = 1024

# Odds 2⁻⁸ … 2⁵: small stakes for many noisy observations, large ones for observations that hardly vary.
DEFAULT_STAKES = tuple(2.0**k / (1 + 2.0**k) for k in range(-8, 6))

# x = λ·width of the bets on sums, in (0, 1), and steps of bisection.
SUM_STAKES = tuple(2.0**k / (1 + 2.0**k) for k in range(-12, 4))
HALVINGS = 40

# Newton's iteration for the bound stops at steps below this; it approaches the bound from outside.
SMALLEST_STEP = 1e-10


@dataclass(frozen=True, eq=False)
class State:
    """All that a sequence remembers of `count` observations, for `shape` means side by side.

    Attributes:
        count: the number of observations; an array that broadcasts with `shape` where states are stacked.
        sums: [*shape, k]; k depends on the sequence, not on the count.
    """

    count: Any
    sums: Floats


@dataclass(frozen=True)
class Betting:
    """Bets at fixed stakes against every mean m at once; m is excluded when the average capital reaches 1/α.

    Against "mean ≥ m" the stake b in (0, 1) earns Π(1-bX)/(1-bm): a supermartingale if the mean is at least m, and
    with b = f/(1-m+fm) the usual Π(1 + f(m-X)/(1-m)). Written in b, the data enter through Σ ln(1-bX) alone, whatever
    m, so that a few sums give the exact bound on a continuum of means. Against "mean ≤ m" bet likewise on 1-X.

    Attributes:
        level: probability that the mean ever leaves the interval; half of it for either side when both are asked for.
        stakes: the values of b.
    """

    level: float
    side: Side = "both"
    stakes: tuple[float, ...] = DEFAULT_STAKES

    def __post_init__(self) -> None:
        check_unit_interval("level", self.level)
        if self.side not in ("both", "lower", "upper"):
            raise InvalidInput(f"side must be 'both', 'lower' or 'upper', got {self.side!r}")
        stakes = finite_array("stakes", self.stakes)
        if stakes.ndim != 1 or not stakes.size or not ((stakes > 0) & (stakes < 1)).all():
            raise InvalidInput(f"stakes must be numbers strictly between 0 and 1, got {self.stakes!r}")
        object.__setattr__(self, "stakes", tuple(stakes.tolist()))

    def start(self, shape: tuple[int, ...] = ()) -> State:
        """The state before the first observation, for means of the given shape."""
        sides = 2 if self.side == "both" else 1
        return State(0, make_readonly(np.zeros((*shape, sides * len(self.stakes)))))

    def update(self, state: State, observations: ArrayLike) -> State:
        """The state after a block of observations [n, *shape]."""
        values = _check_observations(observations, state.sums.shape[:-1])
        rows = max(1, PIECE // max(1, math.prod(values.shape[1:])))
        for first in range(0, len(values), rows):
            piece = values[first : first + rows]
            # Strictly in order, so that no split of a block shows.
            sums = np.add.accumulate(np.concatenate([state.sums[None], self._logarithms(piece)]), axis=0)[-1]
            state = State(state.count + len(piece), make_readonly(sums.copy()))
        return state

    def log_evidence(self, state: State, lower: Floats, upper: Floats) -> Floats:
        """Log of the average capital against "the mean lies in [lower, upper]", arrays that broadcast with the means;
        a supermartingale as long as it does. Both sides must have been asked for."""
        stakes, count = np.array(self.stakes), np.asarray(state.count, dtype=np.float64)[..., None]
        logs = state.sums.reshape(*state.sums.shape[:-1], 2, len(stakes))
        below = logs[..., 0, :] - count * np.log1p(-stakes * lower[..., None])
        above = logs[..., 1, :] - count * np.log1p(-stakes * (1 - upper[..., None]))
        both = np.concatenate(np.broadcast_arrays(below, above), axis=-1)
        total: Floats = np.logaddexp.reduce(both, axis=-1) - math.log(both.shape[-1])
        return total

    def interval(self, state: State) -> tuple[Floats, Floats]:
        """(lower, upper), each of the shape of the means. A side that was not asked for has its trivial bound."""
        shape = state.sums.shape[:-1]
        if not np.all(state.count):
            return np.zeros(shape), np.ones(shape)
        logs = state.sums.reshape(*shape, -1, len(self.stakes))
        threshold = math.log((2 if self.side == "both" else 1) / self.level)  # ln(1/α), α the level of one side
        count = np.asarray(state.count, dtype=np.float64)[..., None]
        largest = _largest_mean(logs, count, np.array(self.stakes), threshold)
        upper = np.ones(shape) if self.side == "lower" else largest[..., 0]
        lower = np.zeros(shape) if self.side == "upper" else 1 - largest[..., -1]
        return lower, upper

    def _logarithms(self, values: Floats) -> Floats:
        """[n, *shape, k] ln(1-bX), ln(1-b(1-X)) or both, of observations [n, *shape]."""
        sided = {"both": (values, 1 - values), "upper": (values,), "lower": (1 - values,)}[self.side]
        return np.concatenate([np.log1p(-np.array(self.stakes) * side[..., None]) for side in sided], axis=-1)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _check_observations(observations: ArrayLike, shape: tuple[int, ...]) -> Floats:
    values = finite_array("observations", observations)
    if values.ndim == 0 or values.shape[1:] != shape:
        expected = ", ".join(["n", *map(str, shape)])
        raise InvalidInput(f"observations must have shape [{expected}], got {list(values.shape)}")
    raise_at("observations", values, (values < 0) | (values > 1), "must lie in [0, 1], scaled by their range")
    return values


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


def one_bet(gains: Floats, count: int, stake: Floats, error: float) -> Floats:
    """The largest mean that a single bet has not ruled out: Π (1-bX)/(1-bm) < 1/error for all m below it.

    `gains` are Σ ln(1-bX) over `count` numbers X in [0, 1] with a stake b in (0, 1) that was fixed before them. A mean
    above the bound ever, after any number of them, has probability at most `error`: the same bet as that of `Betting`,
    for whoever knows beforehand which stake is right. With L = -ln(error) and a spread σ it is off by L/(nb) + bσ²/2.
    """
    largest: Floats = -np.expm1((gains + math.log(error)) / count) / stake
    return np.minimum(largest, 1.0)


def binomial_upper(failures: int, trials: int, error: float) -> float:
    """p with P(Bin(trials, p) ≤ failures) = error: the true probability is larger with probability at most `error`."""
    return 1.0 if failures == trials else float(betaincinv(failures + 1, trials - failures, 1 - error))


def mixture_boundary(squares: ArrayLike, width: float, error: float) -> Floats:
    """[...] what Σ (X_i - E_{i-1} X_i) exceeds at any time with probability at most `error`, from `squares` [...].

    X_i lies in an interval of this width, whatever its conditional expectation; squares = Σ (X_i - X̂_i)² with
    predictions X̂_i from the same interval. Then, with x = λ·width in (0, 1) and ψ(x) = -ln(1-x) - x,

        exp(λ Σ (X_i - E_{i-1} X_i) - ψ(x) squares/width²)

    is a supermartingale (Fan, Grama, Liu 2015, Lemma 4.1; Howard, Ramdas, McAuliffe, Sekhon 2021, Theorem 4), and so is
    the average over SUM_STAKES, which by Ville's inequality ever reaches 1/error with probability at most `error`.
    """
    if width <= 0:
        return np.zeros(np.shape(squares))
    stakes = np.array(SUM_STAKES)
    bill = -np.log1p(-stakes) - stakes  # ψ
    paid = bill * (np.asarray(squares, dtype=np.float64) / width**2)[..., None]  # [..., k]
    goal = math.log(len(stakes) / error)
    low, high = np.zeros(paid.shape[:-1]), ((goal + paid) / stakes).min(axis=-1)  # one bet alone reaches it at `high`
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = np.logaddexp.reduce(stakes * middle[..., None] - paid, axis=-1) >= goal
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    boundary: Floats = high * width
    return boundary

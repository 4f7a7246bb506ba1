"""The expansion of values over boxes for tables too large to be inverted: sparse factors, one at a time.

With one parameter a single factorisation serves many neighbouring boxes, through a power series around its centre.
Each function returns middle and radius [J, 1+m, 1+F] without an allowance for rounding but with what residuals prove,
ρ [J] (at 1 or above a box was too wide and its numbers mean nothing), and the largest values [J, 1+m].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.evaluate import resolvent
from surefoot.tabular.tables import Tables, policy_transitions

Expanded: TypeAlias = tuple[Floats, Floats, Floats, Floats]

# A series reaches as far as its ρ stays below this, and has at most so many terms.
SERIES_REACH, MOST_TERMS = 0.8, 40
# Terms are added until what is left out is below this share of the linear term: also for one of hundreds of boxes in
# the reach of a series that is next to nothing.
NEGLIGIBLE_TAIL = 1e-6


@dataclass(frozen=True, eq=False)
class _Chain:
    """An affine family under one policy."""

    base: Any  # [S, S] sparse
    slopes: tuple[Any, ...]
    per_state: Floats  # [S, 1+m]
    changes: Floats  # [d, S, 1+m]
    discount: float
    start: Floats
    states: Integers

    @cached_property
    def outflow(self) -> Floats:
        """[d, S] Σ_t |G_k(s, t)|"""
        return np.stack([np.asarray(abs(slope).sum(axis=1)).ravel() for slope in self.slopes])

    def solver(self, parameter: Floats) -> Callable[[Floats], Floats]:
        """R at a parameter [d], as a function of columns [S, k]."""
        return resolvent(self.kernel(parameter), self.discount)

    def kernel(self, parameter: Floats) -> Any:
        return sum((theta * slope for theta, slope in zip(parameter, self.slopes, strict=True)), self.base)

    def seen(self, columns: Floats) -> Floats:
        """[1+m, 1+F] of values [S, 1+m] from the start distribution and from the first states."""
        return np.concatenate([(self.start @ columns)[None], columns[self.states]]).T

    def values(self, parameter: Floats, solve: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        """V [S, 1+m] at a parameter, and by how much it may be wrong [1+m]: the residual over 1 - γ."""
        signals = self.per_state + np.tensordot(parameter, self.changes, axes=1)
        value = solve(signals)
        residual = signals - (value - self.discount * (self.kernel(parameter) @ value))
        return value, np.abs(residual).max(axis=0) / (1 - self.discount)


def _chain(affine: AffineTables, example: Tables, probabilities: Floats, states: Integers) -> _Chain:
    return _Chain(
        policy_transitions(affine.matrix(affine.base), probabilities),
        tuple(policy_transitions(affine.matrix(slope), probabilities) for slope in affine.slope),
        np.einsum("ksa,sa->sk", affine.signal_base, probabilities),
        np.einsum("dksa,sa->dsk", affine.signal_slope, probabilities),
        example.discount,
        example.start,
        states,
    )


# ------------------------------------------------------------------------------------------------- several parameters


def expand_one_by_one(
    affine: AffineTables, example: Tables, probabilities: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    """Theorem 1a box by box."""
    chain = _chain(affine, example, probabilities, states)
    boxes = [_expand_box(chain, (a + b) / 2, (b - a) / 2) for a, b in zip(low, high, strict=True)]
    middle, radius, reach, size = (np.stack(part) for part in zip(*boxes, strict=True))
    return middle, radius, reach, size


def _expand_box(chain: _Chain, centre: Floats, half: Floats) -> tuple[Floats, Floats, float, Floats]:
    solve = chain.solver(centre)
    value, wrong = chain.values(centre, solve)
    size = np.abs(value).max(axis=0)
    reach = _reach(chain, solve, half)
    nothing = np.zeros((len(size), 1 + len(chain.states)))
    if reach >= 1:
        return nothing, nothing, reach, size
    signals, parameters = len(size), len(half)
    steps = zip(chain.slopes, chain.changes, strict=True)
    later = [chain.discount * (slope @ value) + change for slope, change in steps]
    first = solve(np.concatenate(later, axis=1))  # [S, d·(1+m)]
    moved = [chain.discount * (slope @ first) for slope in chain.slopes]
    weight = np.repeat(half, signals) * np.repeat(half, parameters * signals).reshape(parameters, -1)  # [d, d·(1+m)]
    twice = np.abs(solve(np.concatenate(moved, axis=1))) * weight.ravel()
    second = twice.reshape(len(value), -1, signals).sum(axis=1)
    tail = reach / (1 - reach) * second.max(axis=0) + wrong
    linear = sum(half[k] * np.abs(chain.seen(first[:, k * signals : (k + 1) * signals])) for k in range(parameters))
    return chain.seen(value), linear + chain.seen(second) + tail[:, None], reach, size


def _reach(chain: _Chain, solve: Callable[[Floats], Floats], half: Floats) -> float:
    """ρ: the largest entry of γR·Σ_k h_k |G_k|·1, or γ/(1-γ)·Σ_k h_k ‖G_k‖ if that is smaller."""
    simple = chain.discount / (1 - chain.discount) * float(half @ chain.outflow.max(axis=1))
    return min(simple, chain.discount * float(solve((half @ chain.outflow)[:, None]).max()))


# ------------------------------------------------------------------------------------------------------ one parameter


def expand_series(
    affine: AffineTables, example: Tables, probabilities: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    """Groups of neighbouring boxes, each by one power series; a group is as wide as its series reaches."""
    chain = _chain(affine, example, probabilities, states)
    order = np.argsort(low[:, 0] + high[:, 0], kind="stable")
    signals, boxes = chain.per_state.shape[1], len(low)
    middle, radius = np.zeros((boxes, signals, 1 + len(states))), np.zeros((boxes, signals, 1 + len(states)))
    reach, size = np.zeros(boxes), np.zeros((boxes, signals))
    done, count = 0, 1
    while done < boxes:
        group = order[done : done + count]
        series = _series(chain, float(low[group].min()), float(high[group].max()))
        if series.reach >= 1 and len(group) > 1:
            count = max(1, count // 4)
            continue
        reach[group], size[group] = series.reach, series.size
        if series.reach < 1:
            middle[group], radius[group] = series.over(low[group, 0], high[group, 0])
        done += len(group)
        count = max(1, int(len(group) * min(SERIES_REACH / max(series.reach, 1e-3), 8.0)))
    return middle, radius, reach, size


@dataclass(frozen=True, eq=False)
class _Series:
    """V_θ = Σ_n yⁿ T_n with y = (θ - θ₀)/far, T_0 = V, T_1 = far·(γRGV + Rg) and T_{n+1} = far·γRG T_n.

    Attributes:
        terms: [N+1, 1+m, 1+F] of T_0 … T_N, from the start distribution and from the first states.
        tail: [1+m] bounds what is left out, and what V may be wrong by, for |y| ≤ 1.
        reach: ρ for |y| ≤ 1; the rest means nothing if it is 1 or more.
        size: [1+m] largest value anywhere.
    """

    centre: float
    far: float
    terms: Floats
    tail: Floats
    reach: float
    size: Floats

    def over(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Middle and radius [J, 1+m, 1+F] over boxes [J] in reach.

        With p the polynomial and y the middle of a box of half-width h, |p(z) - p(y)| ≤ h |p'(y)| + h²/2 max |p''|, and
        |p''| ≤ Σ n(n-1) (|y|+h)ⁿ⁻² |T_n|.
        """
        y, half = ((low + high) / 2 - self.centre) / self.far, (high - low) / 2 / self.far
        degree = np.arange(len(self.terms))
        powers = y[:, None] ** degree
        slopes = degree * y[:, None] ** np.maximum(degree - 1, 0)
        bends = degree * (degree - 1) * (np.abs(y) + half)[:, None] ** np.maximum(degree - 2, 0)
        middle = np.tensordot(powers, self.terms, axes=1)
        linear = half[:, None, None] * np.abs(np.tensordot(slopes, self.terms, axes=1))
        bent = half[:, None, None] ** 2 / 2 * np.tensordot(bends, np.abs(self.terms), axes=1)
        return middle, linear + bent + self.tail[:, None]


def _series(chain: _Chain, low: float, high: float) -> _Series:
    """Around the middle of [low, high]. T_{N+k} = (far·γRG)ᵏ T_N, so that the terms after the N-th sum to at most
    ‖T_N‖ ρ/(1-ρ), ρ ≥ far·‖γRG‖."""
    centre, far = (low + high) / 2, (high - low) / 2
    at = np.array([centre])
    solve = chain.solver(at)
    value, wrong = chain.values(at, solve)
    reach = _reach(chain, solve, np.array([far]))
    slope = far * chain.discount * chain.slopes[0]
    size, tail, terms = np.abs(value).max(axis=0), np.zeros(value.shape[1]), [chain.seen(value)]
    latest = solve(slope @ value + far * chain.changes[0])
    enough = NEGLIGIBLE_TAIL * np.abs(latest).max(axis=0)
    while reach < 1 and len(terms) <= MOST_TERMS:
        terms.append(chain.seen(latest))
        largest = np.abs(latest).max(axis=0)
        size, tail = size + largest, largest * reach / (1 - reach)
        if (tail <= enough).all():
            break
        latest = solve(slope @ latest)
    return _Series(centre, far or 1.0, np.stack(terms), tail + wrong, reach, size)

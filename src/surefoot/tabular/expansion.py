"""Values of a policy over whole boxes of tasks, for families that are affine in the parameter (Theorems 1a and 1c)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import AffineChain, AffineTables
from surefoot.tabular.evaluate import resolvent
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.tables import Tables
from surefoot.tabular.timed_expansion import expand_steps

# What the linear algebra behind the bounds may be off by, relative to the numbers that go into it.
ROUNDING = 1e-10
CHUNK = 64  # boxes expanded at once, to bound memory
# Up to this many states inverses of many boxes at once are faster than sparse factors of one after the other.
DENSE_STATES = 100
SMALL_MATRIX = 12  # up to this size matrices are inverted at once
# Below this ρ the tail is of no consequence, and the simplest bound on it will do.
SMALL_REACH = 0.1
# A series reaches as far as its ρ stays below this, and has at most so many terms.
SERIES_REACH, MOST_TERMS = 0.8, 40
# Terms are added until what is left out is below this share of the linear term: also for one of hundreds of boxes in
# the reach of a series that is next to nothing.
NEGLIGIBLE_TAIL = 1e-6

Expanded: TypeAlias = tuple[Floats, Floats, Floats, Floats]


def box_values(
    affine: AffineTables,
    example: Tables,
    policy: TabularPolicy | TimedPolicy,
    low: Floats,
    high: Floats,
    first_states: Integers | None = None,
) -> tuple[Floats, Floats]:
    """Lower and upper [J, 1+m, 1+F] over each box [J, d] of an affine family: from the start distribution, then from
    each of the first states [F], all of them by default. Infinite for boxes that are too wide to be expanded (ρ ≥ 1);
    with a horizon none is.

    `example` lends the start, the discount, the horizon and the budgets.
    """
    states = np.arange(example.n_states) if first_states is None else first_states
    middle, radius, reach = _expand_policy(affine, example, policy, low, high, states)
    lower, upper = reward_and_margin(middle - radius, middle + radius, example.units)
    wide = reach >= 1
    lower[wide], upper[wide] = -np.inf, np.inf
    return lower, upper


def box_spreads(
    affine: AffineTables, example: Tables, policy: TabularPolicy | TimedPolicy, low: Floats, high: Floats
) -> Floats:
    """[J, 1+m] the most by which values differ between states on any task of each box, with a horizon at any step."""
    if example.units.horizon is not None:
        tables, nowhere = _tables(example, policy), np.empty(0, dtype=np.int64)
        found = expand_steps(affine, example, tables, low, high, nowhere)
        return found.spread + 2 * rounding(found.size, example)
    lower, upper = box_values(affine, example, policy, low, high)
    spread: Floats = upper[:, :, 1:].max(axis=2) - lower[:, :, 1:].min(axis=2)
    return spread


def _expand_policy(
    affine: AffineTables,
    example: Tables,
    policy: TabularPolicy | TimedPolicy,
    low: Floats,
    high: Floats,
    states: Integers,
) -> tuple[Floats, Floats, Floats]:
    """Middle and radius [J, 1+m, 1+F], rounding included, and ρ [J], 0 with a horizon."""
    tables = _tables(example, policy)
    if example.units.horizon is not None:
        found = expand_steps(affine, example, tables, low, high, states)
        return found.middle, found.radius + rounding(found.size, example)[:, :, None], np.zeros(len(low))
    if len(tables) > 1:
        raise InvalidInput(
            "policy must not look at the clock for values over boxes of tasks without a horizon, got one of "
            f"{len(tables)} tables"
        )
    probabilities = tables[0]
    if affine.n_states <= DENSE_STATES:
        return _expand_dense(affine, example, probabilities, low, high, states)
    expand = expand_series if affine.dimension == 1 else expand_one_by_one
    middle, radius, reach, size = expand(affine, example, probabilities, low, high, states)
    return middle, radius + rounding(size, example)[:, :, None], reach


def _tables(example: Tables, policy: TabularPolicy | TimedPolicy) -> Floats:
    """[T, S, A]"""
    return as_tables(policy, (example.n_states, example.n_actions))


def _expand_dense(
    affine: AffineTables, example: Tables, probabilities: Floats, low: Floats, high: Floats, states: Integers
) -> tuple[Floats, Floats, Floats]:
    base, slopes = affine.dense
    chain = AffineChain(
        np.einsum("sa,sat->st", probabilities, base),
        np.einsum("sa,dsat->dst", probabilities, slopes),
        *affine.paid_under(probabilities),
    )
    chunks = (slice(k, k + CHUNK) for k in range(0, len(low), CHUNK))
    parts = [_expand(chain, low[some], high[some], example, states) for some in chunks]
    middle, radius, reach = (np.concatenate(side) for side in zip(*parts, strict=True))
    return middle, radius, reach


def _expand(
    chain: AffineChain, low: Floats, high: Floats, example: Tables, states: Integers
) -> tuple[Floats, Floats, Floats]:
    """Middle and radius [J, 1+m, 1+F] of reward and cost over boxes, and ρ [J].

    With R = (I - γP)⁻¹ at the centre, Δ = Σ_k D_k G_k and δ = Σ_k D_k g_k, V_θ - V = Σ_n (γRΔ)ⁿ (γRΔV + Rδ), whose
    terms are linear, quadratic, … in D. Orders 1 and 2 are bounded term by term, the tail by the geometric series with
    ρ ≥ ‖γRΔ‖ (Theorem 1a).
    """
    base, slopes, paid, changes = chain
    discount, centre, half = example.discount, (low + high) / 2, (high - low) / 2
    outflow = np.abs(slopes).sum(axis=2)  # [d, S]
    kernel = base + np.einsum("jd,dst->jst", centre, slopes)
    propagate = discount * inverse(np.eye(len(base)) - discount * kernel)  # γR
    reach = _reach(propagate, outflow, half, discount)
    if changes.any():
        paid = paid + np.einsum("jd,dsk->jsk", centre, changes)
    value = propagate @ paid / discount
    first = [propagate @ (slope @ value + change / discount) for slope, change in zip(slopes, changes, strict=True)]
    second = sum(
        half[:, k, None, None] * half[:, j, None, None] * np.abs(propagate @ (slopes[j] @ first[k]))
        for k in range(len(slopes))
        for j in range(len(slopes))
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # boxes with ρ ≥ 1 are not used
        tail = (reach / (1 - reach))[:, None, None] * np.max(second, axis=1, keepdims=True)
    tail = tail + rounding(np.abs(value).max(axis=1), example)[:, None]
    from_state = sum(half[:, k, None, None] * np.abs(term) for k, term in enumerate(first)) + second + tail
    start = example.start
    from_start = sum(half[:, k, None] * np.abs(start @ term) for k, term in enumerate(first)) + start @ second
    middle = np.concatenate([(start @ value)[:, None], value[:, states]], axis=1)
    radius = np.concatenate([(from_start + tail[:, 0])[:, None], from_state[:, states]], axis=1)
    return middle.transpose(0, 2, 1), radius.transpose(0, 2, 1), reach


def inverse(matrix: Floats) -> Floats:
    """[J, S, S] of matrices with dominant diagonals, such as I - γP, whose blocks need no pivots: by Schur complements,
    half of the time of one elimination after the other."""
    size = matrix.shape[-1]
    if size <= SMALL_MATRIX:
        return np.linalg.inv(matrix).astype(np.float64, copy=False)
    a, b = slice(0, size // 2), slice(size // 2, size)
    first = inverse(matrix[:, a, a])
    left, right = matrix[:, b, a] @ first, first @ matrix[:, a, b]
    complement = inverse(matrix[:, b, b] - left @ matrix[:, a, b])
    inverted = np.empty_like(matrix)
    inverted[:, b, b], inverted[:, b, a] = complement, -complement @ left
    inverted[:, a, b], inverted[:, a, a] = -right @ complement, first - right @ inverted[:, b, a]
    return inverted


def _reach(propagate: Floats, outflow: Floats, half: Floats, discount: float) -> Floats:
    """ρ [J], an upper bound on the maximum norm of γRΔ over a box: γ/(1-γ)·Σ_k h_k ‖G_k‖ or, where that is not small,
    the largest entry of γR·Σ_k h_k |G_k|·1, since R has no negative entries."""
    reach: Floats = discount / (1 - discount) * half @ outflow.max(axis=1)
    large = reach > SMALL_REACH
    if large.any():
        finer = (propagate[large] @ (half[large] @ outflow)[:, :, None]).max(axis=(1, 2))
        reach[large] = np.minimum(reach[large], finer)
    return reach


def rounding(size: Floats, task: Tables) -> Floats:
    """[..., 1+m] allowance for values whose largest size is [..., 1+m]: in proportion to them, to what they are sums
    of and to the budgets they are compared with, so that it means the same in all units."""
    signals = np.abs(task.signals).max(axis=(1, 2))
    allowance: Floats = ROUNDING * (size + signals + np.abs(np.append(0.0, task.budget)))
    return allowance


def reward_and_margin(lower: Floats, upper: Floats, units: Units) -> tuple[Floats, Floats]:
    """Bounds [..., 1+m, 1+F] on reward and cost as bounds on reward and margin = budget - cost."""
    budget = units.budget[:, None]
    reward_low, reward_high = lower[..., :1, :], upper[..., :1, :]
    return (
        np.concatenate([reward_low, budget - upper[..., 1:, :]], axis=-2),
        np.concatenate([reward_high, budget - lower[..., 1:, :]], axis=-2),
    )


# -------------------------------------------------------------------------------------- tables too large to be inverted
# Sparse factors, one at a time. With one parameter a single factorisation serves many neighbouring boxes, through a
# power series around its centre. Both functions return middle and radius [J, 1+m, 1+F] with what residuals prove but
# without an allowance for rounding, ρ [J] (at 1 or above a box was too wide and its numbers mean nothing), and the
# largest values [J, 1+m].


@dataclass(frozen=True, eq=False)
class _SparseFamily:
    """An affine family under one policy, whose values are solved for by sparse factors."""

    chain: AffineChain
    discount: float
    start: Floats
    states: Integers

    @cached_property
    def outflow(self) -> Floats:
        """[d, S] Σ_t |G_k(s, t)|"""
        return np.stack([np.asarray(abs(slope).sum(axis=1)).ravel() for slope in self.chain.slopes])

    def solver(self, parameter: Floats) -> Callable[[Floats], Floats]:
        """R at a parameter [d], as a function of columns [S, k]."""
        return resolvent(self.kernel(parameter), self.discount)

    def kernel(self, parameter: Floats) -> Any:
        return sum((theta * slope for theta, slope in zip(parameter, self.chain.slopes, strict=True)), self.chain.base)

    def at_first_states(self, columns: Floats) -> Floats:
        """[1+m, 1+F] of values [S, 1+m] from the start distribution and from the first states."""
        return np.concatenate([(self.start @ columns)[None], columns[self.states]]).T

    def values(self, parameter: Floats, solve: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        """V [S, 1+m] at a parameter, and by how much it may be wrong [1+m]: the residual over 1 - γ."""
        signals = self.chain.paid + np.tensordot(parameter, self.chain.changes, axes=1)
        value = solve(signals)
        residual = signals - (value - self.discount * (self.kernel(parameter) @ value))
        return value, np.abs(residual).max(axis=0) / (1 - self.discount)


# ------------------------------------------------------------------------------------------------- several parameters


def expand_one_by_one(
    affine: AffineTables, example: Tables, probabilities: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    """Theorem 1a box by box."""
    family = _SparseFamily(affine.under(probabilities), example.discount, example.start, states)
    boxes = [_expand_box(family, (a + b) / 2, (b - a) / 2) for a, b in zip(low, high, strict=True)]
    middle, radius, reach, size = (np.stack(part) for part in zip(*boxes, strict=True))
    return middle, radius, reach, size


def _expand_box(family: _SparseFamily, centre: Floats, half: Floats) -> tuple[Floats, Floats, float, Floats]:
    solve = family.solver(centre)
    value, wrong = family.values(centre, solve)
    size = np.abs(value).max(axis=0)
    reach = _sparse_reach(family, solve, half)
    nothing = np.zeros((len(size), 1 + len(family.states)))
    if reach >= 1:
        return nothing, nothing, reach, size
    signals, parameters = len(size), len(half)
    steps = zip(family.chain.slopes, family.chain.changes, strict=True)
    later = [family.discount * (slope @ value) + change for slope, change in steps]
    first = solve(np.concatenate(later, axis=1))  # [S, d·(1+m)]
    moved = [family.discount * (slope @ first) for slope in family.chain.slopes]
    weight = np.repeat(half, signals) * np.repeat(half, parameters * signals).reshape(parameters, -1)  # [d, d·(1+m)]
    twice = np.abs(solve(np.concatenate(moved, axis=1))) * weight.ravel()
    second = twice.reshape(len(value), -1, signals).sum(axis=1)
    tail = reach / (1 - reach) * second.max(axis=0) + wrong
    linear = sum(
        half[k] * np.abs(family.at_first_states(first[:, k * signals : (k + 1) * signals])) for k in range(parameters)
    )
    return family.at_first_states(value), linear + family.at_first_states(second) + tail[:, None], reach, size


def _sparse_reach(family: _SparseFamily, solve: Callable[[Floats], Floats], half: Floats) -> float:
    """ρ: the largest entry of γR·Σ_k h_k |G_k|·1, or γ/(1-γ)·Σ_k h_k ‖G_k‖ if that is smaller."""
    simple = family.discount / (1 - family.discount) * float(half @ family.outflow.max(axis=1))
    return min(simple, family.discount * float(solve((half @ family.outflow)[:, None]).max()))


# ------------------------------------------------------------------------------------------------------ one parameter


def expand_series(
    affine: AffineTables, example: Tables, probabilities: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    """Groups of neighbouring boxes, each by one power series; a group is as wide as its series reaches."""
    family = _SparseFamily(affine.under(probabilities), example.discount, example.start, states)
    order = np.argsort(low[:, 0] + high[:, 0], kind="stable")
    signals, boxes = family.chain.paid.shape[1], len(low)
    middle, radius = np.zeros((boxes, signals, 1 + len(states))), np.zeros((boxes, signals, 1 + len(states)))
    reach, size = np.zeros(boxes), np.zeros((boxes, signals))
    done, count = 0, 1
    while done < boxes:
        group = order[done : done + count]
        series = _series(family, float(low[group].min()), float(high[group].max()))
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


def _series(family: _SparseFamily, low: float, high: float) -> _Series:
    """Around the middle of [low, high]. T_{N+k} = (far·γRG)ᵏ T_N, so that the terms after the N-th sum to at most
    ‖T_N‖ ρ/(1-ρ), ρ ≥ far·‖γRG‖."""
    centre, far = (low + high) / 2, (high - low) / 2
    at = np.array([centre])
    solve = family.solver(at)
    value, wrong = family.values(at, solve)
    reach = _sparse_reach(family, solve, np.array([far]))
    slope = far * family.discount * family.chain.slopes[0]
    size, tail, terms = np.abs(value).max(axis=0), np.zeros(value.shape[1]), [family.at_first_states(value)]
    latest = solve(slope @ value + far * family.chain.changes[0])
    enough = NEGLIGIBLE_TAIL * np.abs(latest).max(axis=0)
    while reach < 1 and len(terms) <= MOST_TERMS:
        terms.append(family.at_first_states(latest))
        largest = np.abs(latest).max(axis=0)
        size, tail = size + largest, largest * reach / (1 - reach)
        if (tail <= enough).all():
            break
        latest = solve(slope @ latest)
    return _Series(centre, far or 1.0, np.stack(terms), tail + wrong, reach, size)

"""Values of a policy over whole boxes of tasks, for families that are affine in the parameter (Theorems 1a and 1c)."""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.sparse_expansion import expand_one_by_one, expand_series
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
    chain = np.einsum("sa,sat->st", probabilities, base)
    slopes = np.einsum("sa,dsat->dst", probabilities, slopes)
    per_state = np.einsum("ksa,sa->sk", affine.signal_base, probabilities)
    changes = np.einsum("dksa,sa->dsk", affine.signal_slope, probabilities)
    parts = [
        _expand(chain, slopes, per_state, changes, low[part], high[part], example, states)
        for part in (slice(k, k + CHUNK) for k in range(0, len(low), CHUNK))
    ]
    middle, radius, reach = (np.concatenate(side) for side in zip(*parts, strict=True))
    return middle, radius, reach


def _expand(
    chain: Floats,
    slopes: Floats,
    per_state: Floats,
    changes: Floats,
    low: Floats,
    high: Floats,
    example: Tables,
    states: Integers,
) -> tuple[Floats, Floats, Floats]:
    """Middle and radius [J, 1+m, 1+F] of reward and cost over boxes, and ρ [J].

    With R = (I - γP)⁻¹ at the centre, Δ = Σ_k D_k G_k and δ = Σ_k D_k g_k, V_θ - V = Σ_n (γRΔ)ⁿ (γRΔV + Rδ), whose
    terms are linear, quadratic, … in D. Orders 1 and 2 are bounded term by term, the tail by the geometric series with
    ρ ≥ ‖γRΔ‖ (Theorem 1a).
    """
    discount, half = example.discount, (high - low) / 2
    centre = (low + high) / 2
    outflow = np.abs(slopes).sum(axis=2)  # [d, S]
    kernel = chain + np.einsum("jd,dst->jst", centre, slopes)
    resolvent = discount * inverse(np.eye(len(chain)) - discount * kernel)  # γR
    reach = _reach(resolvent, outflow, half, discount)
    if changes.any():
        per_state = per_state + np.einsum("jd,dsk->jsk", centre, changes)
    value = resolvent @ per_state / discount
    first = [resolvent @ (slope @ value + change / discount) for slope, change in zip(slopes, changes, strict=True)]
    second = sum(
        half[:, k, None, None] * half[:, j, None, None] * np.abs(resolvent @ (slopes[j] @ first[k]))
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


def _reach(resolvent: Floats, outflow: Floats, half: Floats, discount: float) -> Floats:
    """ρ [J], an upper bound on the maximum norm of γRΔ over a box: γ/(1-γ)·Σ_k h_k ‖G_k‖ or, where that is not small,
    the largest entry of γR·Σ_k h_k |G_k|·1, since R has no negative entries."""
    reach: Floats = discount / (1 - discount) * half @ outflow.max(axis=1)
    large = reach > SMALL_REACH
    if large.any():
        finer = (resolvent[large] @ (half[large] @ outflow)[:, :, None]).max(axis=(1, 2))
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

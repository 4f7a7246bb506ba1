"""Values of a policy over whole boxes of tasks, for families whose transitions are affine in the parameter."""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.tables import Tables, endless

# What the linear algebra behind the bounds may be off by, relative to the numbers that go into it.
ROUNDING = 1e-10
CHUNK = 64  # boxes expanded at once, to bound memory


def box_values(
    affine: tuple[Floats, Floats], example: Tables, policy: TabularPolicy, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Lower and upper [J, 1+m, 1+S] over each box [J, d] of an affine family; `example` lends everything but P."""
    endless(example, "the expansion of values over boxes")
    chain = np.einsum("sa,sat->st", policy.probabilities, affine[0])
    slopes = np.einsum("sa,dsat->dst", policy.probabilities, affine[1])
    signals = np.concatenate([example.reward[None], example.cost])
    per_state = np.einsum("ksa,sa->sk", signals, policy.probabilities)
    parts = [
        _expand(chain, slopes, per_state, low[part], high[part], example)
        for part in (slice(k, k + CHUNK) for k in range(0, len(low), CHUNK))
    ]
    middle, radius = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    return reward_and_margin(middle - radius, middle + radius, example.units)


def _expand(
    chain: Floats, slopes: Floats, per_state: Floats, low: Floats, high: Floats, example: Tables
) -> tuple[Floats, Floats]:
    """Middle and radius [J, 1+m, 1+S] of reward and cost over boxes.

    With R = (I - γP)⁻¹ at the centre and Δ = Σ_k D_k G_k, V_θ = Σ_n (γRΔ)ⁿ V. Orders 1 and 2 are bounded term by term,
    the tail by the geometric series with ρ = γ/(1-γ)·Σ_k h_k ‖G_k‖ (Theorem 1a).
    """
    discount, half = example.discount, (high - low) / 2
    reach = discount / (1 - discount) * half @ np.abs(slopes).sum(axis=2).max(axis=1)  # ρ, [J]
    if (reach >= 1).any():
        raise InvalidInput(f"cells must be small enough for the expansion (ρ < 1), got ρ = {reach.max():.3g}; use more")
    kernel = chain + np.einsum("jd,dst->jst", (low + high) / 2, slopes)
    resolvent = discount * np.linalg.inv(np.eye(len(chain)) - discount * kernel)  # γR
    value = resolvent @ per_state / discount
    first = [resolvent @ (slope @ value) for slope in slopes]
    second = sum(
        half[:, k, None, None] * half[:, j, None, None] * np.abs(resolvent @ (slopes[j] @ first[k]))
        for k in range(len(slopes))
        for j in range(len(slopes))
    )
    tail = (reach / (1 - reach))[:, None, None] * np.max(second, axis=1, keepdims=True)
    tail = tail + rounding(np.abs(value).max(axis=1), example)[:, None]
    from_state = sum(half[:, k, None, None] * np.abs(term) for k, term in enumerate(first)) + second + tail
    start = example.start
    from_start = sum(half[:, k, None] * np.abs(start @ term) for k, term in enumerate(first)) + start @ second
    middle = np.concatenate([(start @ value)[:, None], value], axis=1)
    radius = np.concatenate([(from_start + tail[:, 0])[:, None], from_state], axis=1)
    return middle.transpose(0, 2, 1), radius.transpose(0, 2, 1)


def rounding(size: Floats, task: Tables) -> Floats:
    """[..., 1+m] allowance for values whose largest size is [..., 1+m]: in proportion to them, to what they are sums
    of and to the budgets they are compared with, so that it means the same in all units."""
    signals = np.abs(np.concatenate([task.reward[None], task.cost])).max(axis=(1, 2))
    allowance: Floats = ROUNDING * (size + signals + np.abs(np.append(0.0, task.budget)))
    return allowance


def reward_and_margin(lower: Floats, upper: Floats, units: Units) -> tuple[Floats, Floats]:
    """Bounds [..., 1+m, 1+S] on reward and cost as bounds on reward and margin = budget - cost."""
    budget = units.budget[:, None]
    reward_low, reward_high = lower[..., :1, :], upper[..., :1, :]
    return (
        np.concatenate([reward_low, budget - upper[..., 1:, :]], axis=-2),
        np.concatenate([reward_high, budget - lower[..., 1:, :]], axis=-2),
    )

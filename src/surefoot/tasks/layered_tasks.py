"""Finite-horizon tasks as discounted ones: one copy of the states per step, then an end without reward or cost.

State h·S + s stands for base state s at step h = 0, ..., H-1, and H·S for the end, which is absorbing. Rewards and
costs of layer h are γ^(-h) times those of the base task, so that the discounted sums of an episode that starts in layer
0 are the undiscounted sums of the H steps, exactly, whatever γ. A stationary policy of the layered task is a policy of
the base task that looks at the clock, and the linear program of the one is the finite-horizon program of the other.

γ is free, so it is chosen to make the declared ranges as small as they can be: one step may bring up to γ^(-(H-1)), a
whole episode by the general bound γ^(-(H-1))/(1-γ), and that is least, about e·H, at γ = 1 - 1/H.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, check_int, finite_array
from surefoot.tabular.model import TabularCMDP


def layered(
    transitions: ArrayLike,
    reward: ArrayLike,
    cost: ArrayLike,
    budget: ArrayLike,
    start: ArrayLike,
    horizon: int,
    discount: float | None = None,
) -> TabularCMDP:
    """The task of `horizon` steps of a base task: [S, A, S], [S, A], [S, A] or [m, S, A], a number or [m], and [S].

    `budget` bounds the expected sum of the costs over the H steps. `discount` is 1 - 1/H unless given (1/2 for H = 1).
    """
    check_horizon(horizon)
    rate = default_discount(horizon) if discount is None else discount
    first = finite_array("start", start)
    end = np.zeros(horizon * len(first) + 1 - len(first))
    return TabularCMDP(
        layered_transitions(finite_array("transitions", transitions), horizon),
        layered_signal(finite_array("reward", reward), horizon, rate),
        layered_signal(finite_array("cost", cost), horizon, rate),
        budget,
        np.concatenate([first, end]),
        rate,
    )


def default_discount(horizon: int) -> float:
    """1 - 1/H, at which a layered task has the smallest declared ranges."""
    return max(1 - 1 / horizon, 0.5)


def layered_transitions(transitions: Floats, horizon: int) -> Floats:
    """[N, A, N] with N = H·S + 1 from [S, A, S]: from each layer to the next, from the last one to the end."""
    rows = _to_next_layer(transitions, horizon)
    last, end = (horizon - 1) * len(transitions), horizon * len(transitions)
    rows[last:, :, end] = 1.0
    return rows


def layered_directions(directions: Floats, horizon: int) -> Floats:
    """[d, N, A, N] from [d, S, A, S]: how layered transitions change when the base task's change along `directions`."""
    return np.stack([_to_next_layer(direction, horizon) for direction in directions])


def layered_signal(signal: Floats, horizon: int, discount: float) -> Floats:
    """[..., N, A] from rewards or costs [..., S, A]: layer h pays γ^(-h) times as much, the end nothing."""
    grown = [signal * discount ** (-h) for h in range(horizon)]
    return np.concatenate([*grown, np.zeros_like(signal[..., :1, :])], axis=-2)


def check_horizon(horizon: int) -> None:
    check_int("horizon", horizon)


def _to_next_layer(rows: Floats, horizon: int) -> Floats:
    S, A = rows.shape[:2]
    layered = np.zeros((horizon * S + 1, A, horizon * S + 1))
    for h in range(horizon - 1):
        layered[h * S : (h + 1) * S, :, (h + 1) * S : (h + 2) * S] = rows
    return layered

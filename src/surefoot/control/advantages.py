"""Generalised advantages (Schulman, Moritz, Levine, Jordan and Abbeel 2016, Eq. 16)."""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats, Mask


def generalised_advantages(
    signal: Floats, values: Floats, after: Floats, terminated: Mask, ended: Mask, discount: float, trace: float
) -> Floats:
    """[T, ...] Σ_l (γλ)^l δ_{t+l} up to the episode's end or the last step, δ_t = g_t + γ V(s_{t+1}) - V(s_t).

    Args:
        signal: [T, ...] reward or cost of each step.
        values, after: [T, ...] of the states before and after it; nothing follows a state where the system ended.
        terminated, ended: [T, ...] whether the system ended there, and whether the episode did.
        discount, trace: γ and λ.
    """
    errors = signal + discount * np.where(terminated, 0.0, after) - values
    goes_on = discount * trace * ~ended
    advantages = np.empty_like(errors)
    following = np.zeros(errors.shape[1:])
    for t in reversed(range(len(errors))):
        following = errors[t] + goes_on[t] * following
        advantages[t] = following
    return advantages

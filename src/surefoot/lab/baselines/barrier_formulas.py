"""The formulas of LB-SGD (Ni and Kamgarpour, AISTATS 2025): how long a step may be, and what it must rest on."""

from __future__ import annotations

import math

import numpy as np

from surefoot.arrays import Floats

# Bounds on the norms of the first two derivatives of log π with respect to θ, for softmax.
SCORE, SCORE_SLOPE = math.sqrt(2), 0.5


def adaptive_step(length: float, lower: Floats, along: Floats, smoothness: Floats, barrier: float) -> float:
    """γ_t of Eq. (4): no V_i loses more than half, and no step is longer than the barrier is locally smooth.

    Args:
        length: norm of the barrier's gradient.
        lower, along: [m] α_i and β_i, values and slopes along that gradient.
        smoothness: [1+m] of V_0 and the V_i.
    """
    rough = smoothness[1:]
    kept = (lower / (np.sqrt(rough * lower) + 2 * along)).min() / length
    local = smoothness[0] + (10 * rough * barrier / lower + 8 * barrier * along**2 / lower**2).sum()
    return float(min(kept, 1 / local))


def theory_batch(margin: float, barrier: float, constraints: int, discount: float, level: float) -> int:
    """Episodes after which, by Lemma 3.4, the barrier's gradient is known to within η/4 where all V_i ≥ margin."""
    error, rest = barrier / 4, 1 - discount
    lipschitz = SCORE / rest**2
    value = min(margin / 8, 3 * error * margin**2 / (16 * constraints * barrier * lipschitz))
    slope = 3 * error * margin / (4 * (4 * constraints * barrier + 3 * margin))
    log_slope = 0.25 - math.log(level)
    for_value = 2 * math.log(2 / level) / (rest * value) ** 2
    for_slope = 8 * SCORE**2 * log_slope / (rest**3 * slope**2)
    return math.ceil(max(for_value, for_slope, 8 * log_slope))

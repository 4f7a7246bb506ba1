"""Which mixture to deploy: the best one that is safe on every cell that is still possible (docs, Proposition 1)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Mixture
from surefoot.tabular.linear_program import INFINITY, new_solver, pass_program, program_of, run

# Components below this weight are dropped; what they leave goes to the safe policy.
NEGLIGIBLE = 1e-9
# The program asks for this much margin, relative to the largest in its row, so that rounding leaves nothing to repair.
HAIR = 1e-9
# A repair goes a little further than exact arithmetic would ask for.
OVERSHOOT = 1.0 + 1e-6

# The solver's tolerances are absolute (1e-7), so it is given numbers of these sizes (powers of two) in all units.
MARGIN_EXPONENT, REWARD_EXPONENT = 0, 6

# Making a solver takes longer than what it solves here, so each thread keeps one.
_KEPT = threading.local()


def best_mixture(margin: Floats, reward: Floats) -> Mixture:
    """The linear program: maximise x·reward over the simplex subject to margin x ≥ 0.

    Args:
        margin: [R, P] certified margin of each policy, one row per surviving cell and constraint; column 0 (the safe
            policy) is non-negative.
        reward: [P] estimated reward of each policy.

    Only few rows bind, so rows are added one by one until none is violated.
    """
    if (margin[:, SAFE] < 0).any():
        return SAFE_MIXTURE
    rows = [int(np.argmin(margin[:, int(np.argmax(reward))]))]
    while True:
        weights = _solve(margin[rows], reward, HAIR)
        if weights is None:  # the safe policy itself has no hair to spare
            weights = _solve(margin[rows], reward, 0.0)
        if weights is None:
            return SAFE_MIXTURE
        slack = margin @ weights
        worst = int(np.argmin(slack))
        if slack[worst] >= 0 or worst in rows:
            return repair_mixture(margin, weights)
        rows.append(worst)


def best_pair(margin: Floats, reward: Floats) -> Mixture:
    """The pair rule: the safe policy and the one other that it pays most to add, as much of it as is safe."""
    weight = _most(margin)
    return _pair(margin, weight, int(np.argmax(weight * (reward - reward[SAFE]))))


def most_promising(margin: Floats, reward: Floats) -> Mixture:
    """The candidate of the paper's Algorithm 2: whoever promises most, as much of it as is safe beside the safe policy,
    even if that earns less than something else. So it is tried until it keeps its promise or is ruled out."""
    return _pair(margin, _most(margin), int(np.argmax(reward)))


def promises(margin: Floats, reward: Floats) -> Floats:
    """[P] the most that each policy would earn if one of the cells were known to be the one: as much of it as is safe
    there beside the safe policy. Of margins [J, P, m] and rewards [J, P]."""
    weight = _beside_safe(margin.transpose(0, 2, 1)).min(axis=1)
    most: Floats = (weight * reward + (1 - weight) * reward[:, [SAFE]]).max(axis=0)
    return most


def _pair(margin: Floats, weight: Floats, chosen: int) -> Mixture:
    if (margin[:, SAFE] < 0).any():
        return SAFE_MIXTURE
    weights = np.zeros(margin.shape[1])
    weights[chosen] = weight[chosen]
    weights[SAFE] += 1 - weights[chosen]
    return repair_mixture(margin, weights)


def _most(margin: Floats) -> Floats:
    """[P] the largest weight of each policy beside the safe one, α = min_j B[j,s]/(B[j,s] + [-B[j,l]]₊)."""
    most: Floats = _beside_safe(margin).min(axis=0)
    return most


def _beside_safe(margin: Floats) -> Floats:
    """[..., P] the same for every row by itself."""
    safe, shortfall = np.maximum(margin[..., [SAFE]], 0.0), np.maximum(-margin, 0.0)
    weight: Floats = np.where(shortfall > 0, safe / np.maximum(safe + shortfall, 1e-300), 1.0)
    return weight


def repair_mixture(margin: Floats, weights: Floats) -> Mixture:
    """Remove rounding towards the safe policy, so that no certified margin is below 0."""
    others = np.where(weights > NEGLIGIBLE, weights, 0.0)
    others[SAFE] = 0.0
    others /= max(1.0, others.sum())  # the solver's weights may sum to a little more
    mixture = _complete_with_safe(others)
    slack = margin @ mixture
    short = slack < 0
    if short.any():
        # Shrinking the others by t raises row j to (1-t)·slack + t·safe, which is 0 at t = -slack/(safe - slack).
        shrink = np.max(-slack[short] / np.maximum(margin[short, SAFE] - slack[short], 1e-300))
        mixture = _complete_with_safe(others * max(0.0, 1.0 - OVERSHOOT * shrink - NEGLIGIBLE))
        if (margin @ mixture < 0).any():
            return SAFE_MIXTURE
    indices = np.flatnonzero(mixture)
    return Mixture(indices, mixture[indices])


def _complete_with_safe(others: Floats) -> Floats:
    """Weights of the other policies, completed to a distribution by the safe one."""
    mixture = others.copy()
    mixture[SAFE] = max(0.0, 1.0 - others.sum())
    return mixture


def _solve(margin: Floats, reward: Floats, hair: float) -> Floats | None:
    """max x·reward, margin x ≥ hair·(largest in the row), Σx = 1, x ≥ 0; None when there is no optimum."""
    rows, columns = margin.shape
    margin, reward = _scale_rows(margin, MARGIN_EXPONENT), _scale_rows(reward, REWARD_EXPONENT)
    program = program_of(
        reward,
        np.vstack([margin, np.ones(columns)]),
        np.append(hair * np.abs(margin).max(axis=1), 1.0),
        np.append(np.full(rows, INFINITY), 1.0),
        column_upper=1.0,
    )
    highs = _solver()
    pass_program(highs, program)
    optimum = run(highs)
    return None if optimum is None else optimum[0]


def _solver() -> Any:
    if not hasattr(_KEPT, "highs"):
        _KEPT.highs = new_solver(presolve="off")
    return _KEPT.highs


def _scale_rows(rows: Floats, exponent: int) -> Floats:
    """Every row times the power of two that brings its largest entry just below 2^exponent: exact in all units."""
    found = np.frexp(np.abs(rows).max(axis=-1, keepdims=True))[1]
    scaled: Floats = np.ldexp(rows, exponent - found)
    return scaled

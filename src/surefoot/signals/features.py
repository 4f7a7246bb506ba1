"""What an observed episode is summarised by before anything is learned from it: numbers [F] of one episode each.

Features of states are counts of transitions. Features of any other observations are moments of observations and
actions, and the linear model of how the observation changes that fits the episode best: unknown masses, frictions and
sensitivities show in its coefficients. Nothing rests on what features are: a poor choice costs power, never safety.

Every row is computed by itself and in one order, so that an episode has the same features alone and among others.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Observed
from surefoot.errors import InvalidInput

# A linear model with more than this many coefficients is one without memory; then only moments are kept.
MOST_COEFFICIENTS = 600
# Actions of the past are remembered for so many steps: they may take effect late.
MEMORIES = (4.0, 16.0, 64.0)
# The model is shrunk as by so many steps at which nothing changes: one episode may not excite everything.
SHRINKAGE = 1.0

Keys: TypeAlias = Integers  # [F, 3] transitions (state, action, next state) that are counted


def moments(observed: Observed) -> Floats:
    """[n, F]: steps; mean, spread, least and largest of every observed number, mean and spread of every action; and the
    coefficients of the linear model of changes."""
    seen, acted = _columns(observed.observations), _columns(observed.actions)  # [n, k, H+1], [n, a, H]
    before, after = _mask(observed.steps, acted.shape[2]), _mask(observed.steps + 1, seen.shape[2])
    parts = [
        observed.steps[:, None].astype(np.float64),
        *_mean_and_spread(seen, after),
        _fill_uncounted(seen, after, np.inf).min(axis=2),
        _fill_uncounted(seen, after, -np.inf).max(axis=2),
        *_mean_and_spread(acted, before),
    ]
    for memories in (MEMORIES, ()):
        if seen.shape[1] * (1 + seen.shape[1] + acted.shape[1] * (1 + len(memories))) <= MOST_COEFFICIENTS:
            remembered = [_exponential_average(acted, steps) for steps in memories]
            parts.append(_changes(seen, np.concatenate([acted, *remembered], axis=1), before))
            break
    return np.concatenate(parts, axis=1)


def transitions(observed: Observed, keys: Keys) -> Floats:
    """[n, F] how often each of the transitions (state, action, next state) `keys` occurs."""
    wanted, order = np.unique(_codes(*keys.T), return_inverse=True)
    found = _codes(*_triples(observed))  # [n, H]
    place = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
    counted = (wanted[place] == found) & _mask(observed.steps, found.shape[1])
    n = len(observed)
    flat = (place + len(wanted) * np.arange(n)[:, None])[counted]
    counts: Floats = np.bincount(flat, minlength=n * len(wanted)).reshape(n, -1).astype(np.float64)
    return counts[:, order]


def payments(observed: Observed) -> Floats:
    """[n, 1+m] reward and costs of all steps together, undiscounted."""
    if observed.paid is None:
        raise InvalidInput(
            "signals of this policy set need the reward and costs of every step (Observed.paid), got none"
        )
    paid = _columns(observed.paid)
    total: Floats = _fill_uncounted(paid, _mask(observed.steps, paid.shape[2]), 0.0).sum(axis=2)
    return total


def frequent_transitions(observed: Observed, most: int) -> Keys:
    """[F, 3] the transitions that occur in most of the episodes."""
    codes = np.where(_mask(observed.steps, observed.actions.shape[1]), _codes(*_triples(observed)), -1)
    codes = np.sort(codes, axis=1)
    fresh = np.diff(codes, axis=1, prepend=-1) != 0  # once in an episode
    kinds, episodes = np.unique(codes[fresh & (codes >= 0)], return_counts=True)
    chosen = np.sort(kinds[np.argsort(-episodes, kind="stable")[:most]])
    return np.stack([chosen >> 42, (chosen >> 21) & MASK, chosen & MASK], axis=1)


def of_states(observed: Observed) -> bool:
    """Whether observations are states and actions are numbered."""
    return all(each.ndim == 2 and each.dtype.kind in "iu" for each in (observed.observations, observed.actions))


# ------------------------------------------------------------------------------------------------- parts, in call order

MASK = 2**21 - 1  # three whole numbers below 2^21 in one of 63 bits


def _columns(rows: NDArray[Any]) -> Floats:
    """[n, k, H] of [n, H, ...]: sums then run along the last axis, each by itself."""
    flat = rows.reshape(*rows.shape[:2], -1).astype(np.float64)
    return np.ascontiguousarray(flat.transpose(0, 2, 1))


def _mask(steps: Integers, length: int) -> NDArray[np.bool_]:
    """[n, length] whether a step belongs to the episode."""
    mask: NDArray[np.bool_] = np.arange(length) < steps[:, None]
    return mask


def _fill_uncounted(columns: Floats, counted: NDArray[np.bool_], value: float) -> Floats:
    """`columns` [n, k, H] with `value` where a step is not counted [n, H]."""
    return columns if counted.all() else np.where(counted[:, None], columns, value)


def _mean_and_spread(columns: Floats, counted: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """[n, k] each, over the counted steps."""
    count = np.maximum(counted.sum(axis=1), 1)[:, None]
    mean = _fill_uncounted(columns, counted, 0.0).sum(axis=2) / count
    squares = _fill_uncounted((columns - mean[:, :, None]) ** 2, counted, 0.0)
    return mean, np.sqrt(squares.sum(axis=2) / count)


def _exponential_average(acted: Floats, steps: float) -> Floats:
    """[n, a, H] averages of all actions so far, which forget within so many steps."""
    from scipy.signal import lfilter  # its import takes a second, which only those pay who filter

    fresh = -np.expm1(-1 / steps)
    remembered: Floats = lfilter([fresh], [1.0, fresh - 1.0], acted, axis=2)
    return remembered


def _changes(seen: Floats, acted: Floats, counted: NDArray[np.bool_]) -> Floats:
    """[n, k·(1+k+a)] coefficients of o_{t+1} - o_t on (1, o_t, a_t), by ridge regression within each episode."""
    inputs = np.concatenate([np.ones_like(acted[:, :1]), seen[:, :, :-1], acted], axis=1)  # [n, p, H]
    inputs = _fill_uncounted(inputs, counted, 0.0)
    gram = inputs @ inputs.transpose(0, 2, 1)
    aims = inputs @ _fill_uncounted(np.diff(seen, axis=2), counted, 0.0).transpose(0, 2, 1)
    # Every input at one size, so that one shrinkage suits them all.
    size = np.sqrt(np.diagonal(gram, axis1=1, axis2=2) / np.maximum(counted.sum(axis=1), 1)[:, None]) + 1e-9
    scaled = gram / (size[:, :, None] * size[:, None, :]) + SHRINKAGE * np.eye(inputs.shape[1])
    known = np.isfinite(scaled).all(axis=(1, 2), keepdims=True)  # of the others some processors make an error
    found = np.linalg.solve(np.where(known, scaled, np.eye(inputs.shape[1])), aims / size[:, :, None])
    coefficients = np.where(known, found / size[:, :, None], np.nan)
    flat: Floats = coefficients.transpose(0, 2, 1).reshape(len(seen), -1)
    return flat


def _triples(observed: Observed) -> tuple[Integers, Integers, Integers]:
    """State, action and next state [n, H] each."""
    if not of_states(observed):
        raise InvalidInput(
            f"observations and actions must be whole numbers [n, H+1] and [n, H], got "
            f"{observed.observations.dtype} {list(observed.observations.shape)} and {observed.actions.dtype}"
        )
    states = observed.observations.astype(np.int64)
    return states[:, :-1], observed.actions.astype(np.int64), states[:, 1:]


def _codes(state: Any, action: Any, after: Any) -> Integers:
    """Three whole numbers as one."""
    codes: Integers = (np.asarray(state, np.int64) << 42) | (np.asarray(action, np.int64) << 21) | after
    return codes

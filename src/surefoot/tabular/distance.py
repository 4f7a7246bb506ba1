"""The paper's distance between tasks: of two, of all pairs out of two batches, of an affine family in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.spatial import cKDTree

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.tables import Tables

# Digits to which forms must agree, relative to their size, to be taken for one and the same.
DIGITS = 13
# Numbers compared at once, to bound memory.
AT_ONCE = 2**22
# Tasks of either side that are compared with each other at once.
BATCH = 250


def distance(a: Tables, b: Tables) -> float:
    """d(a, b): the largest difference of unit-scaled r, c (maximum norm), start and transitions (total variation).

    Each task is scaled with its own declared ranges and budgets, as the paper's tasks arrive scaled.
    """
    shape_a, shape_b = a.cost.shape, b.cost.shape
    if shape_a != shape_b:
        raise InvalidInput(f"tasks must have equal constraints, states and actions, got {shape_a} and {shape_b}")
    if a.discount != b.discount:
        raise InvalidInput(f"tasks must share one discount, got {a.discount} and {b.discount}")
    if a.units.horizon != b.units.horizon:
        raise InvalidInput(f"tasks must share one horizon, got {a.units.horizon} and {b.units.horizon}")
    return max(
        float(np.abs(a.units.unit_reward(a.reward) - b.units.unit_reward(b.reward)).max()),
        float(np.abs(a.units.unit_constraint(a.cost) - b.units.unit_constraint(b.cost)).max()),
        float(np.abs(a.start - b.start).sum() / 2),
        _transition_distance(a, b),
    )


def _transition_distance(a: Tables, b: Tables) -> float:
    if a.is_sparse or b.is_sparse:
        return float(abs(a.rows - b.rows).sum(axis=1).max() / 2)
    return float(np.abs(a.transitions - b.transitions).sum(axis=2).max() / 2)


# ------------------------------------------------------------------------------------------------------ affine families


@dataclass(frozen=True, eq=False)
class AffineDistance:
    """d between tasks of an affine family from their parameters alone.

    The difference of two rows is Σ_k (θ_k - θ'_k) G_k, so d is the largest of finitely many sums of absolute values of
    linear forms of θ - θ'. Equal ones are kept once.

    Attributes:
        forms: [F, d], those of one sum next to each other.
        starts: where each sum begins.
    """

    forms: Floats
    starts: Integers

    def between(self, first: Floats, second: Floats) -> Floats:
        """[n, m] of parameters [n, d] and [m, d]."""
        origin = second[0]  # differences keep their digits wherever 0 may lie
        return largest_sums((first - origin) @ self.forms.T, (second - origin) @ self.forms.T, self.starts)

    def within(self, first: Floats, second: Floats, epsilon: float) -> Mask:
        """[n, m] whether d ≤ ε: exact for those pairs that a few linear bounds do not tell apart."""
        origin, near = second[0], np.zeros((len(first), len(second)), dtype=bool)
        tree = cKDTree((second - origin) @ self.bounds.T)
        close = tree.query_ball_point((first - origin) @ self.bounds.T, epsilon * (1 + 1e-9), p=np.inf)
        row = np.repeat(np.arange(len(first)), [len(each) for each in close])
        column = np.array([k for each in close for k in each], dtype=np.intp)
        for k in range(0, len(row), step := max(1, AT_ONCE // len(self.forms))):
            some = slice(k, k + step)
            apart = np.abs((first[row[some]] - second[column[some]]) @ self.forms.T)
            exact = np.add.reduceat(apart, self.starts, axis=1).max(axis=1)
            near[row[some], column[some]] = exact <= epsilon
        return near

    @cached_property
    def bounds(self) -> Floats:
        """[B, d] linear forms whose absolute values d is at least, and equal to in one direction each: along every
        parameter and in some irregular ones."""
        parameters = self.forms.shape[1]
        irregular = np.sin(np.arange(1.0, 1 + 8 * parameters**2)).reshape(-1, parameters)[: 8 * parameters]
        scale = np.abs(self.forms).max(axis=0)
        directions = np.concatenate([np.eye(parameters), irregular]) / np.where(scale > 0, scale, 1.0)
        found = []
        for direction in directions:
            along = self.forms @ direction
            best = int(np.argmax(np.add.reduceat(np.abs(along), self.starts)))
            part = slice(self.starts[best], [*self.starts, len(self.forms)][best + 1])
            found.append(np.sign(along[part]) @ self.forms[part])
        return np.stack(found)


def affine_distance(affine: AffineTables, units: Units) -> AffineDistance:
    """The closed form: half the sum of |·| over each row of transitions, and each unit-scaled signal."""
    scale = np.concatenate([[units.reward_scale], units.cost_scale])[:, None, None]
    signals = (affine.signal_slope / scale).reshape(affine.dimension, -1).T  # [(1+m)·S·A, d]
    transitions = affine.slope.T / 2
    size = max(float(np.abs(signals).max(initial=0.0)), float(np.abs(transitions).max(initial=0.0))) or 1.0
    sums: dict[bytes, Floats] = {}
    rows = np.split(transitions, affine.indptr[1:-1])
    for forms in (*rows, *signals[signals.any(axis=1), None]):
        merged = _merge_parallel(forms[forms.any(axis=1)])
        if len(merged):
            sums.setdefault(np.round(merged / size, DIGITS).tobytes(), merged)
    kept = list(sums.values()) or [np.zeros((1, affine.dimension))]
    return AffineDistance(np.concatenate(kept), np.cumsum([0, *map(len, kept[:-1])]))


def _merge_parallel(forms: Floats) -> Floats:
    """Σ |form| with parallel forms [n, d] added up, in an order of their own."""
    leading = forms[np.arange(len(forms)), np.argmax(np.abs(forms), axis=1)]
    direction = np.round(forms / leading[:, None], DIGITS - 2) + 0.0
    _, first, same = np.unique(direction, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(same.ravel(), weights=np.abs(leading))
    merged: Floats = forms[first] / leading[first, None] * weight[:, None]
    return merged


# -------------------------------------------------------------------------------------------------------- any families


@dataclass(frozen=True, eq=False)
class Numbers:
    """All numbers of a task that d compares; zeros are left out.

    Attributes:
        column: [K] what each is: a transition (flat in [S, A, S]), a start probability or a signal. Ascending, and one
            and the same array for tasks with the same possible transitions where that can be had.
        value: [K] unit-scaled, probabilities halved.
        states, pairs: S and S·A.
    """

    column: Integers
    value: Floats
    states: int
    pairs: int


def numbers(task: Tables, before: Sequence[Numbers] = ()) -> Numbers:
    """A task, ready to be compared with others, of which it may share the columns."""
    rows = task.rows.sorted_indices()
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    signals = np.concatenate([task.units.unit_reward(task.reward)[None], task.units.unit_constraint(task.cost)])
    rest = np.concatenate([task.start / 2, signals.ravel()])
    column = np.concatenate(
        [row * np.int64(task.n_states) + rows.indices, rows.shape[0] * task.n_states + np.arange(len(rest))]
    )
    column = next((other.column for other in before if np.array_equal(other.column, column)), column)
    return Numbers(column, np.concatenate([rows.data / 2, rest]), task.n_states, rows.shape[0])


def batch_distance(first: Sequence[Numbers], second: Sequence[Numbers]) -> Floats:
    """[n, m] d between all pairs of two batches. Of sums that are the same for all tasks at hand one is computed."""
    found = np.empty((len(first), len(second)))
    for i, j in product(range(0, len(first), BATCH), range(0, len(second), BATCH)):
        found[i : i + BATCH, j : j + BATCH] = _all_pairs(first[i : i + BATCH], second[j : j + BATCH])
    return found


def _all_pairs(first: Sequence[Numbers], second: Sequence[Numbers]) -> Floats:
    kinds = {id(task.column): task.column for task in (*first, *second)}
    columns = np.unique(np.concatenate(list(kinds.values())))
    places = {kind: np.searchsorted(columns, column) for kind, column in kinds.items()}
    every = np.zeros((len(first) + len(second), len(columns)))
    for row, task in zip(every, (*first, *second), strict=True):
        row[places[id(task.column)]] = task.value
    varying = every.max(axis=0) > every.min(axis=0)
    if not varying.any():
        return np.zeros((len(first), len(second)))
    every = every[:, varying]
    order, starts = _different_sums(every, _sums(columns[varying], first[0]))
    return largest_sums(every[: len(first), order], every[len(first) :, order], starts)


def _sums(column: Integers, like: Numbers) -> Integers:
    """Which sum of absolute differences each column belongs to: a row of transitions, the start, one for a signal."""
    transitions = like.pairs * like.states
    beyond = np.maximum(column - transitions - like.states + 1, 0)
    return np.where(column < transitions, column // like.states, like.pairs + beyond)


def _different_sums(values: Floats, sums: Integers) -> tuple[Integers, Integers]:
    """Columns of values [n, C] that belong to different sums, and where each of these sums begins.

    Two sums are the same if their columns are, up to their order. Columns are compared by their products with two
    irregular vectors, on which no two different ones agree but by an accident of measure 0.
    """
    rows = np.arange(1.0, len(values) + 1)
    marks = np.stack([np.sin(rows) @ values, np.cos(np.sqrt(2) * rows) @ values], axis=1)
    order = np.lexsort((marks[:, 1], marks[:, 0], sums))
    bounds = np.flatnonzero(np.append(True, np.diff(sums[order]) != 0))
    seen: dict[bytes, Integers] = {}
    for part in np.split(order, bounds[1:]):
        seen.setdefault(marks[part].tobytes(), part)
    kept = list(seen.values())
    return np.concatenate(kept), np.cumsum([0, *map(len, kept[:-1])])


def largest_sums(first: Floats, second: Floats, starts: Integers) -> Floats:
    """[n, m] the largest over the sums of |first - second| of any two rows of [n, C] and [m, C]."""
    found = np.empty((len(first), len(second)))
    step = max(1, AT_ONCE // max(1, second.size))
    for k in range(0, len(first), step):
        apart = np.abs(first[k : k + step, None] - second)
        found[k : k + step] = np.add.reduceat(apart, starts, axis=2).max(axis=2)
    return found

"""Tabular constrained Markov decision processes, and the one conversion between the user's units and the paper's.

The user speaks of a reward and of costs that must stay within a budget: Σ γ^t cost ≤ budget in expectation. The paper
speaks of r in [0, 1], c in [-1, 1] and V_c ≥ 0. `Units` is the only place that knows both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]

# Rows of probabilities may miss 1 by this much; they are then divided by their sum. A sum of 1 - 1e-9 in place of 1
# would be wrong by e after a billion transitions. What is left is rounding, which dividing again would not mend.
ROW_SUM_TOLERANCE, ROW_SUM_ROUNDING = 1e-9, 1e-14


@dataclass(frozen=True)
class Units:
    """Discount, declared ranges and budgets: all that is needed to translate values. Shared by the tasks of a family.

    Attributes:
        reward_range: (low, high) of one step's reward.
        cost_range: [m, 2] low and high of one step's cost, per constraint.
        budget: [m] bound on the expected discounted cost.
    """

    discount: float
    reward_range: tuple[float, float]
    cost_range: Floats
    budget: Floats

    @property
    def reward_scale(self) -> float:
        low, high = self.reward_range
        return high - low or 1.0

    @cached_property
    def cost_scale(self) -> Floats:
        """[m] divisor that puts c = ((1-γ)·budget - cost)/scale into [-1, 1]: the range itself if it suffices."""
        low, high = self.cost_range.T
        even = (1 - self.discount) * self.budget
        scale: Floats = np.maximum(high - low, np.maximum(np.abs(even - low), np.abs(high - even)))
        return _frozen(np.where(scale > 0, scale, 1.0))

    @property
    def constraint_width(self) -> Floats:
        """[m] length of the interval in which c lies; 1 whenever the even spending rate (1-γ)·budget is in range."""
        width: Floats = (self.cost_range[:, 1] - self.cost_range[:, 0]) / self.cost_scale
        return width

    @property
    def worst_value(self) -> Floats:
        """[m] V₋ ≥ -V_c of any policy; the paper's 1/(1-γ) with the true range of c."""
        worst = self.cost_range[:, 1] / (1 - self.discount) - self.budget
        return np.maximum(worst, 0.0) / self.cost_scale

    @property
    def reward_value_range(self) -> tuple[float, float]:
        low, high = self.reward_range
        return low / (1 - self.discount), high / (1 - self.discount)

    @property
    def cost_value_range(self) -> Floats:
        """[m, 2] range of a discounted cost."""
        return self.cost_range / (1 - self.discount)

    def unit_reward(self, reward: Floats) -> Floats:
        """One step's reward [...] as the paper's r in [0, 1]."""
        return (reward - self.reward_range[0]) / self.reward_scale

    def unit_constraint(self, cost: Floats) -> Floats:
        """One step's cost [m, ...] as the paper's c in [-1, 1]."""
        shape = (-1,) + (1,) * (cost.ndim - 1)
        even = (1 - self.discount) * self.budget
        return (even.reshape(shape) - cost) / self.cost_scale.reshape(shape)

    def unit_reward_value(self, value: ArrayLike) -> Floats:
        """Discounted reward as the paper's V_r in [0, 1/(1-γ)]."""
        return (np.asarray(value) - self.reward_value_range[0]) / self.reward_scale

    def unit_margin(self, margin: ArrayLike) -> Floats:
        """Margin budget - cost [..., m] as the paper's V_c."""
        return np.asarray(margin) / self.cost_scale

    def user_margin(self, constraint_value: ArrayLike) -> Floats:
        """The paper's V_c [..., m] as the margin budget - cost."""
        return np.asarray(constraint_value) * self.cost_scale

    def truncation_bias(self, horizon: int) -> float:
        """Largest difference, in unit scale, between discounted sums of `horizon` steps and whole ones."""
        reward = np.abs(self.reward_value_range).max() / self.reward_scale
        cost = (np.abs(self.cost_value_range).max(axis=1) / self.cost_scale).max()
        return float(self.discount**horizon * max(reward, cost))

    def same_as(self, other: Units) -> bool:
        return (
            self.discount == other.discount
            and self.reward_range == other.reward_range
            and np.array_equal(self.cost_range, other.cost_range)
            and np.array_equal(self.budget, other.budget)
        )


class TabularCMDP:
    """A finite CMDP with m constraints, validated once and read-only from then on.

    Args:
        transitions: [S, A, S] dense, or SciPy sparse [S·A, S] with row s·A + a; rows are divided by their sum, which
            must be 1 within 1e-9.
        reward: [S, A] or [S].
        cost: [S, A], [S] or [m, S, A].
        budget: a number or [m]; the expected discounted cost must not exceed it.
        start: [S] distribution of the first state.
        discount: in (0, 1).
        reward_range, cost_range: declared (low, high) of one step (cost_range also [m, 2]); the values found in the
            tables when not given. Declare them when the tasks of a family must share one scale.
    """

    def __init__(
        self,
        transitions: ArrayLike | sp.sparray | sp.spmatrix,
        reward: ArrayLike,
        cost: ArrayLike,
        budget: ArrayLike,
        start: ArrayLike,
        discount: float,
        reward_range: tuple[float, float] | None = None,
        cost_range: ArrayLike | None = None,
    ) -> None:
        discount = _number("discount", discount)
        if not 0 < discount < 1:
            raise InvalidInput(f"discount must lie strictly between 0 and 1, got {discount!r}")
        self.start = _frozen(_distribution("start", start))
        states = self.start.size
        self.transitions = _transitions(transitions, states)
        actions = self.transitions.shape[0] // states if self.is_sparse else self.transitions.shape[1]
        self.n_states, self.n_actions = states, actions
        self.reward = _frozen(_table("reward", reward, states, actions))
        self.cost = _frozen(_cost_tables(cost, states, actions))
        self.n_constraints = len(self.cost)
        self.units = Units(
            discount,
            _reward_range(reward_range, np.asarray(reward, dtype=np.float64)),
            _frozen(_cost_range(cost_range, np.asarray(cost, dtype=np.float64))),
            _frozen(_budget(budget, self.n_constraints)),
        )

    @property
    def discount(self) -> float:
        return self.units.discount

    @property
    def budget(self) -> Floats:
        return self.units.budget

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.transitions))

    @cached_property
    def rows(self) -> sp.csr_array:
        """[S·A, S] transitions as a sparse matrix, whatever they were given as."""
        if self.is_sparse:
            return self.transitions
        return _frozen_rows(sp.csr_array(self.transitions.reshape(-1, self.n_states)))

    def kernel(self, probabilities: Floats) -> Any:
        """[S, S] chain under action probabilities [S, A]; sparse when the model is."""
        if not self.is_sparse:
            return np.matmul(probabilities[:, None, :], self.transitions)[:, 0, :]
        states, actions = probabilities.shape
        weights = sp.csr_array(
            (probabilities.ravel(), np.arange(states * actions), np.arange(0, states * actions + 1, actions)),
            shape=(states, states * actions),
        )
        return (weights @ self.transitions).tocsr()

    def digest(self) -> str:
        """SHA-256 of everything that defines this task."""
        rows = self.rows.sorted_indices()
        rows.eliminate_zeros()
        parts = (
            *(rows.indptr.astype("<i8"), rows.indices.astype("<i8"), rows.data),
            *(self.reward, self.cost, self.start, self.budget, self.units.cost_range),
            np.array([self.discount, *self.units.reward_range]),
        )
        sha = hashlib.sha256()
        for part in parts:
            sha.update(np.ascontiguousarray(part).tobytes())
        return sha.hexdigest()

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return (
            f"TabularCMDP({kind}, states={self.n_states}, actions={self.n_actions}, "
            f"constraints={self.n_constraints}, discount={self.discount})"
        )


# ------------------------------------------------------------------------------------------------ checks, in call order


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number, got {value!r}") from None
    if not np.isfinite(number):
        raise InvalidInput(f"{name} must be finite, got {number}")
    return number


def finite_array(name: str, value: Any) -> Floats:
    """`value` as a new float64 array without NaN or infinity, or an error that names the first bad entry."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be an array of numbers, got {type(value).__name__}") from None
    _refuse(name, array, ~np.isfinite(array), "must be finite")
    return array


def _distribution(name: str, value: Any) -> Floats:
    array = finite_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"{name} must have shape [S] with S ≥ 1, got shape {list(array.shape)}")
    _refuse(name, array, array < 0, "must not be negative")
    if abs(array.sum() - 1) > ROW_SUM_TOLERANCE:
        raise InvalidInput(f"{name} must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {array.sum():.12g}")
    return normalised(array)


def normalised(rows: Floats) -> Floats:
    """Probabilities [..., n], each last-axis row divided by its sum unless that is 1 but for rounding."""
    sums = rows.sum(axis=-1, keepdims=True)
    quotient: Floats = rows / np.where(np.abs(sums - 1) > ROW_SUM_ROUNDING, sums, 1.0)
    return quotient


def _transitions(value: Any, states: int) -> Any:
    return _sparse_rows(value, states) if sp.issparse(value) else _dense_rows(value, states)


def _dense_rows(value: Any, states: int) -> Floats:
    array = finite_array("transitions", value)
    if array.ndim != 3 or array.shape[0] != states or array.shape[2] != states or array.shape[1] == 0:
        raise InvalidInput(f"transitions must have shape [S, A, S], S = {states} as in start, got {list(array.shape)}")
    _refuse("transitions", array, array < 0, "must not be negative")
    _check_sums(array.sum(axis=2))
    return _frozen(normalised(array))


def _sparse_rows(value: Any, states: int) -> sp.csr_array:
    matrix = sp.csr_array(value, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if matrix.ndim != 2 or matrix.shape[1] != states or matrix.shape[0] % states or matrix.shape[0] == 0:
        raise InvalidInput(f"transitions must have shape [S·A, S], S = {states} as in start, got {list(matrix.shape)}")
    actions = matrix.shape[0] // states
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))

    def place(k: int) -> tuple[int, ...]:
        return int(row_of[k]) // actions, int(row_of[k]) % actions, int(matrix.indices[k])

    _refuse("transitions", matrix.data, ~np.isfinite(matrix.data), "must be finite", place)
    _refuse("transitions", matrix.data, matrix.data < 0, "must not be negative", place)
    sums = np.asarray(matrix.sum(axis=1))
    _check_sums(sums.reshape(states, actions))
    divisor = np.where(np.abs(sums - 1) > ROW_SUM_ROUNDING, sums, 1.0)
    matrix.data = matrix.data / divisor[row_of]
    return _frozen_rows(matrix)


def _check_sums(sums: Floats) -> None:
    bad = np.argwhere(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if len(bad):
        s, a = bad[0]
        raise InvalidInput(f"transitions[{s}, {a}] must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {sums[s, a]:.12g}")


def _table(name: str, value: Any, states: int, actions: int) -> Floats:
    array = finite_array(name, value)
    if array.shape == (states,):
        array = np.repeat(array[:, None], actions, axis=1)
    if array.shape != (states, actions):
        raise InvalidInput(f"{name} must have shape [{states}, {actions}] or [{states}], got {list(array.shape)}")
    return array


def _cost_tables(value: Any, states: int, actions: int) -> Floats:
    array = finite_array("cost", value)
    if array.ndim < 3:
        return _table("cost", array, states, actions)[None]
    if array.ndim != 3 or array.shape[0] == 0 or array.shape[1:] != (states, actions):
        raise InvalidInput(
            f"cost must have shape [{states}, {actions}], [{states}] or [m, {states}, {actions}], "
            f"got {list(array.shape)}"
        )
    return array


def _reward_range(declared: Any, reward: Floats) -> tuple[float, float]:
    if declared is None:
        return float(reward.min()), float(reward.max())
    bounds = finite_array("reward_range", declared)
    if bounds.shape != (2,) or bounds[0] > bounds[1]:
        raise InvalidInput(f"reward_range must be (low, high) with low ≤ high, got {declared!r}")
    _refuse(
        "reward",
        reward,
        (reward < bounds[0]) | (reward > bounds[1]),
        f"must lie in reward_range {bounds.tolist()}",
    )
    return float(bounds[0]), float(bounds[1])


def _cost_range(declared: Any, cost: Floats) -> Floats:
    tables = cost.reshape(len(cost) if cost.ndim == 3 else 1, -1)
    if declared is None:
        return np.stack([tables.min(axis=1), tables.max(axis=1)], axis=1)
    bounds = finite_array("cost_range", declared)
    if bounds.shape == (2,):
        bounds = np.tile(bounds, (len(tables), 1))
    if bounds.shape != (len(tables), 2) or (bounds[:, 0] > bounds[:, 1]).any():
        raise InvalidInput(f"cost_range must be (low, high) or [m, 2] with low ≤ high, got {declared!r}")
    outside = (tables < bounds[:, :1]) | (tables > bounds[:, 1:])
    _refuse("cost", cost, outside.reshape(cost.shape), f"must lie in cost_range {bounds.tolist()}")
    return bounds


def _budget(value: Any, constraints: int) -> Floats:
    array = np.atleast_1d(finite_array("budget", value))
    if array.shape != (constraints,):
        raise InvalidInput(
            f"budget must be a number per constraint ([{constraints}]), got shape {list(np.shape(value))}"
        )
    return array


def _refuse(
    name: str,
    values: Floats,
    bad: NDArray[np.bool_],
    rule: str,
    place: Callable[[int], tuple[int, ...]] | None = None,
) -> None:
    """Raise for the first entry of `values` marked bad, naming its index; `place` maps a flat index if given."""
    if not bad.any():
        return
    flat = int(np.argmax(bad))
    index = place(flat) if place else tuple(int(k) for k in np.unravel_index(flat, values.shape))
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    raise InvalidInput(f"{where} {rule}, got {float(values.flat[flat])!r}")


def _frozen(array: Floats) -> Floats:
    array.setflags(write=False)
    return array


def _frozen_rows(matrix: sp.csr_array) -> sp.csr_array:
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return matrix

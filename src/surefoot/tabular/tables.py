"""The tables of a finite constrained Markov decision process, validated once and read-only from then on."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, check_sums, distributions, finite_array, frozen, refuse
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput


class Tables:
    """A finite CMDP with m constraints.

    Args:
        transitions: [S, A, S] dense, or SciPy sparse [S·A, S] with row s·A + a; rows are divided by their sum, which
            must be 1 within 1e-9.
        reward: [S, A] or [S].
        cost: [S, A], [S] or [m, S, A].
        budget: a number or [m]; the expected discounted cost must not exceed it.
        start: [S] distribution of the first state.
        discount: in (0, 1); 1 is allowed with a horizon.
        reward_range, cost_range: declared (low, high) of one step (cost_range also [m, 2]); the values found in the
            tables when not given. Declare them when the tasks of a family must share one scale.
        horizon: steps after which an episode ends; None if it goes on for ever.
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
        horizon: int | None = None,
    ) -> None:
        self.start = distributions("start", start, "[S]")
        states = self.start.size
        self.transitions = _transitions(transitions, states)
        actions = self.transitions.shape[0] // states if self.is_sparse else self.transitions.shape[1]
        self.n_states, self.n_actions = states, actions
        self.reward = frozen(_table("reward", reward, states, actions))
        self.cost = frozen(_cost_tables(cost, states, actions))
        self.n_constraints = len(self.cost)
        # Ranges are taken from what was given, so that a table by state is read once and not once per action.
        rewards, costs = np.asarray(reward, dtype=np.float64), np.asarray(cost, dtype=np.float64)
        declared: Any = reward_range, cost_range  # `Units` makes arrays of them
        self.units = Units(
            discount,
            _spread(rewards[None])[0] if reward_range is None else declared[0],
            _spread(costs if costs.ndim == 3 else costs[None]) if cost_range is None else declared[1],
            _budget(budget, self.n_constraints),
            horizon,
        )
        _check_ranges(self.units, rewards, costs)

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

    @property
    def matrix(self) -> Any:
        """[S·A, S] transitions as they were given, dense or sparse."""
        return self.transitions if self.is_sparse else self.transitions.reshape(-1, self.n_states)

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
            np.array([] if self.units.horizon is None else [self.units.horizon], dtype="<i8"),
        )
        sha = hashlib.sha256()
        for part in parts:
            sha.update(np.ascontiguousarray(part).tobytes())
        return sha.hexdigest()

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return (
            f"{type(self).__name__}({kind}, states={self.n_states}, actions={self.n_actions}, "
            f"constraints={self.n_constraints}, discount={self.discount}"
            f"{'' if self.units.horizon is None else f', horizon={self.units.horizon}'})"
        )


def endless(tables: Tables, what: str) -> None:
    """Refuse a task with a horizon, for `what` sums over time without end."""
    if tables.units.horizon is not None:
        raise InvalidInput(f"{what} is for tasks without a horizon, got one with horizon {tables.units.horizon}")


# ------------------------------------------------------------------------------------------------ checks, in call order


def _transitions(value: Any, states: int) -> Any:
    return _sparse_rows(value, states) if sp.issparse(value) else _dense_rows(value, states)


def _dense_rows(value: Any, states: int) -> Floats:
    array = finite_array("transitions", value)
    if array.ndim != 3 or array.shape[0] != states or array.shape[2] != states or array.shape[1] == 0:
        raise InvalidInput(f"transitions must have shape [S, A, S], S = {states} as in start, got {list(array.shape)}")
    return distributions("transitions", array, "[S, A, S]")


def _sparse_rows(value: Any, states: int) -> sp.csr_array:
    matrix = sp.csr_array(value, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if matrix.ndim != 2 or matrix.shape[1] != states or matrix.shape[0] % states or matrix.shape[0] == 0:
        raise InvalidInput(f"transitions must have shape [S·A, S], S = {states} as in start, got {list(matrix.shape)}")
    actions = matrix.shape[0] // states
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))

    def place(k: int) -> tuple[int, ...]:
        return int(row_of[k]) // actions, int(row_of[k]) % actions, int(matrix.indices[k])

    refuse("transitions", matrix.data, ~np.isfinite(matrix.data), "must be finite", place)
    refuse("transitions", matrix.data, matrix.data < 0, "must not be negative", place)
    sums = np.asarray(matrix.sum(axis=1))
    check_sums("transitions", sums.reshape(states, actions))
    divisor = np.where(np.abs(sums - 1) > ROW_SUM_ROUNDING, sums, 1.0)
    matrix.data = matrix.data / divisor[row_of]
    return _frozen_rows(matrix)


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


def _spread(tables: Floats) -> Any:
    """[n, 2] least and largest entry of each of n tables."""
    flat = tables.reshape(len(tables), -1)
    return np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1)


def _budget(value: Any, constraints: int) -> Floats:
    array = np.atleast_1d(finite_array("budget", value))
    if array.shape != (constraints,):
        raise InvalidInput(
            f"budget must be a number per constraint ([{constraints}]), got shape {list(np.shape(value))}"
        )
    return array


def _check_ranges(units: Units, reward: Floats, cost: Floats) -> None:
    """What the tables hold lies in what was declared, the same for all actions of a state where it was given so."""
    low, high = units.reward_range
    refuse("reward", reward, (reward < low) | (reward > high), f"must lie in reward_range {[low, high]}")
    tables = cost.reshape(len(units.budget), -1)
    outside = (tables < units.cost_range[:, :1]) | (tables > units.cost_range[:, 1:])
    refuse("cost", cost, outside.reshape(cost.shape), f"must lie in cost_range {units.cost_range.tolist()}")


def _frozen_rows(matrix: sp.csr_array) -> sp.csr_array:
    for part in (matrix.data, matrix.indices, matrix.indptr):
        frozen(part)
    return matrix

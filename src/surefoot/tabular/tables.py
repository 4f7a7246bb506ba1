"""The tables of a finite constrained Markov decision process, validated once and read-only from then on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, check_sums, distributions, finite_array, make_readonly, raise_at
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.payments import check_ranges, cost_signals, payments_of, reward_signal, spread


class Tables:
    """A finite CMDP with m constraints.

    Args:
        transitions: [S, A, S] dense, or SciPy sparse [S·A, S] with row s·A + a; rows are divided by their sum, which
            must be 1 within 1e-9.
        reward: [S, A] or [S]; or on transitions, [S, A, S] dense or SciPy sparse [S·A, S].
        cost: the same for one constraint; [m, S, A] or [m, S, A, S] or m sparse matrices for several.
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
        reward: ArrayLike | sp.sparray | sp.spmatrix,
        cost: ArrayLike | sp.sparray | sp.spmatrix | Sequence[sp.sparray],
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
        constraints = np.atleast_1d(finite_array("budget", budget))
        earned = reward_signal(reward, states, actions)
        spent = cost_signals(cost, states, actions, constraints.size)
        self.n_constraints = len(spent)
        self.payments = payments_of(earned, spent)
        expected = self.payments.expected(self.rows) if self.payments.by_transition else self.payments.by_pair
        self.reward, self.cost = make_readonly(expected[0]), make_readonly(expected[1:])
        declared: Any = reward_range, cost_range  # `Units` makes arrays of them
        self.units = Units(
            discount,
            spread(earned) if reward_range is None else declared[0],
            np.array([spread(each) for each in spent]) if cost_range is None else declared[1],
            _budget(constraints, self.n_constraints),
            horizon,
        )
        check_ranges(self.units, earned, spent)

    @property
    def discount(self) -> float:
        return self.units.discount

    @property
    def budget(self) -> Floats:
        return self.units.budget

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.transitions))

    @property
    def signals(self) -> Floats:
        """[1+m, S, A] expected reward and costs of a step."""
        return np.concatenate([self.reward[None], self.cost])

    @cached_property
    def rows(self) -> sp.csr_array:
        """[S·A, S] transitions as a sparse matrix, whatever they were given as."""
        if self.is_sparse:
            return self.transitions
        return _freeze_rows(sp.csr_array(self.transitions.reshape(-1, self.n_states)))

    @property
    def matrix(self) -> Any:
        """[S·A, S] transitions as they were given, dense or sparse."""
        return self.transitions if self.is_sparse else self.transitions.reshape(-1, self.n_states)

    def kernel(self, probabilities: Floats) -> Any:
        """[S, S] chain under action probabilities [S, A]; sparse when the model is."""
        if not self.is_sparse:
            return np.matmul(probabilities[:, None, :], self.transitions)[:, 0, :]
        return policy_transitions(self.transitions, probabilities)

    def digest(self) -> str:
        """SHA-256 of everything that defines this task."""
        rows = self.rows.sorted_indices()
        rows.eliminate_zeros()
        parts = (
            *(rows.indptr.astype("<i8"), rows.indices.astype("<i8"), rows.data),
            *(self.reward, self.cost, self.start, self.budget, self.units.cost_range),
            np.array([self.discount, *self.units.reward_range]),
            np.array([] if self.units.horizon is None else [self.units.horizon], dtype="<i8"),
            *self._transition_payments(),
        )
        sha = hashlib.sha256()
        for part in parts:
            sha.update(np.ascontiguousarray(part).tobytes())
        return sha.hexdigest()

    def _transition_payments(self) -> Iterator[Any]:
        for payment in self.payments.by_transition:
            yield from (payment.indptr.astype("<i8"), payment.indices.astype("<i8"), payment.data)

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return (
            f"{type(self).__name__}({kind}, states={self.n_states}, actions={self.n_actions}, "
            f"constraints={self.n_constraints}, discount={self.discount}"
            f"{'' if self.units.horizon is None else f', horizon={self.units.horizon}'})"
        )


def policy_transitions(rows: sp.csr_array, probabilities: Floats) -> sp.csr_array:
    """[S, S] from rows [S·A, S], those of a state weighted with its action probabilities [S, A]."""
    states, actions = probabilities.shape
    weights = sp.csr_array(
        (probabilities.ravel(), np.arange(states * actions), np.arange(0, states * actions + 1, actions)),
        shape=(states, states * actions),
    )
    return (weights @ rows).tocsr()


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

    raise_at("transitions", matrix.data, ~np.isfinite(matrix.data), "must be finite", place)
    raise_at("transitions", matrix.data, matrix.data < 0, "must not be negative", place)
    sums = np.asarray(matrix.sum(axis=1))
    check_sums("transitions", sums.reshape(states, actions))
    divisor = np.where(np.abs(sums - 1) > ROW_SUM_ROUNDING, sums, 1.0)
    matrix.data = matrix.data / divisor[row_of]
    return _freeze_rows(matrix)


def _budget(budget: Floats, constraints: int) -> Floats:
    if budget.shape != (constraints,):
        raise InvalidInput(f"budget must be a number per constraint ([{constraints}]), got shape {list(budget.shape)}")
    return budget


def _freeze_rows(matrix: sp.csr_array) -> sp.csr_array:
    for part in (matrix.data, matrix.indices, matrix.indptr):
        make_readonly(part)
    return matrix

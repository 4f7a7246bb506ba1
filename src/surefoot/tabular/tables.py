"""The tables of a finite constrained Markov decision process, validated once and read-only from then on: transitions,
and what the steps pay, by state and action or by transition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from surefoot.arrays import (
    ROW_SUM_ROUNDING,
    Floats,
    Integers,
    check_sums,
    distributions,
    finite_array,
    make_readonly,
    raise_at,
)
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput


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
        expected = self.payments.expectation(self.rows) if self.payments.by_transition else self.payments.by_pair
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


# ----------------------------------------------------------------------------------------------------- reward and costs


@dataclass(frozen=True, eq=False)
class Payments:
    """Reward and m costs of a step from s to s' under a: by_pair[:, s, a] + by_transition[:][s·A + a, s'].

    Attributes:
        by_pair: [1+m, S, A] what is paid whatever follows.
        by_transition: 1+m sparse matrices [S·A, S], also for transitions that are impossible in this task, but possible
            in another one of its family; none where nothing depends on the next state.
    """

    by_pair: Floats
    by_transition: tuple[sp.csr_array, ...] = ()

    def expectation(self, rows: sp.csr_array) -> Floats:
        """[1+m, S, A] under transition probabilities [S·A, S]: all that values of policies depend on."""
        if not self.by_transition:
            return self.by_pair
        means = np.stack([np.asarray((rows * payment).sum(axis=1)) for payment in self.by_transition])
        total: Floats = self.by_pair + means.reshape(self.by_pair.shape)
        return total

    def at(self, states: Integers, actions: Integers, successors: Integers) -> Floats:
        """[..., 1+m] of steps [...]."""
        paid = np.moveaxis(self.by_pair, 0, -1)[states, actions]
        if self.by_transition:
            rows = (states * self.by_pair.shape[2] + actions).ravel()
            parts = [np.asarray(payment[rows, successors.ravel()]) for payment in self.by_transition]
            paid = paid + np.stack(parts, axis=-1).reshape(paid.shape)
        return paid

    def same_as(self, other: Payments) -> bool:
        """Whether every step pays the same, possible or not."""
        pairs = list(zip(self.by_transition, other.by_transition, strict=False))
        return (
            len(self.by_transition) == len(other.by_transition)
            and np.array_equal(self.by_pair, other.by_pair)
            and all(not (mine != theirs).nnz for mine, theirs in pairs)
        )


@dataclass(frozen=True, eq=False)
class SignalTable:
    """One reward or cost as it was given.

    Attributes:
        by_pair: [S, A].
        by_transition: [S·A, S], or None.
        given: [...] the numbers themselves, for whoever must check them.
        number: (k,) if this is the k-th of several, for error messages.
    """

    by_pair: Floats
    by_transition: sp.csr_array | None
    given: Floats
    number: tuple[int, ...] = ()


def reward_signal(value: Any, states: int, actions: int) -> SignalTable:
    """A reward given as [S, A], [S], or on transitions as [S, A, S] or sparse [S·A, S]."""
    return _signal("reward", value, states, actions, "")


def cost_signals(value: Any, states: int, actions: int, constraints: int) -> tuple[SignalTable, ...]:
    """Costs given like rewards, one of them or m: [m, S, A], [m, S, A, S], or a sequence of m sparse matrices.

    [S, A, S] and [m, S, A] can be told apart unless m = S = A; then as many budgets as states mean the latter.
    """
    if sp.issparse(value):
        return (_signal("cost", value, states, actions, ""),)
    if isinstance(value, Sequence) and any(sp.issparse(part) for part in value):
        each = (_signal(f"cost[{k}]", part, states, actions, "") for k, part in enumerate(value))
        return tuple(replace(signal, number=(k,)) for k, signal in enumerate(each))
    array = finite_array("cost", value)
    on_transitions = array.shape == (states, actions, states) and (states != actions or constraints != states)
    if array.ndim <= 2 or on_transitions:
        return (_signal("cost", array, states, actions, f", [m, {states}, {actions}] or [m, S, A, S]"),)
    if array.ndim not in (3, 4) or array.shape[0] == 0 or array.shape[1:] not in _shapes(states, actions):
        raise InvalidInput(
            f"cost must have shape [{states}, {actions}], [{states}], [{states}, {actions}, {states}], or that with "
            f"[m, ...] in front but for the second, got {list(array.shape)}"
        )
    return tuple(replace(_signal("cost", part, states, actions, ""), number=(k,)) for k, part in enumerate(array))


def payments_of(reward: SignalTable, costs: Sequence[SignalTable]) -> Payments:
    signals = (reward, *costs)
    by_pair = make_readonly(np.stack([signal.by_pair for signal in signals]))
    if all(signal.by_transition is None for signal in signals):
        return Payments(by_pair)
    nothing = sp.csr_array((by_pair[0].size, len(by_pair[0])), dtype=np.float64)
    return Payments(by_pair, tuple(nothing if s.by_transition is None else s.by_transition for s in signals))


def spread(signal: SignalTable) -> tuple[float, float]:
    """Least and largest of what was given; a sparse matrix pays 0 where it holds nothing."""
    low, high = float(signal.given.min(initial=np.inf)), float(signal.given.max(initial=-np.inf))
    sparse = signal.by_transition is not None and signal.given.ndim == 1
    return (min(low, 0.0), max(high, 0.0)) if sparse else (low, high)


def check_ranges(units: Units, reward: SignalTable, costs: Sequence[SignalTable]) -> None:
    """What was given lies in what was declared."""
    _check_range("reward", reward, np.array(units.reward_range), f"reward_range {list(units.reward_range)}")
    for cost, bounds in zip(costs, units.cost_range, strict=True):
        _check_range("cost", cost, bounds, f"cost_range {units.cost_range.tolist()}")


def _check_range(name: str, signal: SignalTable, bounds: Floats, declared: str) -> None:
    given = signal.given

    def place(flat: int) -> tuple[int, ...]:
        return *signal.number, *map(int, np.unravel_index(flat, given.shape))

    raise_at(name, given, (given < bounds[0]) | (given > bounds[1]), f"must lie in {declared}", place)


def _signal(name: str, value: Any, states: int, actions: int, further: str) -> SignalTable:
    if sp.issparse(value):
        return _sparse_signal(name, value, states, actions)
    array = finite_array(name, value)
    if array.shape not in ((states,), *_shapes(states, actions)):
        raise InvalidInput(
            f"{name} must have shape [{states}, {actions}], [{states}] or [{states}, {actions}, {states}]{further}, "
            f"got {list(array.shape)}"
        )
    if array.ndim == 3:
        payment = sp.csr_array(array.reshape(-1, states))
        return SignalTable(np.zeros((states, actions)), payment, array)
    table = np.repeat(array[:, None], actions, axis=1) if array.ndim == 1 else array
    return SignalTable(table, None, array)


def _shapes(states: int, actions: int) -> tuple[tuple[int, ...], ...]:
    return (states, actions), (states, actions, states)


def _sparse_signal(name: str, value: Any, states: int, actions: int) -> SignalTable:
    payment = sp.csr_array(value, dtype=np.float64, copy=True)
    payment.sum_duplicates()
    if payment.shape != (states * actions, states):
        raise InvalidInput(
            f"{name} must have shape [{states * actions}, {states}] as a sparse matrix, [S·A, S], "
            f"got {list(payment.shape)}"
        )
    raise_at(name, payment.data, ~np.isfinite(payment.data), "must be finite")
    return SignalTable(np.zeros((states, actions)), payment, payment.data)

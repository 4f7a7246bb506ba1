"""What the steps of a tabular task pay: its reward and its costs, by state and action or by transition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats, Integers, finite_array, make_readonly, raise_at
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput


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

    def expected(self, rows: sp.csr_array) -> Floats:
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

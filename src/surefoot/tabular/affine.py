"""Families of tables that are affine in a parameter: P_θ = P₀ + Σ_k θ_k G_k, the expected reward and costs alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import qr

from surefoot.arrays import Floats, Integers
from surefoot.tabular.tables import Tables, policy_transitions

# Entries that change by no more than this between tasks do not depend on the parameter but for rounding.
UNCHANGED = 1e-14


@dataclass(frozen=True, eq=False)
class AffineTables:
    """What does not depend on the parameter θ [d] stands in the base, what does in the slopes. E is the number of
    transitions that are possible for some θ, ordered by row s·A + a and then by successor.

    Attributes:
        indptr: [S·A + 1] where the transitions of each row begin.
        successor: [E] state that each transition leads to.
        base: [E] probability of each at θ = 0, which need not be the parameter of a task.
        slope: [d, E] its derivatives; they sum to 0 over every row.
        signal_base: [1+m, S, A] expected reward and costs of a step at θ = 0.
        signal_slope: [d, 1+m, S, A] their derivatives.
    """

    indptr: Integers
    successor: Integers
    base: Floats
    slope: Floats
    signal_base: Floats
    signal_slope: Floats

    @property
    def dimension(self) -> int:
        return len(self.slope)

    @property
    def n_states(self) -> int:
        return int(self.signal_base.shape[1])

    @property
    def row(self) -> Integers:
        """[E] row s·A + a of each transition."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def probabilities(self, parameters: Floats) -> Floats:
        """[..., E] at parameters [..., d]."""
        found: Floats = self.base + parameters @ self.slope
        return found

    def signals(self, parameter: Floats) -> Floats:
        """[1+m, S, A] expected reward and costs at a parameter [d]."""
        found: Floats = self.signal_base + np.tensordot(parameter, self.signal_slope, axes=1)
        return found

    def matrix(self, entries: Floats) -> sp.csr_array:
        """[S·A, S] with `entries` [E] in the places of the transitions."""
        return sp.csr_array((entries, self.successor, self.indptr), shape=(len(self.indptr) - 1, self.n_states))

    @cached_property
    def dense(self) -> tuple[Floats, Floats]:
        """(P₀ [S, A, S], G [d, S, A, S]), for small tables."""
        _, states, actions = self.signal_base.shape
        both = np.stack([self.matrix(entries).toarray() for entries in (self.base, *self.slope)])
        shaped = both.reshape(-1, states, actions, states)
        return shaped[0], shaped[1:]

    def under(self, probabilities: Floats) -> AffineChain:
        """The Markov chain of a policy with action probabilities [S, A]."""
        return AffineChain(
            policy_transitions(self.matrix(self.base), probabilities),
            tuple(policy_transitions(self.matrix(slope), probabilities) for slope in self.slope),
            *self.paid_under(probabilities),
        )

    def paid_under(self, probabilities: Floats) -> tuple[Floats, Floats]:
        """(g [S, 1+m], ġ [d, S, 1+m]) of a policy with action probabilities [S, A]."""
        paid: Floats = np.einsum("ksa,sa->sk", self.signal_base, probabilities)
        return paid, np.einsum("dksa,sa->dsk", self.signal_slope, probabilities)

    def error(self, task: Tables, parameter: Floats) -> tuple[float, float]:
        """By how much a task differs from what is said of its parameter: the largest sum of differences over a row of
        transitions, and the largest difference of a signal relative to that signal's largest size."""
        if task.is_sparse:
            apart = abs(task.rows - self.matrix(self.probabilities(parameter))).sum(axis=1)
        else:  # the same in a tenth of the time
            base, slopes = self.dense
            apart = np.abs(task.transitions - (base + np.tensordot(parameter, slopes, axes=1))).sum(axis=-1)
        signals = task.signals
        size = np.abs(signals).max(axis=(1, 2))
        relative = np.abs(signals - self.signals(parameter)).max(axis=(1, 2)) / np.where(size > 0, size, 1.0)
        return float(np.max(apart)), float(np.max(relative))


class AffineChain(NamedTuple):
    """An affine family under one policy: P₀ and G_k [S, S]; reward and costs g [S, 1+m] and their slopes ġ_k."""

    base: Any
    slopes: Any  # [d, S, S], or a tuple of sparse ones
    paid: Floats
    changes: Floats


def affine_of_arrays(affine: tuple[Floats, Floats], example: Tables) -> AffineTables:
    """(P₀ [S, A, S], G [d, S, A, S]) with the expected reward and costs of `example` for all parameters."""
    base, slopes = np.asarray(affine[0], dtype=np.float64), np.asarray(affine[1], dtype=np.float64)
    rows = len(example.start) * example.n_actions
    forms = np.concatenate([base[None], slopes]).reshape(1 + len(slopes), rows, -1)
    row, successor = np.nonzero((forms != 0).any(axis=0))
    signals = example.signals
    return AffineTables(
        np.searchsorted(row, np.arange(rows + 1)),
        successor,
        forms[0, row, successor],
        forms[1:, row, successor],
        signals,
        np.zeros((len(slopes), *signals.shape)),
    )


# ------------------------------------------------------------------------------------------------------------- the fit


def far_apart(parameters: Floats, scale: Floats) -> Integers:
    """Indices of d+1 parameters of [n, d] that determine an affine function best; fewer if these lie in a plane.

    `scale` [d] is the extent of each parameter.
    """
    extended = np.column_stack([np.ones(len(parameters)), (parameters - parameters.mean(axis=0)) / scale])
    _, triangle, order = qr(extended.T, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    found: Integers = order[: int((size > 1e-6 * size[0]).sum())]
    return found


def affine_through(tasks: Sequence[Tables], parameters: Floats, scale: Floats) -> AffineTables:
    """The affine tables that agree with d+1 tasks at parameters [d+1, d] in general position.

    A transition that is impossible in all of these is impossible in every task of an affine family.
    """
    everywhere = sum((abs(task.rows) for task in tasks[1:]), abs(tasks[0].rows)).sorted_indices()
    place = _flat(everywhere)
    entries = np.stack([_read(task, place) for task in tasks])  # [d+1, E]
    base, slope = _through(entries, parameters, scale)
    signal_base, signal_slope = _through(np.stack([task.signals for task in tasks]), parameters, scale)
    return AffineTables(everywhere.indptr, everywhere.indices, base, slope, signal_base, signal_slope)


def _through(values: Floats, parameters: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """Base [...] and slopes [d, ...] of the affine function with values [d+1, ...] at parameters [d+1, d]."""
    steps = (parameters[1:] - parameters[0]) / scale
    change = (values[1:] - values[0]).reshape(len(steps), -1)
    slope = np.linalg.solve(steps, change)
    size = np.abs(values).max() or 1.0
    slope[:, np.abs(change).max(axis=0, initial=0.0) <= UNCHANGED * size] = 0.0
    slope = slope.reshape(len(steps), *values.shape[1:]) / scale.reshape(-1, *[1] * (values.ndim - 1))
    return values[0] - np.tensordot(parameters[0], slope, axes=1), slope


def _flat(matrix: sp.csr_array) -> Integers:
    """[E] position of each entry, row by row, as one number; ascending."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    place: Integers = row * np.int64(matrix.shape[1]) + matrix.indices
    return place


def _read(task: Tables, place: Integers) -> Floats:
    """[E] transitions of a task at flat positions that hold all of its own."""
    rows = task.rows.sorted_indices()
    entries = np.zeros(len(place))
    entries[np.searchsorted(place, _flat(rows))] = rows.data
    return entries

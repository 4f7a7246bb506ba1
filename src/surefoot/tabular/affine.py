"""Families of tables that are affine in a parameter: P_θ = P₀ + Σ_k θ_k G_k, the expected reward and costs alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats, Integers
from surefoot.tabular.tables import Tables


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
    def row(self) -> Integers:
        """[E] row s·A + a of each transition."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def probabilities(self, parameters: Floats) -> Floats:
        """[..., E] at parameters [..., d]."""
        found: Floats = self.base + parameters @ self.slope
        return found

    def matrix(self, entries: Floats) -> sp.csr_array:
        """[S·A, S] with `entries` [E] in the places of the transitions."""
        states = self.signal_base.shape[1]
        return sp.csr_array((entries, self.successor, self.indptr), shape=(len(self.indptr) - 1, states))


def affine_of_arrays(affine: tuple[Floats, Floats], example: Tables) -> AffineTables:
    """(P₀ [S, A, S], G [d, S, A, S]) with the expected reward and costs of `example` for all parameters."""
    base, slopes = np.asarray(affine[0], dtype=np.float64), np.asarray(affine[1], dtype=np.float64)
    rows = len(example.start) * example.n_actions
    forms = np.concatenate([base[None], slopes]).reshape(1 + len(slopes), rows, -1)
    row, successor = np.nonzero((forms != 0).any(axis=0))
    signals = np.concatenate([example.reward[None], example.cost])
    return AffineTables(
        np.searchsorted(row, np.arange(rows + 1)),
        successor,
        forms[0, row, successor],
        forms[1:, row, successor],
        signals,
        np.zeros((len(slopes), *signals.shape)),
    )

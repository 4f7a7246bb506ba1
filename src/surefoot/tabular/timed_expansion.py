"""The expansion of values over boxes for tasks with a horizon: one recursion over the steps, backwards (Theorem 1c).

The series is that of Theorem 1a on pairs of step and state. Each of its terms looks one step further ahead than the one
before, so that it ends by itself: nothing is inverted, and no box is too wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.tabular.affine import AffineChain, AffineTables
from surefoot.tabular.tables import Tables

# Up to this many states chains are dense; so many numbers are carried along at once, to bound memory.
DENSE_STATES, AT_ONCE = 100, 2**22


class Expanded(NamedTuple):
    """Over each of J boxes, without an allowance for rounding.

    Attributes:
        middle, radius: [J, 1+m, 1+F] of reward and costs from the start distribution, then from the first states.
        size: [J, 1+m] largest values at the centre, at any step.
        spread: [J, 1+m] the most by which values differ between states, at any step, on any task.
    """

    middle: Floats
    radius: Floats
    size: Floats
    spread: Floats


def expand_steps(
    affine: AffineTables, example: Tables, tables: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    """Theorem 1c for boxes [J, d] and the policy that follows tables[min(t, T-1)] at step t, tables [T, S, A]."""
    columns = (2 + affine.dimension + affine.dimension**2) * len(affine.signal_base)
    some = max(1, AT_ONCE // (affine.n_states * columns))
    parts = [
        _expand(affine, example, tables, low[k : k + some], high[k : k + some], states)
        for k in range(0, len(low), some)
    ]
    return Expanded(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _expand(
    affine: AffineTables, example: Tables, tables: Floats, low: Floats, high: Floats, states: Integers
) -> Expanded:
    steps, centre, half = example.units.episode_length, (low + high) / 2, (high - low) / 2
    terms = _Terms.at_the_end(affine, centre, half)
    size = spread = np.zeros((len(low), len(affine.signal_base)))
    step = _chain(affine, tables[-1])
    for t in reversed(range(steps)):
        if t < len(tables) - 1:
            step = _chain(affine, tables[t])
        terms = terms.before(step, example.discount)
        value, radius = terms.value, terms.radius
        size = np.maximum(size, np.abs(value).max(axis=0))
        spread = np.maximum(spread, (value + radius).max(axis=0) - (value - radius).min(axis=0))
    middle, around = (
        np.concatenate([begun[None], each[states]]).transpose(1, 2, 0)
        for begun, each in (
            (np.tensordot(example.start, value, 1), value),
            (terms.radius_from(example.start), radius),
        )
    )
    return Expanded(middle, around, size, spread)


def _chain(affine: AffineTables, probabilities: Floats) -> AffineChain:
    """The chain of one step, dense if it is small."""
    chain = affine.under(probabilities)
    if affine.n_states > DENSE_STATES:
        return chain
    return chain._replace(base=chain.base.toarray(), slopes=tuple(slope.toarray() for slope in chain.slopes))


@dataclass(frozen=True, eq=False)
class _Terms:
    """The series from one step on: all of [S, J, 2+d+d², 1+m], in this order V, first_k, cross_kl and rest."""

    all: Floats
    centre: Floats  # [J, d]
    half: Floats

    @staticmethod
    def at_the_end(affine: AffineTables, centre: Floats, half: Floats) -> _Terms:
        terms = 2 + affine.dimension + affine.dimension**2
        return _Terms(np.zeros((affine.n_states, len(centre), terms, len(affine.signal_base))), centre, half)

    def before(self, step: AffineChain, discount: float) -> _Terms:
        """One step earlier. With P at the centres of the boxes, and all terms on the right those of the step after:

        V = g + γPV,  first_k = γP first_k + γG_k V + ġ_k,  cross_kl = γP cross_kl + γG_l first_k,
        rest = γP rest + γ Σ_k h_k |G_k| (second + rest),  second = Σ_kl h_k h_l |cross_kl|.
        """
        d = len(step.slopes)
        moved = [discount * _apply_matrix(slope, self.all) for slope in step.slopes]
        terms = discount * _apply_matrix(step.base, self.all)
        for k, each in enumerate(moved):
            terms += self.centre[:, k, None, None] * each
        terms[:, :, 0] += step.paid[:, None] + np.einsum("jd,dsk->sjk", self.centre, step.changes)
        for k in range(d):
            terms[:, :, 1 + k] += moved[k][:, :, 0] + step.changes[k][:, None]
            for other in range(d):
                terms[:, :, 1 + d + k * d + other] += moved[other][:, :, 1 + k]
            spilled = _apply_matrix(abs(step.slopes[k]), self.second + self.all[:, :, -1])
            terms[:, :, -1] += discount * self.half[:, k, None] * spilled
        return _Terms(terms, self.centre, self.half)

    @property
    def value(self) -> Floats:
        """[S, J, 1+m] at the centre of each box."""
        return self.all[:, :, 0]

    @property
    def second(self) -> Floats:
        """[S, J, 1+m]"""
        d = self.half.shape[1]
        cross = np.abs(self.all[:, :, 1 + d : -1]).reshape(*self.all.shape[:2], d, d, -1)
        found: Floats = np.einsum("jk,jl,sjklm->sjm", self.half, self.half, cross)
        return found

    @property
    def radius(self) -> Floats:
        """[S, J, 1+m] by which values on the box may differ from those at its centre."""
        return self._linear(self.all) + self.second + self.all[:, :, -1]

    def radius_from(self, start: Floats) -> Floats:
        """[J, 1+m] the same from a distribution over states."""
        linear = self._linear(np.tensordot(start, self.all, 1)[None])[0]
        later: Floats = np.tensordot(start, self.second + self.all[:, :, -1], 1)
        radius: Floats = linear + later
        return radius

    def _linear(self, terms: Floats) -> Floats:
        """Σ_k h_k |first_k|, [..., J, 1+m]."""
        first = np.abs(terms[:, :, 1 : 1 + self.half.shape[1]])
        found: Floats = np.einsum("jk,sjkm->sjm", self.half, first)
        return found


def _apply_matrix(matrix: Any, terms: Floats) -> Floats:
    """[S, S] times [S, ...]."""
    return np.asarray(matrix @ terms.reshape(len(terms), -1)).reshape(terms.shape)

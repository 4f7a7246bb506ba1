"""Transition probabilities of cells, grouped into classes that every likelihood can share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, Integers, Mask
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.payments import Payments
from surefoot.tabular.transition_model import TransitionModel

# Entries that agree to this many digits, relative to the largest of them over all cells, are one class.
DIGITS = 12
# Transitions that are less likely than this in every cell are impossible; rounding makes such entries out of 0.
IMPOSSIBLE = 1e-15
# Where one decade of sizes ends and the next begins: not at a number that is a common probability.
DECADE = 3.7


def affine_model(
    affine: AffineTables, payments: Payments | None, start: Floats, low: Floats, high: Floats
) -> TransitionModel:
    """Cells are boxes [J, d] of a family with P_θ = P₀ + Σ_k θ_k G_k; `payments` if all of its tasks share them."""
    # Entries are compared as probabilities, at the middle of all boxes and by how they change from there to the edges:
    # slopes have the units of 1/parameter, so that rounding them would merge whatever is small in those.
    lowest, highest = low.min(axis=0), high.max(axis=0)
    middle = affine.probabilities((lowest + highest) / 2)
    features = np.column_stack([middle, (((highest - lowest) / 2)[:, None] * affine.slope).T])
    possible = _possible(features)
    classes, row_type, place = transition_classes(features[possible], affine.row[possible])
    base, slope = affine.base[possible][place], affine.slope[:, possible][:, place].T
    reach = np.add.reduceat(np.abs(affine.slope), affine.indptr[:-1], axis=1).max(axis=1) / 2  # [d] TV per unit of each
    return TransitionModel(
        *_structure(affine.indptr, affine.successor, possible),
        classes,
        row_type,
        without_rounding(base + (low + high) / 2 @ slope.T),
        (base, slope),
        (high - low) / 2 @ reach,
        start,
        *_payment_arguments(payments, affine.row[possible], affine.successor[possible]),
    )


def ball_model(tasks: Sequence[TabularCMDP], radius: Floats) -> TransitionModel | None:
    """Cells are balls of radius [J] around given tasks; None unless these share one start."""
    first = tasks[0]
    if not all(np.array_equal(task.start, first.start) for task in tasks):
        return None
    shared = all(task.payments.same_as(first.payments) for task in tasks)
    anywhere = sum(task.rows for task in tasks[1:]) + first.rows if len(tasks) > 1 else first.rows
    row, successor = anywhere.nonzero()
    order = np.lexsort((successor, row))
    row, successor = row[order], successor[order]
    entries = np.column_stack([np.asarray(task.rows[row, successor]) for task in tasks])
    possible = _possible(entries)
    classes, row_type, place = transition_classes(entries[possible], row[possible])
    return TransitionModel(
        *_structure(np.searchsorted(row, np.arange(first.rows.shape[0] + 1)), successor, possible),
        classes,
        row_type,
        without_rounding(entries[possible][place].T),
        None,
        radius,
        first.start,
        *_payment_arguments(first.payments if shared else None, row[possible], successor[possible]),
    )


def transition_classes(features: Floats, row: Integers) -> tuple[Integers, Integers, Integers]:
    """Group E entries with features [E, K], of rows [E] in order: class of each, row type of each class [C], the place
    of one entry of each class [C]. Features are probabilities or differences of such, not all zero but for rounding."""
    size = np.abs(features).max(axis=1)
    decade = 10.0 ** np.ceil(np.log10(np.maximum(size, IMPOSSIBLE) / DECADE))
    # Adding 0 leaves no -0.0, so that equal bytes mean equal values.
    rounded = np.column_stack([np.round(features / decade[:, None], DIGITS) + 0.0, decade])
    keys = [hashlib.blake2b(entry.tobytes(), digest_size=16).digest() for entry in rounded]
    classes = np.empty(len(features), dtype=np.int64)
    rows: dict[tuple[bytes, ...], int] = {}
    known: dict[tuple[int, bytes], int] = {}
    row_type: list[int] = []
    places: list[int] = []
    ends = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    for first, last in pairwise(ends):
        kind = rows.setdefault(tuple(sorted(keys[first:last])), len(rows))
        for place in range(first, last):
            entry = (kind, keys[place])
            if entry not in known:
                known[entry] = len(known)
                row_type.append(kind)
                places.append(place)
            classes[place] = known[entry]
    return classes, np.array(row_type), np.array(places)


def _possible(features: Floats) -> Mask:
    """[E] which transitions are more than rounding of 0 in some cell."""
    possible: Mask = np.abs(features).max(axis=1) > IMPOSSIBLE
    return possible


def _structure(indptr: Integers, successor: Integers, kept: Mask) -> tuple[Integers, Integers]:
    """indptr and successor of the transitions that are kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return before[indptr], successor[kept]


def _payment_arguments(
    payments: Payments | None, row: Integers, successor: Integers
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """reward, cost and payments of a transition model with E transitions."""
    if payments is None:
        return None, None, None
    if not payments.by_transition:
        return payments.by_pair[0], payments.by_pair[1:], None
    states, actions = np.divmod(row, payments.by_pair.shape[2])
    return None, None, payments.at(states, actions, successor).T


def without_rounding(probability: Floats) -> Floats:
    """Probabilities [J, C] of which some may miss [0, 1] by rounding; what misses it by more is left for all to see."""
    inside = np.clip(probability, 0.0, 1.0)
    return np.where(np.abs(probability - inside) <= ROW_SUM_ROUNDING, inside, probability)

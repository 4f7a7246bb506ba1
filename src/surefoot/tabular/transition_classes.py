"""Transition probabilities of cells, grouped into classes that every likelihood can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from surefoot.arrays import ROW_SUM_ROUNDING, Floats, Integers
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_model import TransitionModel

Place: TypeAlias = tuple[Integers, Integers, Integers]  # s, a, s' [C] of one entry of each class

# Entries that agree to this many digits, relative to the largest of them over all cells, are one class.
DIGITS = 12
# Transitions that are less likely than this in every cell are impossible; rounding makes such entries out of 0.
IMPOSSIBLE = 1e-15
# Where one decade of sizes ends and the next begins: not at a number that is a common probability.
DECADE = 3.7


def affine_model(tables: AffineTables, example: TabularCMDP, low: Floats, high: Floats) -> TransitionModel:
    """Cells are boxes [J, d] of a family with P_θ = P₀ + Σ_k θ_k G_k."""
    affine = tables.dense()
    # Entries are compared as probabilities, at the middle of all boxes and by how they change from there to the edges:
    # slopes have the units of 1/parameter, so that rounding them would merge whatever is small in those.
    lowest, highest = low.min(axis=0), high.max(axis=0)
    middle = affine[0] + np.tensordot((lowest + highest) / 2, affine[1], axes=1)
    change = ((highest - lowest) / 2)[:, None, None, None] * affine[1]
    classes, row_type, place = transition_classes(np.moveaxis(np.concatenate([middle[None], change]), 0, -1))
    base, slope = affine[0][place], np.moveaxis(affine[1], 0, -1)[place]
    reach = np.abs(affine[1]).sum(axis=3).max(axis=(1, 2)) / 2  # [d] total variation per unit of each parameter
    return TransitionModel(
        classes,
        row_type,
        without_rounding(base + (low + high) / 2 @ slope.T),
        (base, slope),
        (high - low) / 2 @ reach,
        example.reward,
        example.cost,
        example.start,
    )


def ball_model(tasks: Sequence[TabularCMDP], radius: Floats) -> TransitionModel | None:
    """Cells are balls of radius [J] around given tasks; None unless these share rewards, costs and start."""
    first = tasks[0]
    shared = all(
        np.array_equal(task.reward, first.reward)
        and np.array_equal(task.cost, first.cost)
        and np.array_equal(task.start, first.start)
        for task in tasks
    )
    if not shared:
        return None
    stacked = np.stack([task.rows.toarray() for task in tasks], axis=-1)
    entries = stacked.reshape(first.n_states, first.n_actions, first.n_states, len(tasks))
    classes, row_type, place = transition_classes(entries)
    probability = without_rounding(entries[place].T)
    return TransitionModel(classes, row_type, probability, None, radius, first.reward, first.cost, first.start)


def transition_classes(features: Floats) -> tuple[Integers, Integers, Place]:
    """Group the entries of features [S, A, S, K]: classes [S, A, S], row type of each class [C], an entry of each.

    Features are probabilities or differences of such. An entry whose features are all zero but for rounding is an
    impossible transition, class -1.
    """
    states, actions = features.shape[:2]
    size = np.abs(features).max(axis=-1)
    decade = 10.0 ** np.ceil(np.log10(np.maximum(size, IMPOSSIBLE) / DECADE))
    # Adding 0 leaves no -0.0, so that equal bytes mean equal values.
    rounded = np.concatenate([np.round(features / decade[..., None], DIGITS) + 0.0, decade[..., None]], axis=-1)
    classes = np.full(features.shape[:3], -1)
    rows: dict[tuple[bytes, ...], int] = {}
    known: dict[tuple[int, bytes], int] = {}
    row_type: list[int] = []
    places: list[tuple[int, int, int]] = []
    for s, a in np.ndindex(states, actions):
        support = np.flatnonzero(size[s, a] > IMPOSSIBLE)
        keys = [rounded[s, a, t].tobytes() for t in support]
        kind = rows.setdefault(tuple(sorted(keys)), len(rows))
        for t, key in zip(support, keys, strict=True):
            if (kind, key) not in known:
                known[kind, key] = len(known)
                row_type.append(kind)
                places.append((s, a, int(t)))
            classes[s, a, t] = known[kind, key]
    first, action, successor = np.array(places).T
    return classes, np.array(row_type), (first, action, successor)


def without_rounding(probability: Floats) -> Floats:
    """Probabilities [J, C] of which some may miss [0, 1] by rounding; what misses it by more is left for all to see."""
    inside = np.clip(probability, 0.0, 1.0)
    return np.where(np.abs(probability - inside) <= ROW_SUM_ROUNDING, inside, probability)

"""Transition probabilities of cells, grouped into classes that every likelihood can share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.cmdp.episode import Integers
from surefoot.cmdp.model import Floats, TabularCMDP
from surefoot.policyset.cells import TransitionModel

# Entries that agree to this many digits are one class.
DIGITS = 12


def affine_model(affine: tuple[Floats, Floats], example: TabularCMDP, low: Floats, high: Floats) -> TransitionModel:
    """Cells are boxes [J, d] of a family with P_θ = P₀ + Σ_k θ_k G_k."""
    features = np.concatenate([affine[0][None], affine[1]])
    classes, row_type, features_of = transition_classes(np.moveaxis(features, 0, -1))
    base, slope = features_of[:, 0], features_of[:, 1:]
    reach = np.abs(affine[1]).sum(axis=3).max(axis=(1, 2)) / 2  # [d] total variation per unit of each parameter
    return TransitionModel(
        classes,
        row_type,
        np.clip(base + (low + high) / 2 @ slope.T, 0.0, 1.0),
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
    shape = (first.n_states, first.n_actions, first.n_states, len(tasks))
    classes, row_type, probability = transition_classes(stacked.reshape(shape))
    return TransitionModel(classes, row_type, probability.T.copy(), None, radius, first.reward, first.cost, first.start)


def transition_classes(features: Floats) -> tuple[Integers, Integers, Floats]:
    """Group the entries of features [S, A, S, K]: classes [S, A, S], row type of each class [C], features [C, K].

    An entry whose features are all zero is an impossible transition, class -1.
    """
    states, actions = features.shape[:2]
    rounded = np.round(features, DIGITS) + 0.0  # no -0.0, so that equal bytes mean equal values
    classes = np.full(features.shape[:3], -1)
    rows: dict[tuple[bytes, ...], int] = {}
    known: dict[tuple[int, bytes], int] = {}
    row_type: list[int] = []
    example: list[Floats] = []
    for s, a in np.ndindex(states, actions):
        support = np.flatnonzero(rounded[s, a].any(axis=1))
        keys = [rounded[s, a, t].tobytes() for t in support]
        kind = rows.setdefault(tuple(sorted(keys)), len(rows))
        for t, key in zip(support, keys, strict=True):
            if (kind, key) not in known:
                known[kind, key] = len(known)
                row_type.append(kind)
                example.append(features[s, a, t])
            classes[s, a, t] = known[kind, key]
    return classes, np.array(row_type), np.array(example)

"""Transition models and counts from whole tables [S, A, S], which are easier to write down."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.learning.certified.evidence.counts import Counts
from surefoot.tabular.transition_model import TransitionModel, structure_of


def dense_model(classes: Any, row_type: Any, *others: Any, **named: Any) -> TransitionModel:
    """`classes` [S, A, S] with -1 where a transition is impossible; the rest in the order of the fields."""
    return TransitionModel(*structure_of(classes, len(row_type)), row_type, *others, **named)


def counts_of_table(model: TransitionModel, table: Floats) -> Counts:
    """How often each transition was seen, [S, A, S]."""
    possible = model.class_table >= 0
    return Counts(table[possible].astype(float), np.where(possible, 0.0, table).sum(axis=2).ravel(), False, 0)

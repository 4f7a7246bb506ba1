"""The paper's distance between tasks."""

from __future__ import annotations

import numpy as np

from surefoot.errors import InvalidInput
from surefoot.tabular.tables import Tables


def distance(a: Tables, b: Tables) -> float:
    """d(a, b): the largest difference of unit-scaled r, c (maximum norm), start and transitions (total variation).

    Each task is scaled with its own declared ranges and budgets, as the paper's tasks arrive scaled.
    """
    shape_a, shape_b = a.cost.shape, b.cost.shape
    if shape_a != shape_b:
        raise InvalidInput(f"tasks must have equal constraints, states and actions, got {shape_a} and {shape_b}")
    if a.discount != b.discount:
        raise InvalidInput(f"tasks must share one discount, got {a.discount} and {b.discount}")
    if a.units.horizon != b.units.horizon:
        raise InvalidInput(f"tasks must share one horizon, got {a.units.horizon} and {b.units.horizon}")
    return max(
        float(np.abs(a.units.unit_reward(a.reward) - b.units.unit_reward(b.reward)).max()),
        float(np.abs(a.units.unit_constraint(a.cost) - b.units.unit_constraint(b.cost)).max()),
        float(np.abs(a.start - b.start).sum() / 2),
        _transition_distance(a, b),
    )


def _transition_distance(a: Tables, b: Tables) -> float:
    if a.is_sparse or b.is_sparse:
        return float(abs(a.rows - b.rows).sum(axis=1).max() / 2)
    return float(np.abs(a.transitions - b.transitions).sum(axis=2).max() / 2)

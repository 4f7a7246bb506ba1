"""Theorem 4a: cells may have levels of their own, as long as their mean over the task distribution is within the risk.

In the two rooms almost all tasks are one and the same, the dangerous one, and twenty others are unlikely: levels that
are not weighed by how likely a cell is would be spent on it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from guarantees.test_certified_promise import FALSE_ALARM, LIKELIHOOD, count_unsafe, p_value
from surefoot.arrays import Floats
from surefoot.learning.certified import thresholds

TASKS, EPISODES, RISK = 200, 100, 0.05


def count() -> int:
    return count_unsafe(LIKELIHOOD, RISK, TASKS, EPISODES, seed=3, family="two rooms", pairs=True, by_prior=True)[0]


def test_levels_by_prior_keep_the_promise() -> None:
    unsafe = count()
    assert p_value(unsafe, TASKS, RISK) > FALSE_ALARM
    assert unsafe > 0.1 * RISK * TASKS, "a risk that is never used would not need a guarantee"


def most_for_everyone(prior: Floats, level: float) -> Floats:
    """The prior is forgotten: the level of an unlikely cell for all."""
    return np.full(len(prior), thresholds.MOST)


def mean_over_cells(prior: Floats, level: float) -> Floats:
    """Within the level in the mean over cells, each of which counts the same, and spent where tasks are."""
    return np.minimum(level * len(prior) * prior / prior.sum(), thresholds.MOST)


@pytest.mark.parametrize("mutant", [most_for_everyone, mean_over_cells])
def test_other_levels_are_caught(mutant: Callable[[Floats, float], Floats], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "cell_levels", mutant)
    assert p_value(count(), TASKS, RISK) < FALSE_ALARM

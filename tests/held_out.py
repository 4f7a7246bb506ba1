"""Cells of tasks that must be simulated, together with which cell a task belongs to: policy sets need not store that,
and whoever counts how often bounds are broken must know it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from surefoot.arrays import Floats
from surefoot.bounds import simulated as simulated_cells
from surefoot.bounds.cells import Cells
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.cmdp.policy import Policy
from surefoot.tasks.task_distribution import TaskDistribution


def cells_and_places(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    seed: int,
    envelopes: Envelopes,
    signals: LearnedSignals | None = None,
) -> tuple[Cells, simulated_cells.SurrogateBounds]:
    """The cells that `build_cells` makes, and the partition from which they are made."""
    bases: list[simulated_cells.SurrogateBounds] = []
    make = simulated_cells.fit_bounds

    def remembered(surrogate: simulated_cells.Surrogate, drawn: Floats, cells: int) -> simulated_cells.SurrogateBounds:
        bases.append(make(surrogate, drawn, cells))
        return bases[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated_cells, "fit_bounds", remembered)
        cells = build_cells(tasks, policies, seed=seed, envelopes=envelopes, signals=signals)
    return cells, bases[-1]

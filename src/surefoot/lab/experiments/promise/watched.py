"""One run of a method on one task, with what a count has to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.exact import evaluator
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.task_distribution import TaskDistribution


@dataclass(frozen=True)
class RunAudit:
    """Attributes:
    lost: whether the cell that holds the task was ever ruled out; None if none does or nobody asked.
    tested: see the function of that name.
    """

    unsafe_episodes: int
    lost: bool | None
    tested: bool


def audit_run(
    method: Method, task: TabularCMDP, *, safe: Any, episodes: int, seed: int, horizon: int, cell: int | None
) -> RunAudit:
    """Run `method` for `episodes` episodes of `horizon` steps and look at every decision."""
    learner = Learner(method, seed=seed, horizon=horizon)
    lost: list[bool] = []

    def look(done: int = 0, total: int = 0) -> None:
        if cell is not None and isinstance(method, Certified):
            lost.append(not learner.state.method.surviving[cell])

    look()
    run = run_learner(learner, task, episodes=episodes, seed=seed, optimal_reward=0.0, observer=look)
    return RunAudit(run.unsafe_episodes, any(lost) if lost else None, tested(run, task, safe))


def tested(run: Run, task: TabularCMDP, safe: Any) -> bool:
    """Whether a run ever used more than half of the margin that the safe policy leaves: less can hardly be unsafe."""
    return float(run.margin.min()) < float(evaluate(task, safe).margin.min()) / 2


def true_cell(tasks: TaskDistribution, policies: PolicyValueSet, parameter: Floats) -> int | None:
    """The cell that holds the task of a parameter, None if it is not covered (docs/guarantees.md, section 2)."""
    cells = policies.cells
    if cells is None:
        return None
    if cells.source in ("affine", "finite"):
        inside = ((cells.low <= parameter) & (parameter <= cells.high)).all(axis=1)
        return int(np.argmax(inside)) if inside.any() else None
    extent = np.ptp(tasks.distribution.support, axis=1)
    scaled = (cells.centre - parameter) / np.where(extent > 0, extent, 1.0)
    nearest = int(np.argmin((scaled**2).sum(axis=1)))
    return nearest if _keeps_bounds(tasks, policies, cells, nearest, parameter) else None


def _keeps_bounds(
    tasks: TaskDistribution, policies: PolicyValueSet, cells: Cells, cell: int, parameter: Floats
) -> bool:
    """Whether the exact values lie within the bounds of the cell, and the transitions within its box or radius."""
    values, _ = evaluator(tasks, policies.policies)(tasks.task(parameter))
    bounds = [(values[..., 0], cells.lower[cell], cells.upper[cell])]
    if cells.start_lower is not None and cells.start_upper is not None:
        bounds.append((values[..., 1:], cells.start_lower[cell], cells.start_upper[cell]))
    kept = all(((low <= value) & (value <= high)).all() for value, low, high in bounds)
    feasible = (values[0, 1:, 0] >= 0).all()
    if cells.model is None:
        return bool(kept and feasible)
    if cells.model.affine is not None:
        near = ((cells.low[cell] <= parameter) & (parameter <= cells.high[cell])).all()
    else:
        near = distance(tasks.task(parameter), tasks.task(cells.centre[cell])) <= cells.model.radius[cell]
    return bool(kept and feasible and near)

"""Cross-task envelopes: bounds on the values of every policy over all tasks of a cell (docs/guarantees.md, section 2).

Four sources, strongest first:
- affine: transitions are affine in the parameter. A second-order expansion with a rigorous remainder covers each box.
- finite: the distribution has finitely many tasks that can be read. Each is a cell of its own, evaluated exactly.
- holdout: tasks that can be read. Bounds are taken over one sample of them and widened until they hold on a second,
  independent one (a conformal quantile).
- monte-carlo: any tasks. The last two with simulated intervals in place of values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.policy import Policy
from surefoot.policyset.cells import Cells
from surefoot.progress import Progress, silent
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.affine_cells import affine_cells
from surefoot.training.bounds import Evaluator, evaluator, start_values, stationary_tables
from surefoot.training.sampled_cells import DOUBT_SHARE, binomial_upper, finite_cells, holdout_cells
from surefoot.training.settings import DEFAULT, Envelopes


def build_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    *,
    seed: int,
    envelopes: Envelopes = DEFAULT,
    jobs: int = 1,
    show: Progress = silent,
) -> Cells:
    """The strongest envelopes that the family allows, for `policies` with the safe one first."""
    settings = envelopes.settled(tasks.example)
    tables = stationary_tables(tasks.example, policies)
    if tasks.affine is not None and tables is not None:
        return affine_cells(tasks, tables, settings.cells)
    if isinstance(tasks.distribution, Finite):
        return finite_cells(tasks, policies, settings, seed)
    rng = np.random.default_rng([seed, 2, settings.attempt])
    return holdout_cells(tasks, evaluator(tasks.example, policies, settings), rng, settings)


def safe_policy_risk(
    tasks: TaskDistribution,
    safe: Policy,
    *,
    seed: int,
    envelopes: Envelopes = DEFAULT,
    jobs: int = 1,
    show: Progress = silent,
) -> float:
    """Bound on the probability that the safe policy is infeasible on a fresh task, without any cells.

    Exact for a finite distribution of readable tasks; otherwise from held-out or simulated ones, and what the bound may
    be wrong by is part of it.
    """
    settings, distribution = envelopes.settled(tasks.example), tasks.distribution
    values = start_values(tasks.example, [safe], settings)
    rng = np.random.default_rng([seed, 3, settings.attempt])
    if isinstance(distribution, Finite):
        doubtful = _not_shown_feasible(tasks, distribution.points, values, rng)
        return min(1.0, settings.error + math.fsum(distribution.weights[doubtful]))
    doubtful = _not_shown_feasible(tasks, tasks.sample(settings.holdout, rng), values, rng)
    failing = binomial_upper(int(doubtful.sum()), len(doubtful), DOUBT_SHARE * settings.granted)
    return min(1.0, settings.error + DOUBT_SHARE * (settings.uncovered - settings.error) + failing)


def _not_shown_feasible(
    tasks: TaskDistribution, parameters: Floats, values: Evaluator, rng: np.random.Generator
) -> Mask:
    """[n] the tasks on which the lower bound of one of the first policy's margins is negative."""
    return np.array([(values(tasks.task(parameter), rng)[0][0, 1:, 0] < 0).any() for parameter in parameters])

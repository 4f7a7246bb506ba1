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

from surefoot.arrays import Mask
from surefoot.cmdp.policy import Policy
from surefoot.fan_out import check_jobs
from surefoot.policyset.cells import Cells
from surefoot.progress import Progress, silent
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.affine_cells import affine_cells
from surefoot.training.bounds import evaluator, stationary_tables
from surefoot.training.sampled_cells import DOUBT_SHARE, binomial_upper, finite_cells, holdout_cells, sampled_tasks
from surefoot.training.settings import DEFAULT, Envelopes
from surefoot.training.simulation import Simulation, affordable


def build_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    *,
    seed: int,
    envelopes: Envelopes = DEFAULT,
    jobs: int = 1,
    show: Progress = silent,
) -> Cells:
    """The strongest envelopes that the family allows, for `policies` with the safe one first.

    Tasks that must be simulated are, `jobs` at a time; the numbers are the same for any of them.
    """
    check_jobs(jobs)
    settings, distribution = envelopes.settled(tasks.example), tasks.distribution
    tables = stationary_tables(tasks.example, policies)
    if tasks.affine is not None and tables is not None:
        return affine_cells(tasks, tables, settings.cells)
    simulation = None
    if settings.simulated:
        count = len(distribution.points) if isinstance(distribution, Finite) else sampled_tasks(settings)
        settings = affordable(settings, envelopes.steps, count, len(policies), tasks.units)
        simulation = Simulation(tasks, tuple(policies), settings, seed, jobs, show)
    if isinstance(distribution, Finite):
        return finite_cells(tasks, policies, settings, simulation)
    rng = np.random.default_rng([seed, 2, settings.attempt])
    return holdout_cells(tasks, simulation or evaluator(tasks.example, policies), rng, settings, show)


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
    check_jobs(jobs)
    settings, distribution = envelopes.settled(tasks.example), tasks.distribution
    rng = np.random.default_rng([seed, 3, settings.attempt])
    parameters = distribution.points if isinstance(distribution, Finite) else tasks.sample(settings.holdout, rng)
    doubtful: Mask
    if settings.simulated:
        settings = affordable(settings, envelopes.steps, len(parameters), 1, tasks.units)
        doubtful = ~Simulation(tasks, (safe,), settings, seed, jobs, show).shown_feasible(parameters)
    else:
        margins = np.array([tasks.task(parameter).values(safe).margin for parameter in parameters])
        doubtful = np.any(margins < 0, axis=1)
    if isinstance(distribution, Finite):
        return min(1.0, settings.error + math.fsum(distribution.weights[doubtful]))
    failing = binomial_upper(int(doubtful.sum()), len(doubtful), DOUBT_SHARE * settings.granted)
    return min(1.0, settings.error + DOUBT_SHARE * (settings.uncovered - settings.error) + failing)

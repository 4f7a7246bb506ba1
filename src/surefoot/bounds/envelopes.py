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
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Mask
from surefoot.bounds.affine import BoxesTooWide, affine_cells
from surefoot.bounds.cells import Cells
from surefoot.bounds.conformal import DOUBT_SHARE
from surefoot.bounds.exact import evaluator, expandable_tables, finite_cells
from surefoot.bounds.holdout import holdout_cells
from surefoot.bounds.kept_episodes import KeptEpisodes, keep_lesson
from surefoot.bounds.prospects import Prospects, prospects_between
from surefoot.bounds.settings import DEFAULT, MISS_RATE, Envelopes, LearnedSignals, ResolvedBounds
from surefoot.bounds.signal_model import learn_signals
from surefoot.bounds.simulated import simulated_cells
from surefoot.bounds.simulation import LOOK_PART, Simulation, Trial, alpha_of_each, limit_episodes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.fan_out import check_jobs, workers
from surefoot.progress import Progress, silent
from surefoot.streams import Stream
from surefoot.tasks.affine_detection import affinity
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution


class ValueBounds(NamedTuple):
    """Cells; without cells at least a bound on how often the safe policy is infeasible. And what the cells allow, where
    they were simulated."""

    cells: Cells | None
    safe_risk: float | None = None
    prospects: Prospects | None = None


def build_value_bounds(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    envelopes: Envelopes,
    signals: LearnedSignals | None,
    seed: int,
    jobs: int,
    show: Progress,
    keep: str | PathLike[str] | None = None,
) -> ValueBounds:
    """Bounds on the values of every policy, the safe one first; simulated episodes are kept in the folder `keep`."""
    if keep is not None and (envelopes.cells == 0 or isinstance(tasks.example, ReadableTask)):
        raise InvalidInput(f"keep must be None where no cells are simulated, got {str(keep)!r}", argument="keep")
    if keep is not None and signals is not None:
        keep_lesson(keep, signals)
    if envelopes.cells == 0:
        risk = safe_policy_risk(tasks, policies[0], seed=seed, envelopes=envelopes, jobs=jobs, show=show)
        return ValueBounds(None, risk)
    cells, prospects = _bound_values(tasks, policies, seed, envelopes, signals, jobs, show, keep)
    return ValueBounds(cells, None, prospects)


def signals_to_learn(signals: bool | LearnedSignals | None, example: Task) -> LearnedSignals | None:
    """How signals are learned, if they are; None leaves that to the tasks: those that must be simulated and show what
    was observed have signals, of others values are exact and transitions known."""
    if not isinstance(signals, bool | LearnedSignals | None):
        raise InvalidInput(f"signals must be True, False or a LearnedSignals, got {signals!r}")
    if isinstance(example, ReadableTask) and signals:
        raise InvalidInput(
            "signals must be False for tasks whose values can be read: they are learned where tasks are simulated, "
            f"got {signals!r}"
        )
    if isinstance(example, ReadableTask) or signals is False:
        return None
    return signals if isinstance(signals, LearnedSignals) else LearnedSignals(if_possible=signals is None)


def build_cells(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    *,
    seed: int,
    envelopes: Envelopes = DEFAULT,
    signals: LearnedSignals | None = None,
    jobs: int = 1,
    show: Progress = silent,
) -> Cells:
    """The strongest envelopes that the family allows, for `policies` with the safe one first.

    Tasks that must be simulated are, `jobs` at a time; the numbers are the same for any of them.
    """
    return _bound_values(tasks, policies, seed, envelopes, signals, jobs, show)[0]


def _bound_values(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    seed: int,
    envelopes: Envelopes,
    signals: LearnedSignals | None,
    jobs: int,
    show: Progress,
    keep: str | PathLike[str] | None = None,
) -> tuple[Cells, Prospects | None]:
    """Cells, and what these allow where tasks are simulated."""
    check_jobs(jobs)
    settings = envelopes.resolve(tasks.example, tasks.shared_costs)
    found = affinity(tasks, seed, settings.attempt)
    tables = expandable_tables(tasks.example, policies)
    if tables is not None and found.tables is not None:
        try:
            return affine_cells(tasks, tables, settings.cells, settings.uncovered, show, found), None
        except BoxesTooWide as why:
            warnings.warn(str(why), UserWarning, stacklevel=2)
    rng = Stream.HELD_OUT_TASKS.rng(seed, settings.attempt)
    if not settings.simulated:
        if isinstance(tasks.distribution, Finite):
            return finite_cells(tasks, policies, settings), None
        return holdout_cells(tasks, evaluator(tasks, policies), rng, settings, found, show), None
    settings = limit_simulation(tasks, len(policies), settings, envelopes.steps)
    with workers(jobs) as ready:
        model = None if signals is None else learn_signals(tasks, policies, signals, seed, ready, show)
        kept = None if keep is None else KeptEpisodes.open(keep, tasks, policies, model, seed)
        if kept is not None:
            kept.check_attempt(settings)
        simulation = Simulation(Trial(tasks, tuple(policies), model, kept), settings, seed, ready, show)
        if isinstance(tasks.distribution, Finite):
            cells = finite_cells(tasks, policies, settings, simulation)
            made = cells, prospects_between(cells)
        else:
            made = simulated_cells(tasks, simulation, rng, settings)
    if kept is not None:
        kept.end_attempt(settings)
    return made


def limit_simulation(
    tasks: TaskDistribution, policies: int, settings: ResolvedBounds, steps: int | None
) -> ResolvedBounds:
    """With as many episodes of each policy as the steps are enough for (`limit_episodes`)."""
    distribution, units = tasks.distribution, tasks.units
    if isinstance(distribution, Finite):
        count, alpha = len(distribution.points), alpha_of_each(settings, policies, units)
    else:
        count, alpha = math.ceil(LOOK_PART * settings.sample) + settings.holdout, MISS_RATE
    return limit_episodes(settings, steps, tasks=count, policies=policies, units=units, alpha=alpha)


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
    settings, distribution = envelopes.resolve(tasks.example), tasks.distribution
    rng = Stream.SAFE_POLICY_TASKS.rng(seed, settings.attempt)
    parameters = distribution.points if isinstance(distribution, Finite) else tasks.sample(settings.holdout, rng)
    doubtful: Mask
    if settings.simulated:
        settings = limit_episodes(
            settings,
            envelopes.steps,
            tasks=len(parameters),
            policies=1,
            units=tasks.units,
            alpha=settings.alpha_spent / len(tasks.units.budget),
        )
        with workers(jobs) as ready:
            doubtful = ~Simulation(Trial(tasks, (safe,)), settings, seed, ready, show).shows_feasible(parameters)
    else:
        margins = np.array([tasks.task(parameter).values(safe).margin for parameter in parameters])
        doubtful = np.any(margins < 0, axis=1)
    if isinstance(distribution, Finite):
        return min(1.0, settings.error + math.fsum(distribution.weights[doubtful]))
    failing = binomial_upper(int(doubtful.sum()), len(doubtful), DOUBT_SHARE * settings.alpha)
    return min(1.0, settings.error + DOUBT_SHARE * (settings.uncovered - settings.error) + failing)

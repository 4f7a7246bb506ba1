"""Whether a family of tables is affine in its parameter: declared, or found out by building some of its tasks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.tabular.affine import AffineTables, affine_of_arrays, affine_through, far_apart
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

# Tables of an affine family may differ from what is said of them by rounding only.
AFFINE_TOLERANCE = 1e-12
# Fresh tasks that a fit must agree with: many where tables are small, fewer where building one takes its time.
FRESH, FRESH_LARGE, LARGE = 400, 96, 1500  # LARGE: rows of transitions
# Tasks among which those are chosen that are fitted.
POOL = 256


@lru_cache(maxsize=16)
def affine_tables(tasks: TaskDistribution) -> AffineTables | None:
    """The tables of a family as affine functions of its parameter; None where they are not.

    What a family declares is taken at its word here, and checked where bounds are made of it. Otherwise an affine
    function is put through d+1 of its tasks and compared with fresh ones. Points of a finite distribution are cells of
    their own, which is better than boxes around them, so that nothing is looked for there.
    """
    example = tasks.example
    if not isinstance(example, TabularCMDP):
        return None
    if tasks.affine is not None:
        return affine_of_arrays(tasks.affine, example)
    if isinstance(tasks.distribution, Finite):
        return None
    return _detected(tasks, example)


def detection_doubt(tasks: TaskDistribution) -> float:
    """Bound on the probability that a fresh task is not what the detected tables say, although all those tried were.

    If a share p of all tasks differs, n of n fresh ones agree and the next one does not with probability (1-p)ⁿp, at
    most nⁿ/(n+1)ⁿ⁺¹ whatever p is. What a family declares itself is its own responsibility.
    """
    if tasks.affine is not None:
        return 0.0
    n = _fresh(tasks.example)
    return (n / (n + 1)) ** n / (n + 1)


def _fresh(example: Any) -> int:
    return FRESH if example.reward.size <= LARGE else FRESH_LARGE


def tolerance(discount: float) -> float:
    """By how much the rows, and relative to their size the signals, of a task may differ from those of affine tables.

    Rows that differ by r in sum change a value by at most γr/(2(1-γ)) times the spread of values, signals that differ
    by r times their size by that much over 1-γ. At a tenth of ROUNDING·(1-γ) both are well within the allowance that
    every bound has for rounding (`tabular.expansion.rounding`), whatever the discount (with a horizon the effective
    one).
    """
    return min(AFFINE_TOLERANCE, 1e-11 * (1 - discount))


def agrees(affine: AffineTables, task: TabularCMDP, example: TabularCMDP, parameter: Floats) -> bool:
    """Whether a task is what affine tables say of its parameter, up to rounding, and starts as all others do."""
    if not np.array_equal(task.start, example.start):
        return False
    return max(affine.error(task, parameter)) <= tolerance(example.units.effective_discount)


def _detected(tasks: TaskDistribution, example: TabularCMDP) -> AffineTables | None:
    rng = np.random.default_rng(0)
    probes = tasks.distribution.probes()
    extent = np.ptp(tasks.distribution.support, axis=1)
    extent = np.where(extent > 0, extent, 1.0)
    pool = np.concatenate([probes, tasks.sample(POOL, rng)])
    chosen = pool[far_apart(pool, extent)]
    if len(chosen) != tasks.dimension + 1:
        return None
    fixed = [task for task in (_built(tasks, parameter) for parameter in chosen) if task is not None]
    if len(fixed) != len(chosen):
        return None
    fitted = affine_through(fixed, chosen, extent)
    for parameter in np.concatenate([probes, tasks.sample(_fresh(example), rng)]):
        task = _built(tasks, parameter)
        if task is None or not agrees(fitted, task, example, parameter):
            return None
    return fitted


def _built(tasks: TaskDistribution, parameter: Floats) -> TabularCMDP | None:
    """None where `build` fails: it is anybody's code, and whoever needs the task will hear of what is wrong with it."""
    try:
        task: TabularCMDP = tasks.task(parameter)
    except Exception:
        return None
    return task

"""Whether a family of tables is affine in its parameter: declared, or found out by building some of its tasks.

Finding out takes two steps. What the tables are if they are affine is guessed from tasks that are the same for
everybody, which proves nothing: a family may differ between them. Whoever relies on it tests the guess on fresh tasks,
drawn from a seed of one's own, and pays for what these may have missed (docs/guarantees.md, section 2.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.streams import Stream
from surefoot.tabular.affine import AffineTables, affine_of_arrays, affine_through, far_apart
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

# Tables of an affine family may differ from what is said of them by rounding only.
AFFINE_TOLERANCE = 1e-12
# Tasks that a guess must agree with, and of which each attempt at a test takes twice as many as the one before: many
# where tables are small, fewer where building one takes its time.
FRESH, FRESH_LARGE, LARGE = 400, 96, 1500  # LARGE: rows of transitions
MOST_FRESH = 200_000  # tasks of a test
# Tasks among which those are chosen that are fitted.
POOL = 256


@dataclass(frozen=True, eq=False)
class Affinity:
    """Attributes:
    tables: those of all tasks, as affine functions of the parameter; None where they are not.
    doubt: added to the probability of uncovered tasks wherever a test was made, whether it was passed or not.
    """

    tables: AffineTables | None
    doubt: float = 0.0


def affinity(tasks: TaskDistribution, seed: int, attempt: int = 1) -> Affinity:
    """What a family declares, or what was guessed, if it passes a test on fresh tasks drawn from the seed."""
    guess = affine_tables(tasks)
    if guess is None or tasks.affine is not None:
        return Affinity(guess)
    fresh = tasks.sample(sample_size(tasks, attempt), Stream.AFFINE_TASKS.rng(seed, attempt))
    return Affinity(guess if _all_agree(guess, tasks, tasks.example, fresh) else None, detection_doubt(tasks))


def sample_size(tasks: TaskDistribution, attempt: int) -> int:
    """Fresh tasks of this attempt at a test: (n+1)·2^a."""
    least: int = _test_size(tasks.example) + 1
    most = int(math.log2(MOST_FRESH / least))
    if attempt > most:
        raise InvalidInput(
            f"attempt must be at most {most} for a family that does not declare affine=, since the tasks that it takes "
            f"to find out double with every attempt, got {attempt}"
        )
    return least << attempt


def detection_doubt(tasks: TaskDistribution) -> float:
    """Bound on the probability that a fresh task is not what was guessed, although in the attempt that is used all that
    were drawn are: nⁿ/(n+1)ⁿ⁺¹ for all attempts together."""
    n = _test_size(tasks.example)
    return (n / (n + 1)) ** n / (n + 1)


@lru_cache(maxsize=16)
def affine_tables(tasks: TaskDistribution) -> AffineTables | None:
    """The tables of a family as affine functions of its parameter, as declared or *guessed*; None where they are not.

    What a family declares is taken at its word here, and checked where bounds are made of it. Otherwise an affine
    function is put through d+1 of its tasks and compared with others, the same for everybody: no bound may rest on it
    (`affinity`). Points of a finite distribution are cells of their own, which is better than boxes around them, so
    that nothing is looked for there.
    """
    example = tasks.example
    if not isinstance(example, TabularCMDP):
        return None
    if tasks.affine is not None:
        return affine_of_arrays(tasks.affine, example)
    if isinstance(tasks.distribution, Finite):
        return None
    return _guess(tasks, example)


def _test_size(example: Any) -> int:
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


def _guess(tasks: TaskDistribution, example: TabularCMDP) -> AffineTables | None:
    rng = np.random.default_rng(0)
    probes = tasks.distribution.probes()
    extent = np.ptp(tasks.distribution.support, axis=1)
    extent = np.where(extent > 0, extent, 1.0)
    pool = np.concatenate([probes, tasks.sample(POOL, rng)])
    chosen = pool[far_apart(pool, extent)]
    if len(chosen) != tasks.dimension + 1:
        return None
    fixed = [task for task in (_build_or_none(tasks, parameter) for parameter in chosen) if task is not None]
    if len(fixed) != len(chosen):
        return None
    fitted = affine_through(fixed, chosen, extent)
    tried = np.concatenate([probes, tasks.sample(_test_size(example), rng)])
    return fitted if _all_agree(fitted, tasks, example, tried) else None


def _all_agree(affine: AffineTables, tasks: TaskDistribution, example: Any, parameters: Floats) -> bool:
    for parameter in parameters:
        task = _build_or_none(tasks, parameter)
        if task is None or not agrees(affine, task, example, parameter):
            return False
    return True


def _build_or_none(tasks: TaskDistribution, parameter: Floats) -> TabularCMDP | None:
    """None where `build` fails: it is anybody's code, and whoever needs the task will hear of what is wrong with it."""
    try:
        task: TabularCMDP = tasks.task(parameter)
    except Exception:
        return None
    return task

"""Split conformal prediction: bounds that are fitted to one sample of tasks, widened by a quantile of what a second,
independent sample asks for (docs/guarantees.md, Theorem 1b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.settings import ResolvedBounds
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.tasks.task_distribution import TaskDistribution

# How the α of a draw of held-out tasks is spent: on bounds from all of them; on bounds from those on which the safe
# policy is feasible, used when too many are not; and, then, on the count of the latter being misleading.
ALL_SHARE, FEASIBLE_SHARE, DOUBT_SHARE = 0.6, 0.3, 0.1


class FittedBounds(Protocol):
    """Cells with bounds from a first sample of tasks, each bound with a width in proportion to which it may grow."""

    def scores(self, parameters: Floats) -> tuple[Floats, Sequence[float]]:
        """[n] by how many widths bounds must grow to hold the task of each parameter [n, d], infinite where the safe
        policy is not shown to be feasible; and what scores that may only seem infinite would be at most."""

    def cells(self, widening: float, uncovered: float) -> Cells:
        """The cells once all bounds have grown by so many widths."""


FIRST_SAMPLE, SECOND_SAMPLE = 0, 1
Draw: TypeAlias = Callable[[int, int], Floats]  # (which sample, how many tasks) -> their parameters [n, d]
B = TypeVar("B", bound=FittedBounds)


def conformal_cells(
    tasks: TaskDistribution,
    fit: Callable[[Floats], FittedBounds],
    size: int,
    rng: np.random.Generator,
    settings: ResolvedBounds,
) -> Cells:
    """Cells with bounds that a fresh task keeps unless it is among the uncovered."""
    bounds, widening, uncovered = conformal_bounds(lambda _, count: tasks.sample(count, rng), fit, size, settings)
    return bounds.cells(widening, uncovered)


def conformal_bounds(
    draw: Draw, fit: Callable[[Floats], B], size: int, settings: ResolvedBounds
) -> tuple[B, float, float]:
    """Bounds, by how many widths they must grow, and the probability of tasks that are then uncovered.

    `fit` makes cells and bounds of a first sample of `size` tasks. The second sample only chooses by how much they are
    widened, so that its scores and that of the test task are exchangeable (Theorem 1b). Where the safe policy is
    infeasible on too many tasks for these to be among the uncovered, their probability comes on top.
    """
    check_holdout(settings)
    bounds = fit(draw(FIRST_SAMPLE, size))
    scores, unresolved = bounds.scores(draw(SECOND_SAMPLE, settings.holdout))
    widening, infeasible = conformal_quantile(scores, settings.alpha_observed, unresolved)
    return bounds, widening, min(1.0, settings.uncovered + infeasible / settings.power)


def check_holdout(settings: ResolvedBounds) -> None:
    needed = fewest_held_out(settings)
    if settings.holdout < needed:
        raise InvalidInput(
            f"holdout must be at least {needed} for uncovered={settings.uncovered:g} in "
            f"attempt {settings.attempt}, got {settings.holdout}",
            argument="holdout",
        )


def fewest_held_out(settings: ResolvedBounds) -> int:
    """Tasks of which the largest score is exceeded seldom enough."""
    return math.ceil(1 / (ALL_SHARE * settings.alpha_observed) - 1)


def conformal_quantile(scores: Floats, alpha: float, unresolved: Sequence[float] = ()) -> tuple[float, float]:
    """The quantile of the scores by which bounds must grow, and the probability of an infeasible safe policy that comes
    on top.

    An infinite score may be so only because simulation stopped early. `unresolved` is what these would be at most if
    they turned out to be finite: they count as infeasible, and as the feasible tasks that they may be.
    """
    widening = _quantile(scores, ALL_SHARE * alpha)
    if math.isfinite(widening):
        return widening, 0.0
    feasible = scores[np.isfinite(scores)]
    infeasible = binomial_upper(len(scores) - len(feasible), len(scores), DOUBT_SHARE * alpha)
    return _quantile_or_largest(feasible, FEASIBLE_SHARE * alpha, unresolved), infeasible


def quantile_rank(scores: Floats, alpha: float) -> int:
    """The rank of the conformal quantile among the scores, counted from the largest; of more infinite ones than that,
    all decide what comes on top."""
    count, feasible = len(scores), int(np.isfinite(scores).sum())
    rank = count + 1 - _rank(count, ALL_SHARE * alpha)
    return rank if count - feasible < rank else count + 1 - min(_rank(feasible, FEASIBLE_SHARE * alpha), feasible)


def _quantile(scores: Floats, alpha: float) -> float:
    """The score that a further one exceeds with probability at most α; infinite if there are too few."""
    rank = _rank(len(scores), alpha)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def _quantile_or_largest(scores: Floats, alpha: float, further: Sequence[float]) -> float:
    """The same whichever of `further` are among the scores, and the largest of all where there are too few: of tasks
    that may be infeasible that is exceeded seldom enough as well (Theorem 1b)."""
    if not len(scores):
        raise InvalidInput(
            "holdout must leave tasks on which the safe policy is feasible, got none; take a safer safe policy (xi), "
            "and where tasks are simulated more episodes. A new draw is another attempt, to be declared and paid for "
            "as such",
            argument="holdout",
        )
    beyond = len(scores) - min(_rank(len(scores), alpha), len(scores))  # scores that may be larger
    return float(np.sort(np.append(scores, further))[-1 - beyond])


def _rank(count: int, alpha: float) -> int:
    """The k for which the k-th smallest of `count` scores is exceeded by a further one with probability at most α."""
    return math.ceil((1 - alpha) * (count + 1))

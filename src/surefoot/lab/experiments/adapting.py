"""Methods beside each other on fresh simulated tasks, a day being an episode: what each deployed day by day, and what
that was worth. For experiments whose tasks cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import SideBySide, Task
from surefoot.lab.experiments.judging import STANDARD_ERRORS, JudgedTask, PolicyMeans, best
from surefoot.learning.calibrated import Calibration, Setting
from surefoot.learning.certified.choice import path_to_less_slack
from surefoot.learning.learner import Learner
from surefoot.learning.spec import MethodSpec
from surefoot.methods import METHODS, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.runner import ask_and_tell

REACHED = 0.9  # of the possible gain


class Clock:
    """Wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = now - self._last, now


def calibrated_label(method: str) -> str:
    return f"{method}, calibrated"


def settings_to_try(method: str, policies: PolicyValueSet, risk: float, *, bounded: bool) -> Sequence[Setting]:
    """Of a calibration, from cautious to bold: the method's own path where bounds are about the tasks at hand
    (`bounded`), and elsewhere one that begins with keeping most of the safe policy's margin."""
    path = METHODS[method].path
    return path(policies, risk) if path is not None and bounded else path_to_less_slack()


@dataclass(frozen=True)
class Contender:
    """A method at a risk; runs at another risk than that of the experiment, or calibrated, have labels of their own."""

    label: str
    method: str
    risk: float
    calibration: Calibration | None = None

    def learner(
        self, policies: PolicyValueSet, days: int, seed: int = 0, *, known: Mapping[str, MethodSpec] = METHODS
    ) -> Learner:
        """`known`: methods by name, with those of one experiment only."""
        return learner(
            policies,
            method=known[self.method],
            episodes=days,
            risk=self.risk,
            seed=seed,
            calibration=self.calibration,
        )


@dataclass(frozen=True)
class Judging:
    """How what was deployed is judged: on so many fresh days of each policy, and where that leaves open on which side
    of the budget a mixture lies, on at most so many; within `near` of it up to a standard error of `precise`."""

    seed: list[int]
    days: int
    most_days: int
    near: float
    precise: float


@dataclass(frozen=True, eq=False)
class AdaptedTask(JudgedTask):
    """What contenders did with one task.

    Attributes:
        deployed: [c, D, P] by each contender on each day, the probabilities of the policies.
        cell_known: [P] the best mixture that is certified on all cells whose bounds the task keeps.
    """

    deployed: Floats
    cell_known: Floats


def adapt_to_task(
    policies: PolicyValueSet, learners: Sequence[Learner], task: Any, days: int, seed: int, judging: Judging
) -> AdaptedTask:
    """Every learner, all of whom see the same days under the same policies."""
    streams = day_streams(task, policies.policies, days, seed)
    deployed = np.stack([day_by_day(each, streams, days, len(policies.policies)) for each in learners])
    judge = PolicyMeans(task, policies.policies, judging.seed, judging.days)
    mixtures = np.unique(deployed.reshape(-1, deployed.shape[-1]), axis=0)
    judge.decide(mixtures, judging.most_days, near=judging.near, precise=judging.precise)
    mean, budget = judge.mean, float(task.units.budget[0])
    possible = known = best(budget - mean[None, :, 1], mean[:, 0])
    if policies.cells is not None:
        known = best_within_cells(policies.cells, mean, judge.error, budget)
    return AdaptedTask(task.parameter, mean, judge.error, judge.count, possible, deployed, known)


def day_streams(task: Task, policies: Sequence[Policy], days: int, seed: int) -> Callable[[int], EpisodeStream]:
    """The days that methods learn from, of one task under each of the policies: of all at once where the task can, and
    otherwise simulated when first asked for."""
    simulated = [task.episodes(policy, task.units.episode_length) for policy in policies]
    rngs, order = [np.random.default_rng([seed, policy]) for policy in range(len(policies))], np.arange(days)
    known: list[Outcomes | None] = [None] * len(policies)
    if isinstance(simulated[0], SideBySide):
        known = [*simulated[0].run_beside(simulated[1:], days, rngs, True)]

    @cache
    def stream(policy: int) -> EpisodeStream:
        return EpisodeStream(simulated[policy], rngs[policy], [days], order=order, first=known[policy])

    return stream


def day_by_day(learner: Learner, stream: Callable[[int], EpisodeStream], days: int, policies: int) -> Floats:
    """[D, P] the mixture deployed on each day."""
    weights = np.zeros((days, policies))
    for begin, deployed in ask_and_tell(learner, EpisodePool(stream), days):
        weights[begin:] = deployed.probabilities(policies)
    return weights


def best_within_cells(cells: Cells, mean: Floats, error: Floats, budget: float) -> Floats:
    """[P] what the bounds alone allow: on all cells that hold the task's values [P, 2], as far as these are known; of a
    task that none holds, the safe policy."""
    own, doubt = np.column_stack([mean[:, 0], budget - mean[:, 1]]), STANDARD_ERRORS * error
    holds = ((cells.lower <= own + doubt) & (cells.upper >= own - doubt)).all(axis=(1, 2))
    return best(cells.lower[holds, :, 1], mean[:, 0]) if holds.any() else np.eye(len(mean))[0]


# ----------------------------------------------------------------------------------------- what results.json has of it


def summarise_runs(
    tasks: Sequence[AdaptedTask],
    contender: int,
    *,
    certified: bool,
    risk: float,
    budget: float,
    least_gain: float,
    early: int,
) -> dict[str, Any]:
    """One contender over all tasks, as plain data. Shares are ratios of sums over the tasks.

    A day counts no more gain than is safely possible: what goes beyond is bought with cost. Days above the budget are
    not days on which most of the gain was reached. What is deployed on the first day is deployed to every task; where
    anything else is, the method has `moved`.

    Args:
        least_gain: days until most of less than this are not counted.
        early: how many days are the first.
    """
    gains = np.stack([each.gains(each.deployed[contender]) for each in tasks])  # [n, D]
    possible = np.array([each.possible_gain for each in tasks])
    daily = gains.sum(axis=0) / max(possible.sum(), 1e-12)
    counted = possible >= least_gain
    left = [_first((each.deployed[contender] != each.deployed[contender][0]).any(axis=1)) for each in tasks]
    excess = [each.excess(each.deployed[contender], budget) for each in tasks]
    above, error = (np.stack(column) for column in zip(*excess, strict=True))  # [n, D] each
    unsafe_days = above > STANDARD_ERRORS * error
    unsafe = unsafe_days.any(axis=1)
    kept = np.where(unsafe_days, -np.inf, gains)[counted]
    until = [_first(own >= REACHED * most - 1e-12) for own, most in zip(kept, possible[counted], strict=True)]
    undecided = (above > -STANDARD_ERRORS * error).any(axis=1) & ~unsafe
    return {
        "certified": certified,
        "risk": risk,
        "tasks": len(tasks),
        "unsafe_tasks": int(unsafe.sum()),
        "undecided_tasks": int(undecided.sum()),
        "unsafe_interval": list(binomial_interval(int(unsafe.sum()), len(tasks))),
        "unsafe_days": int(unsafe_days.sum()),
        "largest_below": float(budget + above.max()),
        "largest_below_error": float(error.flat[above.argmax()]),
        "share_early": float(daily[:early].mean()),
        "share": float(daily.mean()),
        "share_by_day": daily.tolist(),
        "counted": int(counted.sum()),
        "reached": sum(each is not None for each in until),
        "days_until": until,
        "median_days": _median(until),
        "moved": sum(each is not None for each in left),
        "median_moved": _median(left),
    }


def mean_reward(tasks: Sequence[AdaptedTask], contender: int) -> float:
    """Over days and tasks."""
    return float(np.mean([(each.deployed[contender] @ each.mean[:, 0]).mean() for each in tasks]))


def _first(days: Any) -> int | None:
    """The first day that is True, counted from 1; None if none is."""
    return int(np.argmax(days)) + 1 if np.any(days) else None


def _median(days: Sequence[int | None]) -> float | None:
    """Those who never got there got there last; None if that is the median."""
    found = float(np.median([np.inf if each is None else each for each in days])) if days else np.inf
    return found if np.isfinite(found) else None


def known_cell_summary(tasks: Sequence[AdaptedTask], budget: float) -> dict[str, Any]:
    """What is lost if the task's cell is known from the first day: the width of the bounds."""
    gains = np.array([each.gains(each.cell_known[None])[0] for each in tasks])
    possible = np.array([each.possible_gain for each in tasks])
    unsafe = [each.excess(each.cell_known[None], budget) for each in tasks]
    return {
        "share": float(gains.sum() / max(possible.sum(), 1e-12)),
        "unsafe_tasks": sum(bool(over > STANDARD_ERRORS * error) for over, error in unsafe),
    }

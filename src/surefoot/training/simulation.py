"""Intervals for the values of every policy on tasks that must be simulated: each task is a piece of work of its own.

A piece of work has generators of its own as well, one per policy. Its numbers depend neither on the process that does
it nor on what other policies and tasks took, so that one process, several and a cluster agree to the last bit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.estimates import Enough, Intervals, bounds_in_rounds
from surefoot.fan_out import Workers
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.settings import FEWEST_EPISODES, USUAL_STEPS, Settled
from surefoot.training.signal_fit import Lesson

ALL = slice(0, None)
SAFE = 0  # the place of π_s among the policies

# What is simulated for different purposes has random numbers of its own; 2 and 3 draw parameters.
FINITE_STAGE, SAMPLE_STAGE, HOLDOUT_STAGE, SAFE_STAGE = 4, 5, 6, 7

MANY = 2**17  # episodes with which nothing more is shown than with any number


class Wanted(Protocol):
    """What is wanted of the intervals of one task; decided from its own episodes and what was fixed before them."""

    @property
    def feasible(self) -> bool:
        """Whether nothing else is wanted of a task on which the safe policy is not shown to be feasible."""
        ...

    def enough(self, policy: int) -> Enough | None:
        """Says of bounds on the values of this policy whether no more needs to be known; None: all of the episodes."""
        ...


@dataclass(frozen=True)
class Everything:
    """As narrow as all episodes make them."""

    feasible: bool = False

    def enough(self, policy: int) -> None:
        return None


class Simulated(NamedTuple):
    """Of one task: lower and upper [P, 1+m+q, 1], and in which bins [P, k, L] the numbers of its episodes were; None
    if nobody learned to read them."""

    lower: Floats
    upper: Floats
    counts: Floats | None = None


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated intervals of tasks of a family, for all policies of a set, several tasks at a time; of the q signals of
    a lesson as well, if there was one."""

    tasks: TaskDistribution
    policies: tuple[Policy, ...]
    settings: Settled
    seed: int
    workers: Workers
    show: Progress = silent
    lesson: Lesson | None = None

    def bounds(
        self, what: str, stage: int, parameters: Floats, wanted: Sequence[Wanted], error: float, part: slice = ALL
    ) -> Iterator[Simulated]:
        """Bounds for a part of the tasks of parameters [n, d], of each what is wanted; each of the numbers is wrong
        with probability at most `error`."""
        numbers = range(len(parameters))[part]
        calls = [(parameters[k], self._entropy(stage, k), own) for k, own in zip(numbers, wanted, strict=True)]
        work = partial(_bounds_of_one, self.tasks, self.policies, self.settings.episodes, error, self.lesson)

        def show(what: str, done: int, total: int) -> None:
            self.show(what, numbers.start + done, len(parameters))

        return self.workers.each(f"{what}, {self._most(len(parameters))}", work, calls, show)

    def of_all(self, what: str, stage: int, parameters: Floats) -> Iterator[Simulated]:
        """The same of all tasks, all numbers of one right at once with probability 1 - settings.error_now; no more of a
        task on which the safe policy is not shown to be feasible."""
        wanted = [Everything(feasible=True)] * len(parameters)
        signals = 0 if self.lesson is None else len(self.lesson.signals)
        error = error_of_each(self.settings, len(self.policies), self.tasks.units, signals)
        return self.bounds(what, stage, parameters, wanted, error)

    def shown_feasible(self, parameters: Floats) -> Mask:
        """[n] whether the safe policy is shown to be feasible on the task of each parameter [n, d]."""
        calls = [(parameter, self._entropy(SAFE_STAGE, k)) for k, parameter in enumerate(parameters)]
        work = partial(_feasible_on_one, self.tasks, self.policies[SAFE], self.settings)
        shown = self.workers.each(f"simulating the safe policy, {self._most(len(calls))}", work, calls, self.show)
        return np.fromiter(shown, dtype=bool, count=len(calls))

    def _entropy(self, stage: int, number: int) -> list[int]:
        return [self.seed, stage, self.settings.attempt, number]

    def _most(self, tasks: int) -> str:
        steps = tasks * len(self.policies) * self.settings.episodes * self.tasks.units.episode_length
        return f"at most {steps:,} steps"


def _bounds_of_one(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    episodes: int,
    error: float,
    lesson: Lesson | None,
    parameter: Floats,
    entropy: list[int],
    wanted: Wanted,
) -> Simulated:
    rng = np.random.default_rng(entropy)
    return simulated_bounds(tasks.task(parameter), policies, episodes, error, rng, wanted, lesson)


def simulated_bounds(
    task: Task,
    policies: Sequence[Policy],
    episodes: int,
    error: float,
    rng: np.random.Generator,
    wanted: Wanted,
    lesson: Lesson | None = None,
) -> Simulated:
    """Bounds from at most `episodes` episodes of each policy; each of these numbers is on the wrong side of the value
    with probability at most `error` (docs/guarantees.md, 2.4), whatever is wanted."""
    steps = task.units.episode_length
    intervals = Intervals(task.units, steps, error)
    readers = [] if lesson is None else [lesson.reader(p, task.units) for p in range(len(policies))]
    if lesson is not None:
        intervals = replace(intervals, read=readers[SAFE], signals=len(lesson.signals))
    lower, upper = (np.tile(side, (len(policies), 1)) for side in intervals.bounds(intervals.start()))
    for p, (policy, own) in enumerate(zip(policies, rng.spawn(len(policies)), strict=True)):
        simulated, of_one = task.episodes(policy, steps), intervals
        if readers:
            of_one = replace(intervals, read=readers[p])
        lower[p], upper[p] = bounds_in_rounds(simulated, of_one, episodes, own, wanted.enough(p))
        if p == SAFE and wanted.feasible and not _feasible(lower[p], upper[p]):
            break
    counts = np.stack([reader.counts for reader in readers]) if readers else None
    return Simulated(lower[..., None], upper[..., None], counts)


def _feasible_on_one(
    tasks: TaskDistribution, safe: Policy, settings: Settled, parameter: Floats, entropy: list[int]
) -> bool:
    return shown_feasible(tasks.task(parameter), safe, settings, np.random.default_rng(entropy))


def shown_feasible(task: Task, safe: Policy, settings: Settled, rng: np.random.Generator) -> bool:
    """Whether all margins of the safe policy are at least 0, which is wrongly said with probability at most
    settings.error_now: only their lower ends matter, and of these only the signs."""
    steps = task.units.episode_length
    error = settings.error_now / len(task.units.budget)
    intervals = Intervals(task.units, steps, error, margins_only=True)
    return _feasible(*bounds_in_rounds(task.episodes(safe, steps), intervals, settings.episodes, rng, _feasible))


def _feasible(lower: Floats, upper: Floats) -> bool:
    """Whether all margins are shown to be at least 0, as means of signals always are."""
    return bool((lower[1:] >= 0).all())


# ------------------------------------------------------------------------------------------------ what may be simulated


def error_of_each(settings: Settled, policies: int, units: Units, signals: int = 0) -> float:
    """With what probability each single bound, below or above, may be wrong for all of a task to be right at once."""
    return settings.error_now / (2 * policies * (1 + len(units.budget) + signals))


def affordable(
    settings: Settled, steps: int | None, *, tasks: int, policies: int, units: Units, error: float
) -> Settled:
    """As many episodes per task and policy as `steps` steps in all are enough for, at most those of the settings; as
    the usual number of steps is enough for, where nobody said anything.

    Refused if these cannot show that the safe policy is feasible, by bounds that are wrong with probability `error`.
    """
    once = tasks * policies * units.episode_length
    if (USUAL_STEPS if steps is None else steps) >= once * settings.episodes or (steps is None and not settings.usual):
        return settings
    fewest = _fewest_episodes(error, units)
    if steps is None:
        enough = max(FEWEST_EPISODES, 2 * fewest, USUAL_STEPS // once)
        return replace(settings, episodes=min(settings.episodes, enough))
    if steps < fewest * once:
        raise InvalidInput(
            f"steps must be at least {fewest * once} for {tasks} tasks, {policies} policies and episodes of "
            f"{units.episode_length} steps: fewer than {fewest} episodes each would not show that the safe policy is "
            f"feasible even if none of them cost anything, got {steps}"
        )
    return replace(settings, episodes=steps // once)


def _fewest_episodes(error: float, units: Units) -> int:
    """How many episodes at the least possible cost show that a policy is feasible; very many if none do."""
    intervals = Intervals(units, units.episode_length, error)

    def show_it(episodes: int) -> bool:
        reward, *cost = units.reachable[:, 0]
        cheapest = Outcomes(np.full(episodes, reward), np.tile(cost, (episodes, 1)))
        return _feasible(*intervals.bounds(intervals.update(intervals.start(), cheapest)))

    return 1 + bisect_left(range(1, MANY), True, key=show_it)

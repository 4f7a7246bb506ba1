"""Simulated episodes of every policy on tasks of a family: each task is a piece of work of its own.

A piece of work has generators of its own as well, one per policy. Its numbers depend neither on the process that does
it nor on what other policies and tasks took, so that one process, several and a cluster agree to the last bit.

The numbers of an episode are its scaled reward and costs (`Units.scaled`) and, if somebody learned to read it, q
signals: k' = 1+m+q of them, in [0, 1].
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.bounds.settings import BLIND, FEWEST_EPISODES, USUAL_STEPS, Settled
from surefoot.bounds.signal_model import Lesson, Reader
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.confidence import Betting, one_bet
from surefoot.errors import InvalidInput
from surefoot.estimates import Intervals, bounds_in_rounds, check_ranges
from surefoot.fan_out import Workers
from surefoot.progress import Progress, silent
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

SAFE = 0  # the place of π_s among the policies

# What is simulated for different purposes has random numbers of its own; 2 and 3 draw parameters.

MANY = 2**17  # episodes with which nothing more is shown than with any number

# A first sample of tasks is simulated for this part of the episodes: surfaces lie through all of them.
LOOK_PART = 1 / 6
# Held-out tasks are first simulated for this part of the episodes, and those that decide for up to so many times as
# many; stakes are the best ones after PLANNED times as many.
FIRST_PART, DEEPER, PLANNED = 3 / 4, 16, 2
BOLDEST = 0.95  # of stakes


class Looked(NamedTuple):
    """Of one task and every policy: mean and spread [P, k'] of the numbers of its episodes, what each of these cost
    [n, P, m], and in which bins [P, k', L] the numbers were, where somebody learned to read them."""

    mean: Floats
    spread: Floats
    costs: Floats
    counts: Floats | None


@dataclass(frozen=True, eq=False)
class Held:
    """What is known of one policy on one held-out task after `done` episodes: bounds [k'] on the means of its numbers,
    each of which is on the wrong side, after any number of episodes, with probability at most BLIND.

    Attributes:
        stake: [k'] of the bets that these bounds follow from, and what they gained [2, k'], above and below.
    """

    lower: Floats
    upper: Floats
    stake: Floats
    gains: Floats
    done: int
    rng: np.random.Generator

    def after(self, numbers: Floats) -> Held:
        """With numbers [n, k'] of as many more episodes. Bounds are intersections over all looks, which hold at once;
        where one of them is wrong they may pass each other."""
        both = np.stack([numbers, 1 - numbers], axis=1)
        gains, done = self.gains + np.log1p(-self.stake * both).sum(axis=0), self.done + len(numbers)
        above, below = one_bet(gains, done, self.stake, BLIND)
        return replace(
            self, lower=np.maximum(self.lower, 1 - below), upper=np.minimum(self.upper, above), gains=gains, done=done
        )


class Simulated(NamedTuple):
    """Of one task: lower and upper [P, 1+m+q, 1] of reward, margins and signals, and bins [P, k', L] as above."""

    lower: Floats
    upper: Floats
    counts: Floats | None = None


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated tasks of a family, for all policies of a set, several tasks at a time."""

    tasks: TaskDistribution
    policies: tuple[Policy, ...]
    settings: Settled
    seed: int
    workers: Workers
    show: Progress = silent
    lesson: Lesson | None = None

    def look(self, parameters: Floats) -> Iterator[Looked]:
        """What tasks of parameters [n, d] look like: no bounds."""
        calls = [(parameter, self._entropy(Stream.SIMULATED_SAMPLE, k)) for k, parameter in enumerate(parameters)]
        episodes = max(1, math.floor(LOOK_PART * self.settings.episodes))
        work = partial(_look_at_one, self.tasks, self.policies, episodes, self.lesson)
        what = f"simulating the tasks that cells are made of, {self._steps(len(calls), episodes)}"
        return self.workers.each(what, work, calls, self.show)

    def begun(self, parameters: Floats, spreads: Floats, claimed: Mask) -> Iterator[list[Held]]:
        """Held-out tasks of parameters [n, d], each with the policies of which something is claimed [n, P], after a
        part of the episodes; numbers are expected to be spread [n, P, k'] like this."""
        calls = [
            (parameter, self._stake(spread), wanted, self._entropy(Stream.SIMULATED_HELD_OUT, k))
            for k, (parameter, spread, wanted) in enumerate(zip(parameters, spreads, claimed, strict=True))
        ]
        work = partial(_begun_on_one, self.tasks, self.policies, self.first_episodes, self.lesson)
        what = f"simulating held-out tasks, {self._steps(len(calls), self.first_episodes)}"
        return self.workers.each(what, work, calls, self.show)

    def more(self, wanted: Sequence[tuple[Floats, int, Held]]) -> list[Held]:
        """Single policies on single held-out tasks, each after as many episodes again as it had, but no more than there
        may be."""
        calls = [
            (parameter, policy, held, min(held.done, self.most_episodes - held.done))
            for parameter, policy, held in wanted
        ]
        work = partial(_more_of_one, self.tasks, self.policies, self.lesson)
        return list(self.workers.each("", work, calls, silent))

    @property
    def first_episodes(self) -> int:
        return max(1, round(FIRST_PART * self.settings.episodes))

    def off_by(self, spread: Floats) -> Floats:
        """What bounds of a held-out task are off by after the first episodes, about (`one_bet`)."""
        stake = self._stake(spread)
        off: Floats = math.log(1 / BLIND) / (self.first_episodes * stake) + stake * spread**2 / 2
        return off

    def _stake(self, spread: Floats) -> Floats:
        """What is staked on numbers of this spread, no more than BOLDEST."""
        episodes = PLANNED * self.first_episodes
        return np.minimum(BOLDEST, math.sqrt(2 * math.log(1 / BLIND) / episodes) / np.maximum(spread, 1e-9))

    @property
    def most_episodes(self) -> int:
        return DEEPER * self.first_episodes

    def spare_episodes(self, tasks: int) -> int:
        """For held-out tasks that decide: what is left of the episodes of all of them, with every policy."""
        return max(0, self.settings.episodes - self.first_episodes) * tasks * len(self.policies)

    def feasible(self, lower: Floats, upper: Floats) -> bool:
        """Whether these bounds [k'] on the numbers of the safe policy show that it is feasible."""
        units, values = self.tasks.units, slice(0, 1 + len(self.tasks.units.budget))
        return _feasible(*units.values_of_sums(lower[values], upper[values], units.episode_length))

    def of_all(self, what: str, stage: int, parameters: Floats) -> Iterator[Simulated]:
        """Bounds for the tasks of parameters [n, d], all numbers of one right at once with probability 1 -
        settings.error_now; no more of a task on which the safe policy is not shown to be feasible."""
        calls = [(parameter, self._entropy(stage, k)) for k, parameter in enumerate(parameters)]
        signals = 0 if self.lesson is None else len(self.lesson.signals)
        error = error_of_each(self.settings, len(self.policies), self.tasks.units, signals)
        work = partial(_bounds_of_one, self.tasks, self.policies, self.settings.episodes, error, self.lesson)
        return self.workers.each(f"{what}, {self._steps(len(calls), self.settings.episodes)}", work, calls, self.show)

    def shown_feasible(self, parameters: Floats) -> Mask:
        """[n] whether the safe policy is shown to be feasible on the task of each parameter [n, d]."""
        calls = [(parameter, self._entropy(Stream.SIMULATED_SAFE_POLICY, k)) for k, parameter in enumerate(parameters)]
        work = partial(_feasible_on_one, self.tasks, self.policies[SAFE], self.settings)
        what = f"simulating the safe policy, {self._steps(len(calls), self.settings.episodes)}"
        return np.fromiter(self.workers.each(what, work, calls, self.show), dtype=bool, count=len(calls))

    def _entropy(self, stage: int, number: int) -> list[int]:
        return [self.seed, stage, self.settings.attempt, number]

    def _steps(self, tasks: int, episodes: int) -> str:
        return f"at most {tasks * len(self.policies) * episodes * self.tasks.units.episode_length:,} steps"


# --------------------------------------------------------------------------------------------- one task, in call order


def _look_at_one(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    episodes: int,
    lesson: Lesson | None,
    parameter: Floats,
    entropy: list[int],
) -> Looked:
    task, found, counts = tasks.task(parameter), [], []
    for p, (policy, rng) in enumerate(zip(policies, np.random.default_rng(entropy).spawn(len(policies)), strict=True)):
        reader = None if lesson is None else Reader(lesson, p, task.units)
        found.append(_numbers(task, policy, reader, episodes, rng))
        counts += [] if reader is None else [reader.counts]
    numbers, costs = np.stack(found, axis=1), slice(1, 1 + len(task.units.budget))
    return Looked(numbers.mean(axis=0), numbers.std(axis=0), numbers[..., costs], np.stack(counts) if counts else None)


def _numbers(task: Task, policy: Policy, reader: Reader | None, episodes: int, rng: np.random.Generator) -> Floats:
    """[n, k'] of as many episodes."""
    outcomes = task.episodes(policy, task.units.episode_length).run(episodes, rng, transitions=reader is not None)
    check_ranges(outcomes, task.units)
    sums = task.units.scaled(outcomes.sums)
    return sums if reader is None else np.concatenate([sums, reader(outcomes)], axis=1)


def _begun_on_one(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    episodes: int,
    lesson: Lesson | None,
    parameter: Floats,
    stakes: Floats,
    claimed: Mask,
    entropy: list[int],
) -> list[Held]:
    nothing, anything, none = np.zeros(stakes.shape[1]), np.ones(stakes.shape[1]), np.zeros((2, stakes.shape[1]))
    blank = [
        Held(nothing, anything, stake, none, 0, rng)
        for stake, rng in zip(stakes, np.random.default_rng(entropy).spawn(len(policies)), strict=True)
    ]
    return [
        _more_of_one(tasks, policies, lesson, parameter, p, each, episodes) if claimed[p] else each
        for p, each in enumerate(blank)
    ]


def _more_of_one(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    lesson: Lesson | None,
    parameter: Floats,
    p: int,
    held: Held,
    episodes: int,
) -> Held:
    task = tasks.task(parameter)
    reader = None if lesson is None else Reader(lesson, p, task.units)
    return held.after(_numbers(task, policies[p], reader, episodes, held.rng))


def _bounds_of_one(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    episodes: int,
    error: float,
    lesson: Lesson | None,
    parameter: Floats,
    entropy: list[int],
) -> Simulated:
    return simulated_bounds(tasks.task(parameter), policies, episodes, error, np.random.default_rng(entropy), lesson)


def simulated_bounds(
    task: Task,
    policies: Sequence[Policy],
    episodes: int,
    error: float,
    rng: np.random.Generator,
    lesson: Lesson | None = None,
) -> Simulated:
    """Bounds from `episodes` episodes of each policy; each of these numbers is on the wrong side of the value with
    probability at most `error`. Nothing but the whole range where the safe policy is not shown to be feasible."""
    units, steps = task.units, task.units.episode_length
    size = 1 + len(units.budget) + (0 if lesson is None else len(lesson.signals))
    lower, upper = np.zeros((len(policies), size)), np.ones((len(policies), size))
    readers = [None if lesson is None else Reader(lesson, p, units) for p in range(len(policies))]
    sequence, values = Betting(2 * error), slice(0, 1 + len(units.budget))
    for p, (policy, own) in enumerate(zip(policies, rng.spawn(len(policies)), strict=True)):
        found = _numbers(task, policy, readers[p], episodes, own)
        lower[p], upper[p] = sequence.interval(sequence.update(sequence.start((size,)), found))
        if p == SAFE and not _feasible(*units.values_of_sums(lower[p, values], upper[p, values], steps)):
            break
    least, most = units.values_of_sums(lower[:, values], upper[:, values], steps)
    counts = [reader.counts for reader in readers if reader is not None]
    return Simulated(
        np.concatenate([least, lower[:, values.stop :]], axis=1)[..., None],
        np.concatenate([most, upper[:, values.stop :]], axis=1)[..., None],
        np.stack(counts) if counts else None,
    )


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

"""Simulated episodes of every policy on tasks of a family: each task is a piece of work of its own.

A piece of work has generators of its own as well, one per policy. Its numbers depend neither on the process that does
it nor on what other policies and tasks took, so that one process, several and a cluster agree to the last bit.

The numbers of an episode are its scaled reward and costs (`Units.scaled`) and, if signals were learned, q signals: k' =
1+m+q of them, in [0, 1].
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.bounds.kept_episodes import KeptEpisodes
from surefoot.bounds.settings import FEWEST_EPISODES, MISS_RATE, USUAL_STEPS, ResolvedBounds
from surefoot.bounds.signal_model import SignalModel
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task, run_policies
from surefoot.cmdp.units import Units
from surefoot.confidence import Betting, one_bet
from surefoot.errors import InvalidInput
from surefoot.estimates import Intervals, bounds_in_rounds, check_ranges
from surefoot.fan_out import Workers
from surefoot.progress import Progress, silent
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

T = TypeVar("T")

SAFE = 0  # the place of π_s among the policies

MANY = 2**17  # episodes with which nothing more is shown than with any number

# A first sample of tasks is simulated for this part of the episodes: Gaussian processes are fitted to all of them.
LOOK_PART = 1 / 6
# Held-out tasks are first simulated for this part of the episodes, and those that decide for up to so many times as
# many; stakes are the best ones after PLANNED times as many.
FIRST_PART, DEEPER, PLANNED = 3 / 4, 16, 2
BOLDEST = 0.95  # of stakes


class PilotStats(NamedTuple):
    """Of one task and every policy: mean and standard deviation [P, k'] of the numbers of its episodes, what each of
    these cost [n, P, m], and in which bins [P, k', L] the numbers were, where signals were learned."""

    mean: Floats
    std: Floats
    costs: Floats
    counts: Floats | None


@dataclass(frozen=True, eq=False)
class HoldoutBounds:
    """What is known of one policy on one held-out task after `done` episodes: bounds [k'] on the means of its numbers,
    each of which is on the wrong side, after any number of episodes, with probability at most MISS_RATE.

    Attributes:
        stake: [k'] of the bets that these bounds follow from, and what they gained [2, k'], above and below.
        rng, place: where further episodes come from: a generator, or among those that are kept (stage, task, policy).
    """

    lower: Floats
    upper: Floats
    stake: Floats
    gains: Floats
    done: int
    rng: np.random.Generator
    place: tuple[int, ...] = ()

    def update(self, numbers: Floats) -> HoldoutBounds:
        """With numbers [n, k'] of as many more episodes. Bounds are intersections over all looks, which hold at once;
        where one of them is wrong they may pass each other."""
        both = np.stack([numbers, 1 - numbers], axis=1)
        gains, done = self.gains + np.log1p(-self.stake * both).sum(axis=0), self.done + len(numbers)
        above, below = one_bet(gains, done, self.stake, MISS_RATE)
        return replace(
            self, lower=np.maximum(self.lower, 1 - below), upper=np.minimum(self.upper, above), gains=gains, done=done
        )


class TaskBounds(NamedTuple):
    """Of one task: lower and upper [P, 1+m+q, 1] of reward, margins and signals, and bins [P, k', L] as above."""

    lower: Floats
    upper: Floats
    counts: Floats | None = None


# --------------------------------------------------------------------------------------------- one task, in one process


@dataclass(frozen=True, eq=False)
class Trial:
    """Episodes of every policy on one task of a family at a time: what is sent to the process that simulates it."""

    tasks: TaskDistribution
    policies: tuple[Policy, ...]
    signals: SignalModel | None = None
    kept: KeptEpisodes | None = None

    def pilot(self, parameter: Floats, entropy: list[int], episodes: int) -> PilotStats:
        """What a task looks like: no bounds."""
        task, generators = self.tasks.task(parameter), np.random.default_rng(entropy).spawn(len(self.policies))
        everybody = range(len(self.policies))
        played, counts = zip(*self._play_all(task, everybody, episodes, generators, entropy), strict=True)
        numbers, costs = np.stack(played, axis=1), slice(1, 1 + len(task.units.budget))
        return PilotStats(numbers.mean(axis=0), numbers.std(axis=0), numbers[..., costs], self._stack(counts))

    def begin(
        self, parameter: Floats, stakes: Floats, claimed: Mask, entropy: list[int], episodes: int
    ) -> list[HoldoutBounds]:
        """Bounds of every policy of which something is claimed [P], by bets with stakes [P, k']."""
        nothing, anything, none = np.zeros(stakes.shape[1]), np.ones(stakes.shape[1]), np.zeros((2, stakes.shape[1]))
        generators = np.random.default_rng(entropy).spawn(len(self.policies))
        held = [
            HoldoutBounds(nothing, anything, stake, none, 0, rng, _place(entropy, p))
            for p, (stake, rng) in enumerate(zip(stakes, generators, strict=True))
        ]
        some = np.flatnonzero(claimed).tolist()
        played = self._play_all(self.tasks.task(parameter), some, episodes, [generators[p] for p in some], entropy)
        for p, (numbers, _) in zip(some, played, strict=True):
            held[p] = held[p].update(numbers)
        return held

    def extend(self, parameter: Floats, policy: int, held: HoldoutBounds, episodes: int) -> HoldoutBounds:
        """Bounds of one policy after so many more episodes."""
        task = self.tasks.task(parameter)
        return held.update(self._play(task, policy, episodes, held.rng, held.place, held.done)[0])

    def bound(self, parameter: Floats, entropy: list[int], episodes: int, alpha: float) -> TaskBounds:
        """Bounds from `episodes` episodes of each policy; each of these numbers is on the wrong side of the value with
        probability at most `alpha`. Nothing but the whole range where the safe policy is not shown to be feasible."""
        task, counts = self.tasks.task(parameter), []
        units, values = task.units, 1 + len(task.units.budget)
        size = values + (0 if self.signals is None else len(self.signals.signals))
        lower, upper = np.zeros((len(self.policies), size)), np.ones((len(self.policies), size))
        sequence = Betting(2 * alpha)
        for p, rng in enumerate(np.random.default_rng(entropy).spawn(len(self.policies))):
            numbers, seen = self._play(task, p, episodes, rng, _place(entropy, p))
            lower[p], upper[p] = sequence.interval(sequence.update(sequence.start((size,)), numbers))
            counts.append(seen)
            if p == SAFE and not is_feasible(units, lower[p], upper[p]):
                break
        least, most = _values(units, lower, upper)
        return TaskBounds(
            np.concatenate([least, lower[:, values:]], axis=1)[..., None],
            np.concatenate([most, upper[:, values:]], axis=1)[..., None],
            self._stack(counts),
        )

    def shows_feasible(self, parameter: Floats, entropy: list[int], episodes: int, alpha: float) -> bool:
        """Whether all margins of the safe policy are at least 0, which is wrongly said with probability at most
        `alpha`: only their lower ends matter, and of these only the signs."""
        task, rng = self.tasks.task(parameter), np.random.default_rng(entropy)
        units, steps = task.units, task.units.episode_length
        intervals = Intervals(units, steps, alpha / len(units.budget), margins_only=True)
        playing = task.episodes(self.policies[SAFE], steps)
        return _no_negative_margin(*bounds_in_rounds(playing, intervals, episodes, rng, _no_negative_margin))

    def _play_all(
        self,
        task: Task,
        policies: Sequence[int],
        episodes: int,
        rngs: Sequence[np.random.Generator],
        entropy: list[int],
    ) -> list[tuple[Floats, Floats]]:
        """As `_play`, the first episodes of several policies."""
        if self.kept is not None:
            return [
                self._play(task, p, episodes, rng, _place(entropy, p)) for p, rng in zip(policies, rngs, strict=True)
            ]
        chosen, shown = [self.policies[p] for p in policies], self.signals is not None
        played = run_policies(task, chosen, episodes, rngs, transitions=shown)
        return [self._with_counts(self._numbers(task, p, each)) for p, each in zip(policies, played, strict=True)]

    def _play(
        self, task: Task, policy: int, episodes: int, rng: np.random.Generator, place: tuple[int, ...], done: int = 0
    ) -> tuple[Floats, Floats]:
        """Numbers [n, k'] of as many episodes of a policy, after those that are done, and how many of them are in each
        bin [k', L], if signals were learned."""
        if self.kept is None:
            numbers = self._simulate(task, policy, episodes, rng)
        else:
            numbers = self.kept.numbers(place, done, episodes, partial(self._simulate, task, policy))
        return self._with_counts(numbers)

    def _with_counts(self, numbers: Floats) -> tuple[Floats, Floats]:
        if self.signals is None:
            return numbers, np.empty((numbers.shape[1], 0))
        return numbers, self.signals.count(numbers)

    def _simulate(self, task: Task, policy: int, episodes: int, rng: np.random.Generator) -> Floats:
        playing = task.episodes(self.policies[policy], task.units.episode_length)
        return self._numbers(task, policy, playing.run(episodes, rng, transitions=self.signals is not None))

    def _numbers(self, task: Task, policy: int, outcomes: Outcomes) -> Floats:
        """[n, k']"""
        check_ranges(outcomes, task.units)
        sums = task.units.scaled(outcomes.sums)
        if self.signals is None:
            return sums
        return np.concatenate([sums, self.signals.signals.of(policy, outcomes.watched())], axis=1)

    def _stack(self, counts: Sequence[Floats]) -> Floats | None:
        return None if self.signals is None else np.stack(counts)


def _place(entropy: list[int], policy: int) -> tuple[int, ...]:
    """Stage, task and policy: entropy is [seed, stage, attempt, number]."""
    return (*entropy[1::2], policy)


def is_feasible(units: Units, lower: Floats, upper: Floats) -> bool:
    """Whether bounds [k'] on the means of a policy's numbers show that it keeps its budgets."""
    return _no_negative_margin(*_values(units, lower, upper))


def _values(units: Units, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Bounds [..., 1+m] on reward and margins from those [..., k'] on the means of numbers."""
    values = slice(0, 1 + len(units.budget))
    return units.values_of_sums(lower[..., values], upper[..., values], units.episode_length)


def _no_negative_margin(lower: Floats, upper: Floats) -> bool:
    return bool((lower[1:] >= 0).all())


# ----------------------------------------------------------------------------------------------- many tasks, by workers


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated tasks of a family, for all policies of a set, several tasks at a time."""

    trial: Trial
    settings: ResolvedBounds
    seed: int
    workers: Workers
    show: Progress = silent

    def pilot(self, parameters: Floats) -> Iterator[PilotStats]:
        """What tasks of parameters [n, d] look like: no bounds."""
        episodes = max(1, math.floor(LOOK_PART * self.settings.episodes))
        work = partial(self.trial.pilot, episodes=episodes)
        what = "simulating the tasks that cells are made of"
        return self._each(what, work, self._calls(Stream.SIMULATED_SAMPLE, parameters), episodes)

    def begin(self, parameters: Floats, std: Floats, claimed: Mask) -> Iterator[list[HoldoutBounds]]:
        """Held-out tasks of parameters [n, d], each with the policies of which something is claimed [n, P], after a
        part of the episodes; numbers are expected to have standard deviations [n, P, k'] like this."""
        calls = [
            (parameter, self._stake(own), wanted, self._entropy(Stream.SIMULATED_HELD_OUT, k))
            for k, (parameter, own, wanted) in enumerate(zip(parameters, std, claimed, strict=True))
        ]
        work = partial(self.trial.begin, episodes=self.first_episodes)
        return self._each("simulating held-out tasks", work, calls, self.first_episodes)

    def extend(self, wanted: Sequence[tuple[Floats, int, HoldoutBounds]]) -> list[HoldoutBounds]:
        """Single policies on single held-out tasks, each after as many episodes again as it had, but no more than there
        may be."""
        calls = [(*each, min(each[2].done, self.most_episodes - each[2].done)) for each in wanted]
        return list(self.workers.map("", self.trial.extend, calls, silent))

    @property
    def first_episodes(self) -> int:
        return max(1, round(FIRST_PART * self.settings.episodes))

    @property
    def most_episodes(self) -> int:
        return DEEPER * self.first_episodes

    def spare_episodes(self, tasks: int) -> int:
        """For held-out tasks that decide: what is left of the episodes of all of them, with every policy."""
        return max(0, self.settings.episodes - self.first_episodes) * tasks * len(self.trial.policies)

    def half_width(self, std: Floats) -> Floats:
        """How far bounds of a held-out task are from the mean after the first episodes, about (`one_bet`)."""
        stake = self._stake(std)
        width: Floats = math.log(1 / MISS_RATE) / (self.first_episodes * stake) + stake * std**2 / 2
        return width

    def _stake(self, std: Floats) -> Floats:
        """What is staked on numbers of this standard deviation, no more than BOLDEST."""
        episodes = PLANNED * self.first_episodes
        return np.minimum(BOLDEST, math.sqrt(2 * math.log(1 / MISS_RATE) / episodes) / np.maximum(std, 1e-9))

    def bound_all(self, points: Floats) -> Iterator[TaskBounds]:
        """Bounds for the tasks of parameters [n, d], all numbers of one right at once with probability 1 -
        settings.alpha_spent; no more of a task on which the safe policy is not shown to be feasible."""
        trial, episodes = self.trial, self.settings.episodes
        signals = 0 if trial.signals is None else len(trial.signals.signals)
        alpha = alpha_of_each(self.settings, len(trial.policies), trial.tasks.units, signals)
        work = partial(trial.bound, episodes=episodes, alpha=alpha)
        return self._each("simulating every task", work, self._calls(Stream.SIMULATED_EVERY_TASK, points), episodes)

    def shows_feasible(self, parameters: Floats) -> Mask:
        """[n] whether the safe policy is shown to be feasible on the task of each parameter [n, d]."""
        episodes, calls = self.settings.episodes, self._calls(Stream.SIMULATED_SAFE_POLICY, parameters)
        work = partial(self.trial.shows_feasible, episodes=episodes, alpha=self.settings.alpha_spent)
        return np.fromiter(self._each("simulating the safe policy", work, calls, episodes), bool, len(calls))

    def _each(self, what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], episodes: int) -> Iterator[T]:
        steps = len(calls) * len(self.trial.policies) * episodes * self.trial.tasks.units.episode_length
        return self.workers.map(f"{what}, at most {steps:,} steps", work, calls, self.show)

    def _calls(self, stage: int, parameters: Floats) -> list[tuple[Floats, list[int]]]:
        return [(parameter, self._entropy(stage, k)) for k, parameter in enumerate(parameters)]

    def _entropy(self, stage: int, number: int) -> list[int]:
        return [self.seed, stage, self.settings.attempt, number]


# ------------------------------------------------------------------------------------------------ what may be simulated


def alpha_of_each(settings: ResolvedBounds, policies: int, units: Units, signals: int = 0) -> float:
    """With what probability each single bound, below or above, may be wrong for all of a task to be right at once."""
    return settings.alpha_spent / (2 * policies * (1 + len(units.budget) + signals))


def limit_episodes(
    settings: ResolvedBounds, steps: int | None, *, tasks: int, policies: int, units: Units, alpha: float
) -> ResolvedBounds:
    """As many episodes per task and policy as `steps` steps in all are enough for, at most those of the settings; as
    the usual number of steps is enough for, where nobody said anything.

    Refused if these cannot show that the safe policy is feasible, by bounds that are wrong with probability `alpha`.
    """
    once = tasks * policies * units.episode_length
    usual = USUAL_STEPS if settings.default_episodes else math.inf
    if (usual if steps is None else steps) >= once * settings.episodes:
        return settings
    fewest = fewest_episodes(alpha, units)
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


def fewest_episodes(alpha: float, units: Units) -> int:
    """How many episodes at the least possible cost show that a policy is feasible; very many if none do."""
    intervals = Intervals(units, units.episode_length, alpha)

    def show_it(episodes: int) -> bool:
        reward, *cost = units.reachable[:, 0]
        cheapest = Outcomes(np.full(episodes, reward), np.tile(cost, (episodes, 1)))
        return _no_negative_margin(*intervals.bounds(intervals.update(intervals.start(), cheapest)))

    return 1 + bisect_left(range(1, MANY), True, key=show_it)


def fewest_held_out_episodes(units: Units) -> int:
    """The same for the first episodes of a held-out task, at the boldest stake: the n with (1 - b·budget)^n ≤ error, of
    the smallest scaled budget."""
    allowed = float(units.scaled(np.append(0.0, units.budget))[1:].min())
    if allowed <= 0:
        return MANY
    return min(MANY, math.ceil(math.log(MISS_RATE) / math.log1p(-BOLDEST * min(allowed, 1.0))))


def episodes_to_show(margin: Floats, std: Floats, error: float) -> Floats:
    """[...] about how many episodes show a policy to be feasible whose scaled cost has this standard deviation and is
    this much below the budget: the n with L/(nb) + bσ²/2 = margin, L = -ln(error), at the best stake b (`one_bet`)."""
    level, margin, std = math.log(1 / error), np.maximum(margin, 1e-12), np.maximum(std, 1e-12)
    bold = level / (BOLDEST * np.maximum(margin - BOLDEST * std**2 / 2, 1e-12))
    return np.where(margin / std**2 <= BOLDEST, 2 * level * std**2 / margin**2, bold)

"""How much is simulated where nobody says how much: what a few minutes are enough for, measured and decided once.

Bounds are valid at any size; with less simulation they are wider. So what is shrunk first is what costs least: signals
have a part of the time, held-out tasks are as many as leave enough episodes for each of them, and at least as many as
their probability of breaking the bounds takes. The numbers that a plan decides on, given explicitly, make the same set
again on any machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import joblib
import numpy as np

from surefoot.bounds.conformal import fewest_held_out
from surefoot.bounds.kept_episodes import kept_lesson
from surefoot.bounds.settings import (
    DEFAULT,
    TRIED_EPISODES,
    TRIED_TASKS,
    Envelopes,
    LearnedSignals,
    ResolvedBounds,
)
from surefoot.bounds.signal_model import LOOK_TASKS
from surefoot.bounds.simulation import FIRST_PART, LOOK_PART, alpha_of_each, fewest_episodes, fewest_held_out_episodes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask
from surefoot.errors import InvalidInput
from surefoot.fan_out import can_be_sent
from surefoot.progress import Progress, silent, span
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

USUAL_MINUTES = 2.0
MOST_MINUTES = 5.0  # taken without being asked for, where fewer would certify nothing
USUAL_JOBS = 2
TOO_SHORT = 20.0  # seconds of work for which no processes are started

EPISODES = (500, 400, 300, 250, 200, 160, 120, 100, 80, 60, 50, 40, 32, 24, 16)
ENOUGH_EPISODES = 100  # for as many held-out tasks as usual; with fewer episodes, fewer tasks that have more each
LESSONS = ((200, 16), (100, 16), (100, 8), (50, 8))  # tasks and episodes that signals are learned from
LESSON_SHARE = 0.25  # of the time

PROBE_STEPS, PROBE_SECONDS, MOST_PROBED = 50, 0.5, 256
FITTING = 15.0, 900  # seconds that Gaussian processes take, and for how many tasks; as many more as tasks, cubed

Clock = Callable[[], float]


@dataclass(frozen=True)
class Speed:
    """Seconds that it takes to begin with a policy on a task, and for each episode, on average over policies."""

    begin: float
    episode: float
    steps: int  # of an episode

    def seconds(self, runs: float, episodes: float) -> float:
        """Of one core, for so many policies on tasks, with so many episodes each."""
        return runs * (self.begin + episodes * self.episode)


@dataclass(frozen=True)
class SimulationPlan:
    """Explicit settings, the processes that simulate, and the seconds that this will take, about, where these decided:
    None where nobody asked for a limit of time."""

    envelopes: Envelopes
    signals: LearnedSignals | None
    jobs: int
    seconds: float | None = None
    lines: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """For the record: what must be given to have the same set again, where time decided about it."""
        if self.seconds is None:
            return {}
        names = ("cells", "holdout", "uncovered", "attempt", "episodes")
        lesson = None if self.signals is None else {"tasks": self.signals.tasks, "episodes": self.signals.episodes}
        return {"simulation": {"envelopes": {name: getattr(self.envelopes, name) for name in names}, "signals": lesson}}


def plan_simulation(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    envelopes: Envelopes | None,
    signals: LearnedSignals | None,
    *,
    jobs: int | None = None,
    show: Progress = silent,
    keep: str | PathLike[str] | None = None,
    clock: Clock = time.perf_counter,
) -> SimulationPlan:
    """What is simulated in envelopes.minutes; what is given where these are None, or nothing must be simulated.

    Args:
        signals: how they are learned; on fewer tasks and episodes only where nobody asked for other than usual numbers.
        jobs: processes; None takes two where there is work for them.
        keep: folder of episodes of an earlier call, whose way to learn signals is kept as well.
    """
    wanted = Envelopes(minutes=USUAL_MINUTES) if envelopes is None else envelopes
    if isinstance(tasks.example, ReadableTask) or wanted.minutes is None:
        return SimulationPlan(DEFAULT if envelopes is None else envelopes, signals, jobs or 1)
    show("measuring how fast tasks are simulated", 0, 0)
    speed = measure_speed(tasks, policies, observed=signals is not None, clock=clock)
    cores = min(USUAL_JOBS, joblib.cpu_count()) if jobs is None else jobs
    work = Workload(tasks, len(policies), replace(wanted, minutes=None), speed)
    limit = 60 * wanted.minutes * cores
    if signals is not None and (signals.tasks, signals.episodes) == LESSONS[0]:
        before = None if keep is None else kept_lesson(keep, signals)
        signals = before or _lesson(work, signals, LESSON_SHARE * limit)
    found = _largest(work, signals, limit)
    most = 60 * (MOST_MINUTES if envelopes is None else wanted.minutes)
    if work.seconds(found, signals, cores) > most:
        raise _too_slow(work, found, signals, cores, wanted.minutes)
    if jobs is None and (work.seconds(found, signals, 1) < TOO_SHORT or not can_be_sent(tasks, policies)):
        cores = 1
    return SimulationPlan(
        found, signals, cores, work.seconds(found, signals, cores), _lines(work, found, signals, cores, keep)
    )


def measure_speed(
    tasks: TaskDistribution, policies: Sequence[Policy], *, observed: bool = False, clock: Clock = time.perf_counter
) -> Speed:
    """From a few episodes of every policy on one task; from the first steps of one where a whole one takes seconds."""
    task, steps = tasks.example, tasks.units.episode_length

    def took(episodes: int, upto: int) -> float:
        """Seconds, per policy."""
        began = clock()
        for policy in policies:
            task.episodes(policy, upto).run(episodes, np.random.default_rng(0), transitions=observed)
        return (clock() - began) / len(policies)

    some = min(steps, PROBE_STEPS)
    took(1, 1)  # whatever is loaded and made at first
    slow = min(took(1, some), took(1, some)) * steps / some
    if slow * len(policies) > 2 * PROBE_SECONDS:
        return Speed(0.0, slow, steps)
    one = took(1, steps)
    count = int(np.clip(PROBE_SECONDS / max(one * len(policies), 1e-9), 2, MOST_PROBED))
    each = max(took(count, steps) - one, 1e-9) / (count - 1)
    return Speed(max(one - each, 0.0), each, steps)


# ------------------------------------------------------------------------------------------------- parts, in call order


@dataclass(frozen=True)
class Workload:
    """What must be simulated for the bounds of so many policies, and how long that takes."""

    tasks: TaskDistribution
    policies: int
    wanted: Envelopes
    speed: Speed

    @property
    def simulated_policies(self) -> int:
        """Without cells only the safe one."""
        return 1 if self.wanted.cells == 0 else self.policies

    def seconds(self, envelopes: Envelopes, signals: LearnedSignals | None, cores: int) -> float:
        """By the clock."""
        settings, policies, speed = self.resolve(envelopes), self.simulated_policies, self.speed
        simulated = speed.seconds(TRIED_TASKS * self.policies, TRIED_EPISODES)
        simulated += speed.seconds(self.held_out(settings) * policies, settings.episodes)
        if self.is_sampled:
            simulated += speed.seconds(settings.sample * policies, math.floor(LOOK_PART * settings.episodes))
        if signals is not None:
            simulated += speed.seconds((signals.tasks + LOOK_TASKS) * policies, signals.episodes)
        seconds, tasks = FITTING
        return simulated / cores + (seconds * (settings.sample / tasks) ** 3 if self.is_sampled else 0.0)

    def resolve(self, envelopes: Envelopes) -> ResolvedBounds:
        return envelopes.resolve(self.tasks.example, self.tasks.shared_costs)

    def held_out(self, settings: ResolvedBounds) -> int:
        """Tasks that bounds are made or tested on with all of the episodes."""
        distribution = self.tasks.distribution
        return len(distribution.points) if isinstance(distribution, Finite) else settings.holdout

    @property
    def is_sampled(self) -> bool:
        """Whether bounds are fitted to a first sample of tasks."""
        return self.wanted.cells != 0 and not isinstance(self.tasks.distribution, Finite)

    def fewest_episodes(self) -> int:
        """With which a safe policy that costs nothing is shown to be feasible."""
        settings, units = self.resolve(self.wanted), self.tasks.units
        if self.is_sampled:
            return math.ceil(fewest_held_out_episodes(units) / FIRST_PART)
        return fewest_episodes(alpha_of_each(settings, self.simulated_policies, units), units)


def _lesson(work: Workload, signals: LearnedSignals, limit: float) -> LearnedSignals:
    """As many tasks and episodes to learn signals from as take no longer than the limit, if any do."""
    for tasks, episodes in LESSONS:
        if work.speed.seconds(tasks * work.simulated_policies, episodes) <= limit:
            break
    return replace(signals, tasks=tasks, episodes=episodes)


def _largest(work: Workload, signals: LearnedSignals | None, limit: float) -> Envelopes:
    """Explicit settings with as many episodes as the limit, in seconds of one core, is enough for; the least that make
    sense where it is not enough."""
    settings = work.resolve(work.wanted)
    usual = replace(work.wanted, cells=settings.cells, holdout=settings.holdout, uncovered=settings.uncovered)
    least = min(max(work.fewest_episodes(), EPISODES[-1]), EPISODES[0])
    stages = [(settings.holdout, least)]
    if work.is_sampled and work.wanted.holdout is None:
        fewer = min(settings.holdout, fewest_held_out(settings))
        stages = [(settings.holdout, max(least, ENOUGH_EPISODES)), (fewer, least)]
    for holdout, enough in stages:
        for episodes in (*(each for each in EPISODES if each > enough), enough):
            found = replace(usual, holdout=holdout, episodes=episodes)
            if work.seconds(found, signals, 1) <= limit:
                return found
    return found


def _too_slow(
    work: Workload, least: Envelopes, signals: LearnedSignals | None, cores: int, minutes: float
) -> InvalidInput:
    needed = work.seconds(least, signals, cores)
    return InvalidInput(
        f"minutes must be at least {math.ceil(needed / 60)} on {cores} core(s) for tasks of which "
        f"{_per_second(work.speed)} steps a second are simulated: with fewer than {least.episodes} episodes of each of "
        f"{work.policies} policies on {work.held_out(work.resolve(least))} tasks nothing can be certified, got "
        f"{minutes:g}. Say Envelopes(minutes=...), or simulate faster: make_vector, vectorised controllers, jobs",
        argument="minutes",
    )


def _lines(work: Workload, found: Envelopes, signals: LearnedSignals | None, cores: int, keep: Any) -> tuple[str, ...]:
    settings, seconds = work.resolve(found), work.seconds(found, signals, cores)
    tasks = f"{settings.episodes} episodes of each of {work.policies} policies on {work.held_out(settings)} tasks"
    others = f", {math.floor(LOOK_PART * settings.episodes)} on {settings.sample} others" if work.is_sampled else ""
    lesson = "" if signals is None else f", signals=LearnedSignals(tasks={signals.tasks}, episodes={signals.episodes})"
    given = ", ".join(f"{name}={getattr(found, name)}" for name in ("cells", "holdout", "uncovered", "episodes"))
    return (
        f"simulating will take about {span(seconds)} on {cores} core(s), {_per_second(work.speed)} steps a second on "
        f"each: {tasks}{others}. More time, narrower bounds: envelopes=Envelopes(minutes=...)",
        f"  the same numbers again on any machine: envelopes=Envelopes({given}){lesson}"
        f"{'' if keep is None else ', and keep='}",
    )


def _per_second(speed: Speed) -> str:
    """Two digits are as many as mean something."""
    return f"{float(f'{speed.steps / speed.episode:.2g}'):,.10g}"

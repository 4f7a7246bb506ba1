"""How far an adaptation of each baseline on robots goes: chosen on validation tasks, which are no test tasks, with
equally many trials for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.task import Task
from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.judging import STANDARD_ERRORS
from surefoot.methods import CONTROL_METHODS, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.runner import ask_and_tell
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

DIVERGENCES = (0.01, 0.03, 0.1, 0.3)
TASKS, ADAPTATIONS, BATCH = 6, 5, 40


@dataclass(frozen=True)
class Tuning:
    """What one method did on the validation tasks, for each divergence tried.

    Attributes:
        gains: mean over tasks of the reward after the last adaptation, beyond that of the safe policy it began with.
        unsafe: tasks on which any policy of an adaptation was above the budget, by three standard errors.
        divergence: the one that is taken.
        steps: of simulation, in all trials.
    """

    divergences: tuple[float, ...]
    gains: tuple[float, ...]
    unsafe: tuple[int, ...]
    divergence: float
    steps: int


def tune_baselines(
    tasks: TaskDistribution, policies: PolicyValueSet, *, seed: int, jobs: int = 2, progress: Progress = silent
) -> dict[str, Tuning]:
    """Every method from the safe policy on, before any meta-training: what that learns depends on the steps."""
    parameters = tasks.sample(TASKS, Stream.LOCOMOTION_VALIDATION.rng(seed))
    found = {}
    for name in CONTROL_METHODS:
        calls = [
            (policies, name, divergence, tasks.task(parameter), [seed, Stream.LOCOMOTION_VALIDATION, number])
            for divergence in DIVERGENCES
            for number, parameter in enumerate(parameters)
        ]
        trials = list(parallel_map(f"tuning, {name}", try_divergence, calls, jobs, progress))
        gains = np.array([gain for gain, _ in trials]).reshape(len(DIVERGENCES), TASKS).mean(axis=1)
        unsafe = np.array([broken for _, broken in trials]).reshape(len(DIVERGENCES), TASKS).sum(axis=1)
        steps = len(calls) * (ADAPTATIONS + 1) * BATCH * policies.units.episode_length
        chosen = choose_divergence(DIVERGENCES, gains, unsafe)
        found[name] = Tuning(DIVERGENCES, tuple(gains.tolist()), tuple(unsafe.tolist()), chosen, steps)
    return found


def choose_divergence(divergences: Sequence[float], gains: Floats, unsafe: Any) -> float:
    """Of those that were unsafe on the fewest tasks the one that gained most."""
    return float(divergences[np.lexsort((-np.asarray(gains), unsafe))[0]])


def try_divergence(
    policies: PolicyValueSet, method: str, divergence: float, task: Task, seed: list[int]
) -> tuple[float, bool]:
    """What a method gained on a task, and whether it was ever unsafe, both by the very episodes that it learned from:
    each policy has a batch of them, in which nothing about them was known when it was made."""
    episodes = (ADAPTATIONS + 1) * BATCH - 1  # one fewer than would make a policy that nobody runs
    own = learner(policies, method=method, episodes=episodes, seed=0, divergence=divergence, batch=BATCH)
    streams: dict[int, EpisodeStream] = {}

    def stream(index: int) -> EpisodeStream:
        if index not in streams:
            playing = task.episodes(own.policy(index), task.units.episode_length)
            streams[index] = EpisodeStream(playing, np.random.default_rng([*seed, index]), [BATCH], order=_ALL)
        return streams[index]

    ask_and_tell(own, EpisodePool(stream), episodes, block=BATCH)
    sums = np.stack([streams[index].episodes(0, BATCH).sums for index in sorted(streams)])  # [k, batch, 1+m]
    mean, error = sums.mean(axis=1), sums.std(axis=1, ddof=1) / np.sqrt(BATCH)
    above = mean[:, 1:] - task.units.budget - STANDARD_ERRORS * error[:, 1:]
    return float(mean[-1, 0] - mean[0, 0]), bool((above > 0).any())


# Each once; a block may hold orders beyond the end of a batch, whose episodes are looked at and not used.
_ALL = np.tile(np.arange(BATCH), 2)

"""How far an adaptation of each baseline on robots goes: chosen on validation tasks, which are no test tasks, with
equally many trials for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
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

TASKS, ADAPTATIONS, BATCH = 6, 3, 40

Options: TypeAlias = Mapping[str, Any]

# What limits an adaptation of SafeMeta is its penalty on the divergence, of the others the divergence itself.
STEPS: tuple[Options, ...] = tuple({"divergence": divergence} for divergence in (0.03, 0.1, 0.3, 1.0))
PENALTIES: tuple[Options, ...] = tuple({"divergence": 1.0, "reward_penalty": size} for size in (1.0, 0.3, 0.1, 0.03))


def grid(method: str) -> tuple[Options, ...]:
    """What is tried of a method."""
    return PENALTIES if method == "safe-meta-control" else STEPS


@dataclass(frozen=True)
class Tuning:
    """What one method did on the validation tasks, with each of the options tried.

    Attributes:
        gains: mean over tasks of the reward after the last adaptation, beyond that of the safe policy it began with.
        unsafe: tasks on which any policy of an adaptation was above the budget, by three standard errors.
        chosen: those that are taken.
        steps: of simulation, in all trials.
    """

    tried: tuple[Options, ...]
    gains: tuple[float, ...]
    unsafe: tuple[int, ...]
    chosen: Options
    steps: int


def tune_baselines(
    tasks: TaskDistribution, policies: PolicyValueSet, *, seed: int, jobs: int = 2, progress: Progress = silent
) -> dict[str, Tuning]:
    """Every method from the safe policy on, before any meta-training: what that learns depends on the steps."""
    parameters = tasks.sample(TASKS, Stream.LOCOMOTION_VALIDATION.rng(seed))
    found = {}
    for name in CONTROL_METHODS:
        tried = grid(name)
        calls = [
            (policies, name, options, tasks.task(parameter), [seed, Stream.LOCOMOTION_VALIDATION, number])
            for options in tried
            for number, parameter in enumerate(parameters)
        ]
        trials = list(parallel_map(f"tuning, {name}", try_options, calls, jobs, progress))
        gains = np.array([gain for gain, _ in trials]).reshape(len(tried), TASKS).mean(axis=1)
        unsafe = np.array([broken for _, broken in trials]).reshape(len(tried), TASKS).sum(axis=1)
        steps = len(calls) * (ADAPTATIONS + 1) * BATCH * policies.units.episode_length
        chosen = tried[best_trial(gains, unsafe)]
        found[name] = Tuning(tried, tuple(gains.tolist()), tuple(unsafe.tolist()), chosen, steps)
    return found


def best_trial(gains: Sequence[float] | Floats, unsafe: Sequence[int] | Integers) -> int:
    """Of those that were unsafe on the fewest tasks the one that gained most."""
    return int(np.lexsort((-np.asarray(gains), np.asarray(unsafe)))[0])


def try_options(
    policies: PolicyValueSet, method: str, options: Options, task: Task, seed: list[int]
) -> tuple[float, bool]:
    """What a method gained on a task, and whether it was ever unsafe, both by the very episodes that it learned from:
    each policy has a batch of them, in which nothing about them was known when it was made."""
    episodes = (ADAPTATIONS + 1) * BATCH - 1  # one fewer than would make a policy that nobody runs
    own = learner(policies, method=method, episodes=episodes, seed=0, batch=BATCH, **options)
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

"""How much risk a certified method may really take: its level, raised as far as simulated tasks allow.

The promise is joint over the task and the episodes, and tasks can be drawn and simulated at will. So the whole learner,
with its level as the one knob, is run on many of them, and levels are tried from small to large until one fails
(fixed-sequence testing, as in Angelopoulos et al., "Learn then Test", 2021; docs/guarantees.md, Theorem 12).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from surefoot.arrays import fraction
from surefoot.cmdp.task import ReadableTask
from surefoot.errors import InvalidInput
from surefoot.fan_out import Workers, check_jobs, workers
from surefoot.learning.certified.calibrated import Calibration, at_level, raised
from surefoot.learning.certified.choice import EVIDENCE
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.runner import run_learner
from surefoot.tasks.task_distribution import TaskDistribution

LEVELS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0)  # in risks
FALLING_LEVELS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # with thresholds that are higher for most of the time
LARGEST_LEVEL = 0.9
ROUND, BATCH = 100, 10  # runs after which it is looked whether there are too many, and per unit of parallel work


def calibrate(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    *,
    method: str,
    episodes: int,
    risk: float = 0.05,
    runs: int = 2000,
    levels: Sequence[float] | None = None,
    error: float = 0.0,
    seed: int,
    horizon: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    **options: Any,
) -> Calibration:
    """The largest of some levels at which a method keeps its promise on simulated tasks.

    Hand the result to `learner` or `adapt` as `calibration=`. What it promises is joint over the calibration, a task
    drawn from `tasks` and at most `episodes` episodes on it: with probability at least 1 - risk nothing unsafe is
    deployed. Levels, runs and error must be chosen before anything of the result is known.

    Where one calibration is to serve for many deployments, a part of the risk may be set aside as `error`: with
    probability at least 1 - error over the calibration alone, each of them has a risk of at most risk - error.

    Args:
        tasks: the distribution that tasks at hand are drawn from; their values must be readable.
        method, horizon, options: as for `learner`; a method with cells. With `declared=episodes` thresholds fall
            towards the last episode, and larger levels may pass.
        runs: fresh simulated tasks at each level. A level passes if with one more unsafe task among one more run
            their share is at most the risk; with an error, if so few unsafe ones have at most this probability
            at a risk above risk - error. More runs let larger levels pass.
        levels: nominal levels to try, increasing; by default 1.2 to 6 times the risk, with `declared` 2 to 8 times.
        error: probability that a level passes whose own risk exceeds risk - error; 0 for the joint promise alone.
        progress: called with (what, done, all) after every few runs.
    """
    check_jobs(jobs)
    chosen = _increasing(levels, risk, LEVELS if options.get("declared") is None else FALLING_LEVELS)
    untried = _untried(policies, tasks, method, episodes, risk, runs, error, horizon, options)
    trial = _Trial(policies, tasks, untried, seed)
    with workers(jobs) as ready:
        return raised(untried, chosen, lambda level: trial.unsafe(level, ready, progress or silent))


def _increasing(levels: Sequence[float] | None, risk: float, usual: Sequence[float]) -> list[float]:
    if levels is None:
        return [factor * risk for factor in usual if factor * risk <= LARGEST_LEVEL]
    chosen = [fraction("levels", level) for level in levels]
    if not chosen or any(later <= earlier for earlier, later in pairwise(chosen)):
        raise InvalidInput(f"levels must be increasing numbers, got {levels!r}")
    return chosen


def _untried(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    method: str,
    episodes: int,
    risk: float,
    runs: int,
    error: float,
    horizon: int | None,
    options: dict[str, Any],
) -> Calibration:
    """A calibration before its first level, of something that can be calibrated."""
    if method not in EVIDENCE:
        raise InvalidInput(f"method must have cells to rule out, {', '.join(EVIDENCE)}, got {method!r}")
    if "calibration" in options:
        raise InvalidInput("options must not hold a calibration, which is what is made here")
    if not isinstance(tasks.task(tasks.sample(1, np.random.default_rng(0))[0]), ReadableTask):
        raise InvalidInput("tasks must be tables, whose values are known: those of a simulator cannot be counted")
    if tasks.digest() != policies.task_digest:
        raise InvalidInput("tasks must be those that the policy set was trained on, got others")
    risk = fraction("risk", risk)
    steps = policies.units.episode_length if horizon is None else horizon
    found = Calibration(method, episodes, risk, error, None, runs, (), steps, policies.digest(), dict(options))
    if not found.passes(0):
        least = math.ceil(1 / risk - 1 if error == 0 else math.log(error) / math.log1p(error - risk))
        raise InvalidInput(f"runs must be at least {least}, or not even 0 unsafe tasks would do, got {runs}")
    return found


@dataclass(frozen=True, eq=False)
class _Trial:
    """Runs of a learner at any level, the same tasks and seeds at each."""

    policies: PolicyValueSet
    tasks: TaskDistribution
    found: Calibration
    seed: int

    def unsafe(self, level: float, ready: Workers, show: Progress) -> int:
        """Unsafe tasks among all runs, or among the first of them if these are too many already."""
        runs, count = self.found.runs, 0
        for first in range(0, runs, ROUND):
            show(f"level {level:g}", first, runs)
            last = min(first + ROUND, runs)
            calls = [(level, range(k, min(k + BATCH, last))) for k in range(first, last, BATCH)]
            count += sum(ready.each(f"level {level:g}", self._batch, calls))
            if not self.found.passes(count):
                break
        show(f"level {level:g}", runs, runs)
        return count

    def _batch(self, level: float, numbers: range) -> int:
        return sum(self._is_unsafe(level, number) for number in numbers)

    def _is_unsafe(self, level: float, number: int) -> bool:
        """Whether anything deployed on a task breaks a budget, or the safe policy would, in which every run may end."""
        drawn = np.random.SeedSequence(self.seed, spawn_key=(0, number))
        task = self.tasks.task(self.tasks.sample(1, np.random.default_rng(drawn))[0])
        seed = int(np.random.SeedSequence(self.seed, spawn_key=(1, number)).generate_state(1)[0])
        chosen = learner(
            self.policies,
            method=self.found.method,
            risk=self.found.risk,
            seed=seed,
            horizon=self.found.horizon,
            **self.found.options,
        )
        raised = Learner(at_level(cast(Certified, chosen.method), level), seed=seed, horizon=chosen.horizon)
        run = run_learner(raised, task, episodes=self.found.episodes, seed=seed, optimal_reward=math.nan)
        return run.unsafe_episodes > 0 or bool((task.values(self.policies.safe_policy).margin < -run.rounding).any())

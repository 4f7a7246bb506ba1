"""How much risk a certified method may really take: its level, raised as far as simulated tasks allow.

The promise is joint over the task and the episodes, and tasks can be drawn and simulated at will. So the whole learner,
with its level as the one knob, is run on many of them, and levels are tried from small to large until one fails
(fixed-sequence testing, as in Angelopoulos et al., "Learn then Test", 2021; docs/guarantees.md, Theorem 12).
A calibration keeps its seed and the numbers of its unsafe runs, so that anybody can count again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from surefoot.arrays import check_int, check_unit_interval
from surefoot.cmdp.task import ReadableTask
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.fan_out import Workers, check_jobs, workers
from surefoot.learning.certified.calibrated import MOST_RUNS, Calibration, raised
from surefoot.learning.certified.choice import EVIDENCE, at_level
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.runner import run_learner
from surefoot.tasks.task_distribution import TaskDistribution

LEVELS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0)  # in risks
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
    attempt: int = 1,
    seed: int,
    horizon: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    **options: Any,
) -> Calibration:
    """The largest of some levels at which a method keeps its promise on simulated tasks.

    Hand the result to `learner` or `adapt` as `calibration=`. What it promises is joint over the calibration, a task
    drawn from `tasks` and at most `episodes` episodes on it: with probability at least 1 - risk nothing unsafe is
    deployed. Levels, runs and error must be chosen before anything of the result is known, and this is done once.
    Whoever calibrates again because of what was found, with another seed, other levels, runs, options or policies,
    makes another attempt and says so: passing a later one off as the first breaks the promise.

    Where one calibration is to serve for many deployments, a part of the risk may be set aside as `error`: with
    probability at least 1 - error over the calibration alone, each of them has a risk of at most risk - error.

    Args:
        tasks: the distribution that tasks at hand are drawn from; their values must be readable.
        method, horizon, options: as for `learner`; a method with cells.
        runs: fresh simulated tasks at each level. A level passes if with one more unsafe task among one more run
            their share is at most the risk (and less, by how little attempts cost, unless this is the only one); with
            an error, if so few unsafe ones have at most this probability at a risk above risk - error. More runs let
            larger levels pass.
        levels: nominal levels to try, increasing; by default 1.2 to 6 times the risk.
        error: probability that a level passes whose own risk exceeds risk - error; 0 for the joint promise alone.
        attempt: 1, and one more each time; a later one asks for fewer unsafe tasks, so that all of them together keep
            to the risk. 0 if there will be no other, whatever this one says: then a few more may be unsafe.
        progress: called with (what, done, all) after every few runs.
    """
    check_jobs(jobs)
    chosen = _increasing(levels, risk)
    untried = _initial_calibration(
        policies, tasks, method, episodes, risk, runs, error, attempt, seed, horizon, options
    )
    trial, unsafe = _CalibrationRuns(policies, tasks, untried), []
    with workers(jobs) as ready:

        def count(level: float) -> int:
            unsafe.append(trial.unsafe(level, ready, progress or silent))
            return len(unsafe[-1])

        found = raised(untried, chosen, count)
    return replace(found, unsafe_runs=tuple(unsafe), standing="counted")


def recount(
    found: Calibration,
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    *,
    runs: int | None = None,
    seed: int,
    jobs: int = 2,
    progress: Progress | None = None,
) -> Calibration:
    """The same calibration, recounted: some of its runs are computed again at every level that passed.

    If a share f of the runs is not as it says, n of them show it but with probability (1 - f)^n. They do not show how
    many attempts there were, nor that its seed was not one of many: who made it has to be believed in that.

    Args:
        policies, tasks: those that it was made with.
        runs: how many, at least ln(risk)/ln(1 - risk), which is the default: a calibration of which a share `risk` is
            wrong then passes with at most the probability `risk`.
        seed: of which runs; whoever made the calibration must not have known it.

    Raises:
        ArtifactError: a run is not as the calibration says.
    """
    check_jobs(jobs)
    drawn = np.random.default_rng(seed).choice(found.runs, _enough(found, runs), replace=False, shuffle=False)
    numbers = sorted(drawn.tolist())
    _check_recountable(found, policies, tasks)
    trial = _CalibrationRuns(policies, tasks, found)
    with workers(jobs) as ready:
        for level, told in zip(found.passed, found.unsafe_runs or (), strict=False):
            unsafe = set(trial.unsafe_among(numbers, level, ready, progress or silent))
            wrong = unsafe ^ (set(told) & set(numbers))
            if wrong:
                raise ArtifactError(
                    f"calibration: {len(wrong)} of {len(numbers)} runs computed again at level {level:g} are not as it "
                    f"says: run {min(wrong)} is {'unsafe' if min(wrong) in unsafe else 'not unsafe'}"
                )
    return replace(found, standing="recounted")


def least_recount(risk: float, runs: int) -> int:
    """Runs of which none is wrong, if a share `risk` of all is, with at most the probability `risk`."""
    return min(runs, math.ceil(math.log(risk) / math.log1p(-risk)))


def _enough(found: Calibration, runs: int | None) -> int:
    least = least_recount(found.risk, found.runs)
    if runs is None:
        return least
    if not least <= check_int("runs", runs) <= found.runs:
        raise InvalidInput(
            f"runs must be {least} to {found.runs:,} to recount this calibration of risk {found.risk:g}, got {runs}"
        )
    return runs


def _check_recountable(found: Calibration, policies: PolicyValueSet, tasks: TaskDistribution) -> None:
    if found.level is None:
        raise InvalidInput("calibration must have passed at some level to be recounted, got one that passed at none")
    if found.seed is None or found.unsafe_runs is None:
        raise InvalidInput(
            "calibration must say its seed and unsafe_runs to be recounted, got one without: make it again"
        )
    if found.digest != policies.digest():
        raise InvalidInput("calibration must be for this policy set, got one for another")
    _check_tasks(policies, tasks)


def _check_tasks(policies: PolicyValueSet, tasks: TaskDistribution) -> None:
    if not isinstance(tasks.task(tasks.sample(1, np.random.default_rng(0))[0]), ReadableTask):
        raise InvalidInput("tasks must be tables, whose values are known: those of a simulator cannot be counted")
    if tasks.digest() != policies.task_digest:
        raise InvalidInput("tasks must be those that the policy set was trained on, got others")


def _increasing(levels: Sequence[float] | None, risk: float) -> list[float]:
    if levels is None:
        return [factor * risk for factor in LEVELS if factor * risk <= LARGEST_LEVEL]
    chosen = [check_unit_interval("levels", level) for level in levels]
    if not chosen or any(later <= earlier for earlier, later in pairwise(chosen)):
        raise InvalidInput(f"levels must be increasing numbers, got {levels!r}")
    return chosen


def _initial_calibration(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    method: str,
    episodes: int,
    risk: float,
    runs: int,
    error: float,
    attempt: int,
    seed: int,
    horizon: int | None,
    options: dict[str, Any],
) -> Calibration:
    """A calibration before its first level, of something that can be calibrated."""
    if method not in EVIDENCE:
        raise InvalidInput(f"method must have cells to rule out, {', '.join(EVIDENCE)}, got {method!r}")
    if "calibration" in options:
        raise InvalidInput("options must not hold a calibration, which is what is made here")
    _check_tasks(policies, tasks)
    found = Calibration(
        method,
        episodes,
        check_unit_interval("risk", risk),
        error,
        None,
        runs,
        (),
        policies.units.steps(horizon),
        policies.digest(),
        dict(options),
        attempt,
        check_int("seed", seed, least=0),
        f"{_in_words(tasks)}, digest {tasks.digest()}",
    )
    if not found.passes(0):
        least = bisect_left(range(1, MOST_RUNS), True, key=lambda runs: replace(found, runs=runs).passes(0)) + 1
        raise InvalidInput(f"runs must be at least {least:,}, or not even 0 unsafe tasks would do, got {runs:,}")
    return found


def _in_words(tasks: TaskDistribution) -> str:
    """Name and arguments of the family, if it has a recipe."""
    arguments = ", ".join(f"{name} {value}" for name, value in tasks.recipe.items() if name != "family")
    name = str(tasks.recipe.get("family", "tasks without a recipe"))
    return f"{name} ({arguments})" if arguments else name


@dataclass(frozen=True, eq=False)
class _CalibrationRuns:
    """Runs of a learner at any level, the same tasks and seeds at each."""

    policies: PolicyValueSet
    tasks: TaskDistribution
    found: Calibration

    def unsafe(self, level: float, ready: Workers, show: Progress) -> tuple[int, ...]:
        """Numbers of the unsafe runs among all, or among the first of them if these are too many already."""
        runs, unsafe = self.found.runs, list[int]()
        for first in range(0, runs, ROUND):
            show(f"level {level:g}", first, runs)
            unsafe += self.unsafe_among(range(first, min(first + ROUND, runs)), level, ready)
            if not self.found.passes(len(unsafe)):
                break
        show(f"level {level:g}", runs, runs)
        return tuple(unsafe)

    def unsafe_among(
        self, numbers: Sequence[int], level: float, ready: Workers, show: Progress = silent
    ) -> Iterable[int]:
        calls = [(level, numbers[k : k + BATCH]) for k in range(0, len(numbers), BATCH)]
        for batch in ready.map(f"level {level:g}", self._batch, calls, show):
            yield from batch

    def _batch(self, level: float, numbers: Sequence[int]) -> list[int]:
        return [number for number in numbers if self._is_unsafe(level, number)]

    def _is_unsafe(self, level: float, number: int) -> bool:
        """Whether anything deployed on a task breaks a budget, or the safe policy would, in which every run may end."""
        task = self.tasks.task(self.tasks.sample(1, np.random.default_rng(self._stream(0, number)))[0])
        seed = int(self._stream(1, number).generate_state(1)[0])
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

    def _stream(self, stage: int, number: int) -> np.random.SeedSequence:
        """Random numbers of a run; a later attempt has others, also with the same seed."""
        later = (self.found.attempt,) if self.found.attempt > 1 else ()
        return np.random.SeedSequence(self.found.seed, spawn_key=(stage, number, *later))

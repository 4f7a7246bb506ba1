"""How bold a method may be: its setting, moved along a path from cautious to bold as far as simulated tasks allow.

The promise is joint over the task and the episodes, and tasks can be drawn and simulated at will. So the whole learner
is run on many of them at every setting, what it deployed is judged, and settings are taken in their order until one has
too many unsafe tasks (fixed-sequence testing, as in Angelopoulos et al., "Learn then Test", 2021; docs/guarantees.md,
Theorem 12). The learner needs no proof of its own, and the tasks need not be those of training: a slower and more
faithful simulator will do. A calibration keeps its seed and the numbers of its unsafe runs, so that anybody can count
again.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import check_int, check_unit_interval
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.cmdp.wording import setting_in_words
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.fan_out import Workers, check_jobs, workers
from surefoot.files import write_file
from surefoot.learning.calibrated import (
    MOST_RUNS,
    Calibration,
    Setting,
    check_setting,
    fixed_sequence_test,
    options_at,
)
from surefoot.learning.learner import Learner
from surefoot.learning.spec import MethodSpec
from surefoot.methods import learner, spec_of
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.judge import SAFE_ALONE, Judge
from surefoot.simulate.pool import EpisodeStream
from surefoot.simulate.runner import ROUNDING, simulate
from surefoot.tasks.task_distribution import TaskDistribution

ROUND, BATCH = 100, 10  # runs after which it is looked whether there are too many, and per unit of parallel work
JUDGE_SHARE = 0.1  # of the risk, for judging where values are not exact
JUDGED_ON = 8000  # fresh episodes of each policy, at the most

TASKS, RUNS = range(2)  # random streams of a calibration

# (whether anything unsafe was deployed, mean reward of an episode beyond that of the safe policy)
Outcome: TypeAlias = tuple[bool, float]


def calibrate(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    *,
    method: str | MethodSpec,
    episodes: int,
    risk: float = 0.05,
    runs: int = 600,
    path: Sequence[Setting] | None = None,
    levels: Sequence[float] | None = None,
    error: float = 0.0,
    attempt: int = 1,
    judged_on: int = JUDGED_ON,
    abandoned: float = 0.0,
    reserve: float = 0.0,
    seed: int,
    horizon: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    record: str | PathLike[str] | None = None,
    **options: Any,
) -> Calibration:
    """The boldest of some settings at which a method keeps its promise on simulated tasks, for `calibration=` of
    `learner` and `adapt`.

    Promised, jointly over the calibration, a task drawn from `tasks` and at most `episodes` episodes on it: with
    probability at least 1 - risk nothing unsafe is deployed. Everything here must be chosen before anything of the
    result is known, and this is done once: whoever calibrates again because of what was found makes another `attempt`.

    Args:
        tasks: that the system at hand is drawn from, in the units of the policy set; others than in training will do.
        method, horizon, options: as for `learner`; a method of one's own has a `path`, or one is given here.
        runs: fresh simulated tasks at each setting; more of them let bolder settings pass (`Calibration.allowed`).
        path: settings from cautious to bold, nominal levels or options by name; by default the method's own.
        levels: a path of nominal levels, increasing.
        error: part of the risk, for one calibration that serves many deployments: with probability 1 - error over it
            alone each of them has a risk of at most risk - error. 0 for the joint promise.
        attempt: 1, and one more each time, with fewer unsafe tasks allowed; 0 if there will be no other, whatever
            this one says.
        judged_on: where values cannot be read, the most fresh episodes of each policy on which a task is judged; what
            they do not show to be safe counts as unsafe.
        abandoned: share of the episodes without an outcome; without it the first such ends in the safe policy.
        reserve: part of the risk for the method as it is proved, which takes over after the last episode.
        record: file to which runs are written as they come; those that are in it are not simulated again.
    """
    check_jobs(jobs)
    spec = spec_of(advice(policies).method if method == "certified" else method)
    parts = {"error": error, "abandoned": abandoned, "reserve": reserve}
    counts = {"runs": runs, "attempt": attempt, "seed": seed, "judged_on": judged_on}
    untried = _untried(spec, policies, tasks, episodes, risk, policies.units.steps(horizon), options, parts, counts)
    own = method if isinstance(method, MethodSpec) else spec.name
    trial = CalibrationRuns(own, policies, tasks, untried, _path(spec, policies, risk, path, levels))
    trial.check_settings()
    with workers(jobs) as ready:
        return _count(trial, ready, _Record(record, trial), progress or silent)


def _count(trial: CalibrationRuns, ready: Workers, record: _Record, show: Progress) -> Calibration:
    """Outcomes of the runs at every setting. A setting is given up once it has too many unsafe tasks, with all that are
    bolder, whatever these would have shown."""
    runs, alive = trial.found.runs, len(trial.path)
    outcomes: list[list[Outcome]] = [[] for _ in trial.path]
    for first in range(0, runs, ROUND):
        numbers = range(first, min(first + ROUND, runs))
        show(_so_far(trial, outcomes, alive), first, runs)
        for row in record.rows(trial, numbers, alive, ready):
            for each, outcome in zip(outcomes, row, strict=False):
                each.append(outcome)
        failed = (k for k in range(alive) if not trial.found.passes(sum(unsafe for unsafe, _ in outcomes[k])))
        alive = next(failed, alive)
        if alive == 0:
            break
    show(_so_far(trial, outcomes, alive), runs, runs)
    unsafe = [tuple(n for n, (is_unsafe, _) in enumerate(each) if is_unsafe) for each in outcomes]
    found = fixed_sequence_test(trial.found, trial.path, lambda setting: len(unsafe[trial.path.index(setting)]))
    tried = len(found.counts)
    gains = tuple(float(np.mean([gain for _, gain in each])) for each in outcomes[:tried])
    return replace(found, unsafe_runs=tuple(unsafe[:tried]), gains=gains, standing="counted")


def _so_far(trial: CalibrationRuns, outcomes: Sequence[Sequence[Outcome]], alive: int) -> str:
    if not alive:
        return "no setting is left"
    unsafe = sum(each for each, _ in outcomes[alive - 1])
    return f"{setting_in_words(trial.path[alive - 1])}: {unsafe} unsafe, {trial.found.allowed} allowed"


class _Record:
    """Runs in a file, a line each as they come, below one that says of what: a calibration that was interrupted goes on
    where it ended."""

    def __init__(self, path: str | PathLike[str] | None, trial: CalibrationRuns) -> None:
        self._path, self._known = None if path is None else Path(path), dict[int, list[Outcome]]()
        if self._path is None:
            return
        declared = json.dumps({**trial.found.plain(), "path": trial.path}, sort_keys=True)
        if not self._path.exists():
            write_file(self._path, declared.encode() + b"\n")
        first, *lines = self._path.read_text("utf-8").split("\n")
        if first != declared:
            raise InvalidInput(f"record must be of this calibration, got {self._path}, which is of another: remove it")
        whole = [line for line in lines[:-1] if line]  # the last one may have been cut off
        write_file(self._path, "\n".join([first, *whole, ""]).encode())
        for line in whole:
            number, row = json.loads(line)
            self._known[number] = [(bool(unsafe), float(reward)) for unsafe, reward in row]

    def rows(
        self, trial: CalibrationRuns, numbers: Sequence[int], alive: int, ready: Workers
    ) -> Iterator[Sequence[Outcome]]:
        missing = [number for number in numbers if number not in self._known]
        yield from (self._known[number] for number in numbers if number in self._known)
        for number, row in zip(missing, trial.rows(missing, alive, ready), strict=True):
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([number, row]) + "\n")
            yield row


def recount(
    found: Calibration,
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    *,
    method: MethodSpec | None = None,
    runs: int | None = None,
    seed: int,
    jobs: int = 2,
    progress: Progress | None = None,
) -> Calibration:
    """The same calibration, recounted: some of its runs are computed again at every setting that passed.

    If a share f of the runs is not as it says, n of them show it but with probability (1 - f)^n. They do not show how
    many attempts there were, nor that its seed was not one of many: who made it has to be believed in that.

    Args:
        policies, tasks: those that it was made with.
        method: that it was made with, if it is one's own.
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
    trial = CalibrationRuns(method or found.method, policies, tasks, found, found.passed)
    rows: list[Sequence[Outcome]] = []
    with workers(jobs) as ready:
        rows.extend(trial.rows(numbers, len(trial.path), ready, progress or silent))
    for k, (setting, told) in enumerate(zip(trial.path, found.unsafe_runs or (), strict=False)):
        unsafe = {number for number, row in zip(numbers, rows, strict=True) if row[k][0]}
        wrong = unsafe ^ (set(told) & set(numbers))
        if wrong:
            raise ArtifactError(
                f"calibration: {len(wrong)} of {len(numbers)} runs computed again at {setting_in_words(setting)} are "
                f"not as it says: run {min(wrong)} is {'unsafe' if min(wrong) in unsafe else 'not unsafe'}"
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
    if found.tasks is not None and not found.tasks.endswith(tasks.digest()):
        raise InvalidInput(f"tasks must be those of the calibration, {found.tasks}, got {_in_words(tasks)}")


def _untried(
    spec: MethodSpec,
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    episodes: int,
    risk: float,
    steps: int,
    options: Mapping[str, Any],
    parts: Mapping[str, float],
    counts: Mapping[str, int],
) -> Calibration:
    """A calibration before its first setting, of something that can be calibrated."""
    if "calibration" in options:
        raise InvalidInput("options must not hold a calibration, which is what is made here")
    example, judged_on = _example(tasks), check_int("judged_on", counts["judged_on"])
    if not policies.units.same_as(example.units):
        raise InvalidInput(
            "tasks must share discount, horizon, ranges and budgets with the policy set: "
            f"{policies.units}, got {example.units}"
        )
    if parts["reserve"] and not spec.certified:
        raise InvalidInput(
            f"reserve must be 0 for {spec.name}, without a proof to fall back to, got {parts['reserve']}"
        )
    exact = isinstance(example, ReadableTask)
    found = Calibration(
        method=spec.name,
        episodes=check_int("episodes", episodes),
        risk=check_unit_interval("risk", risk),
        level=None,
        counts=(),
        horizon=steps,
        digest=policies.digest(),
        options=dict(options),
        tasks=f"{_in_words(tasks)}, digest {tasks.digest()}",
        judge_error=0.0 if exact else JUDGE_SHARE * risk,
        **{**parts, **counts, "judged_on": 0 if exact else judged_on},  # type: ignore[arg-type]
    )
    if not found.passes(0):
        least = bisect_left(range(1, MOST_RUNS), True, key=lambda runs: replace(found, runs=runs).passes(0)) + 1
        raise InvalidInput(f"runs must be at least {least:,}, or not even 0 unsafe tasks would do, got {found.runs:,}")
    return found


def _path(
    spec: MethodSpec,
    policies: PolicyValueSet,
    risk: float,
    path: Sequence[Setting] | None,
    levels: Sequence[float] | None,
) -> tuple[Setting, ...]:
    if path is not None and levels is not None:
        raise InvalidInput("path and levels must not both be given: levels are a path")
    given = levels if path is None else path
    if given is None:
        if spec.path is None:
            raise InvalidInput(
                f"method must be one that says what to calibrate, or with a path of settings, got {spec.name!r}"
            )
        given = spec.path(policies, risk)
    chosen = tuple(check_setting(setting) for setting in given)
    numbers = [each for each in chosen if not isinstance(each, Mapping)]
    if not chosen or any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidInput(f"levels must be increasing numbers, got {given!r}")
    return chosen


def _example(tasks: TaskDistribution) -> Task:
    example: Task = tasks.task(tasks.sample(1, np.random.default_rng(0))[0])
    return example


def _in_words(tasks: TaskDistribution) -> str:
    """Name and arguments of the family, if it has a recipe."""
    arguments = ", ".join(f"{name} {value}" for name, value in tasks.recipe.items() if name != "family")
    name = str(tasks.recipe.get("family", "tasks without a recipe"))
    return f"{name} ({arguments})" if arguments else name


@dataclass(frozen=True, eq=False)
class CalibrationRuns:
    """Runs of a learner at the settings of a path, the same tasks and seeds at each."""

    method: str | MethodSpec
    policies: PolicyValueSet
    tasks: TaskDistribution
    found: Calibration
    path: tuple[Setting, ...]

    def check_settings(self) -> None:
        """Refuse what no learner can be made with before anything is simulated."""
        for setting in self.path:
            self._learner(setting, 0)

    def rows(
        self, numbers: Sequence[int], alive: int, ready: Workers, show: Progress = silent
    ) -> Iterator[list[Outcome]]:
        """The outcomes of each run at the first `alive` settings."""
        calls = [(numbers[k : k + BATCH], alive) for k in range(0, len(numbers), BATCH)]
        for batch in ready.map("runs", self._batch, calls, show):
            yield from batch

    def _batch(self, numbers: Sequence[int], alive: int) -> list[list[Outcome]]:
        return [self._run(number, alive) for number in numbers]

    def _run(self, number: int, alive: int) -> list[Outcome]:
        """A task counts as unsafe if anything deployed on it is not shown to keep the budgets, or if the safe policy is
        not, in which every run may end."""
        task = self.tasks.task(self.tasks.sample(1, np.random.default_rng(self._stream(TASKS, number)))[0])
        seed = int(self._stream(RUNS, number).generate_state(1)[0])
        units, policies = self.policies.units, self.policies.policies
        judge = Judge(
            task,
            policies,
            steps=self.found.horizon,
            error=self.found.judge_error or 0.5,  # no use is made of it where values are exact
            most=self.found.judged_on,
            seed=seed,
            rounding=ROUNDING * min(1.0, float(units.cost_scale.min())),
        )
        # Simulating takes longest where values cannot be read; where they can, there may be too many episodes to keep.
        shared = None if isinstance(task, ReadableTask) else dict[int, EpisodeStream]()
        return [self._outcome(setting, task, seed, judge, shared) for setting in self.path[:alive]]

    def _outcome(
        self, setting: Setting, task: Task, seed: int, judge: Judge, shared: dict[int, EpisodeStream] | None
    ) -> Outcome:
        chosen, episodes, lost = self._learner(setting, seed), self.found.episodes, self.found.abandoned
        deployed = simulate(chosen, task, episodes=episodes, seed=seed, abandoned=lost, shared=shared)
        mixtures = [judge.mixture(chosen, each) for _, each in deployed]
        lengths = np.diff([begin for begin, _ in deployed], append=episodes)
        reward = float(np.dot(lengths, [judge.reward(each) for each in mixtures])) / episodes
        return not judge.shows_safe([SAFE_ALONE, *mixtures]), reward - judge.reward(SAFE_ALONE)

    def _learner(self, setting: Setting, seed: int) -> Learner:
        return learner(
            self.policies,
            method=self.method,
            episodes=self.found.episodes,
            risk=self.found.risk,
            seed=seed,
            horizon=self.found.horizon,
            **{**self.found.options, **options_at(setting)},
        )

    def _stream(self, stage: int, number: int) -> np.random.SeedSequence:
        """Random numbers of a run; a later attempt has others, also with the same seed."""
        later = (self.found.attempt,) if self.found.attempt > 1 else ()
        return np.random.SeedSequence(self.found.seed, spawn_key=(stage, number, *later))

"""Runs of a learner on simulated tasks, at every setting of a path: what came of them, and how they are kept.

A run is a task with its random numbers, the same at all settings, so that only the settings differ. Whatever computes
it, in this process, in another or on a cluster, gives the same outcomes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.fan_out import Workers
from surefoot.files import write_file
from surefoot.learning.calibrated import Calibration, Setting, options_at
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.learning.spec import MethodSpec
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.judge import SAFE_ALONE, Judge
from surefoot.simulate.pool import SharedStreams
from surefoot.simulate.runner import ROUNDING, simulate
from surefoot.tasks.task_distribution import TaskDistribution

BATCH = 5  # runs per unit of parallel work: each carries the policy set along, and an interrupted one is lost
ENOUGH = 0.9  # of the possible gain

# Random streams of tasks and of runs on them: those of a pilot are its own, also with the seed of the calibration.
CALIBRATION, PILOT = (0, 1), (2, 3)


@dataclass(frozen=True)
class Outcome:
    """Of a run at one setting.

    Attributes:
        unsafe: whether anything that was deployed is not shown to keep the budgets, or the safe policy is not.
        gain: mean reward of an episode beyond that of the safe policy.
        reached: the first episode whose mixture gains `ENOUGH` of what is possible; None if there is none, or if it is
            not known what is possible.
    """

    unsafe: bool
    gain: float
    reached: int | None


@dataclass(frozen=True)
class TaskOutcomes:
    """A simulated task, and what came of it at each setting.

    Attributes:
        parameter: of the task.
        possible: gain of the best mixture of the policy set within the budgets; None where nobody asked for it.
        outcomes: in the order of the path; fewer once bolder settings are given up.
    """

    parameter: tuple[float, ...]
    possible: float | None
    outcomes: tuple[Outcome, ...]


# A file, a list that is empty, or neither.
Kept: TypeAlias = str | PathLike[str] | list[TaskOutcomes] | None


@dataclass(frozen=True, eq=False)
class CalibrationRuns:
    """Runs of a learner at the settings of a path, the same tasks and seeds at each.

    Attributes:
        possible: whether to find out what could be gained on each task, which takes episodes of all policies.
        streams: `CALIBRATION` or `PILOT`.
    """

    method: str | MethodSpec
    policies: PolicyValueSet
    tasks: TaskDistribution
    found: Calibration
    path: tuple[Setting, ...]
    possible: bool = False
    streams: tuple[int, int] = CALIBRATION

    def check_settings(self) -> None:
        """Refuse what no learner can be made with before anything is simulated."""
        for setting in self.path:
            self._learner(setting)

    def rows(
        self, numbers: Sequence[int], alive: int, ready: Workers, show: Progress = silent
    ) -> Iterator[TaskOutcomes]:
        """The outcomes of each run at the first `alive` settings."""
        show("runs", 0, len(numbers))
        done = 0
        for batch in self.batches(numbers, alive, ready):
            yield from batch
            done += len(batch)
            show("runs", done, len(numbers))

    def batches(self, numbers: Sequence[int], alive: int, ready: Workers) -> Iterator[list[TaskOutcomes]]:
        """The same, as they come."""
        calls = [(numbers[k : k + BATCH], alive) for k in range(0, len(numbers), BATCH)]
        return ready.map("runs", self._batch, calls)

    def _batch(self, numbers: Sequence[int], alive: int) -> list[TaskOutcomes]:
        """Methods, which hold no state, are made once for all of them."""
        methods = self.methods(alive)
        return [self.run(number, methods) for number in numbers]

    def methods(self, alive: int) -> list[Method]:
        return [self._learner(setting).method for setting in self.path[:alive]]

    def run(self, number: int, methods: Sequence[Method]) -> TaskOutcomes:
        """A task counts as unsafe if anything deployed on it is not shown to keep the budgets, or if the safe policy is
        not, in which every run may end."""
        of_tasks, of_runs = self.streams
        parameter: Floats = self.tasks.sample(1, np.random.default_rng(self._stream(of_tasks, number)))[0]
        task, seed = self.tasks.task(parameter), int(self._stream(of_runs, number).generate_state(1)[0])
        judge = Judge(
            task,
            self.policies.policies,
            steps=self.found.horizon,
            error=self.found.judge_error or 0.5,  # no use is made of it where values are exact
            most=self.found.judged_on,
            seed=seed,
            rounding=ROUNDING * min(1.0, float(self.policies.units.cost_scale.min())),
        )
        possible = judge.possible_gain() if self.possible else None
        # Simulating takes longest where values cannot be read; where they can, there may be too many episodes to keep.
        shared = None if isinstance(task, ReadableTask) else self._streams(task, seed, methods)
        outcomes = [self._outcome(method, task, seed, judge, possible, shared) for method in methods]
        return TaskOutcomes(tuple(parameter.tolist()), possible, tuple(outcomes))

    def _outcome(
        self,
        method: Method,
        task: Task,
        seed: int,
        judge: Judge,
        possible: float | None,
        shared: SharedStreams | None,
    ) -> Outcome:
        chosen = Learner(method, seed=seed, horizon=self.found.horizon)
        episodes, lost = self.found.episodes, self.found.abandoned
        deployed = simulate(chosen, task, episodes=episodes, seed=seed, abandoned=lost, shared=shared)
        begins, mixtures = [begin for begin, _ in deployed], [judge.mixture(chosen, each) for _, each in deployed]
        rewards, safe = [judge.reward(each) for each in mixtures], judge.reward(SAFE_ALONE)
        return Outcome(
            unsafe=not judge.shows_safe([SAFE_ALONE, *mixtures]),
            gain=float(np.dot(np.diff(begins, append=episodes), rewards)) / episodes - safe,
            reached=None if possible is None else _first_reaching(safe + ENOUGH * possible, begins, rewards),
        )

    def _streams(self, task: Task, seed: int, methods: Sequence[Method]) -> SharedStreams:
        return SharedStreams(
            task,
            self.policies.policies,
            steps=self.found.horizon,
            episodes=self.found.episodes,
            seed=seed,
            transitions=any(method.observes != "sums" for method in methods),
        )

    def _learner(self, setting: Setting) -> Learner:
        return learner(
            self.policies,
            method=self.method,
            episodes=self.found.episodes,
            risk=self.found.risk,
            horizon=self.found.horizon,
            **{**self.found.options, **options_at(setting)},
        )

    def _stream(self, stage: int, number: int) -> np.random.SeedSequence:
        """Random numbers of a run; a later attempt has others, also with the same seed."""
        later = (self.found.attempt,) if self.found.attempt > 1 else ()
        return np.random.SeedSequence(self.found.seed, spawn_key=(stage, number, *later))


def run_side_by_side(
    trials: Sequence[CalibrationRuns], alive: Sequence[int], numbers: Sequence[int]
) -> list[list[TaskOutcomes]]:
    """[run][trial] the outcomes of trials that differ in their methods alone, each at its first `alive` settings: a
    task is simulated and judged once for all of them."""
    methods = [trial.methods(count) for trial, count in zip(trials, alive, strict=True)]
    ends = np.cumsum([0, *alive]).tolist()
    found = []
    for number in numbers:
        row = trials[0].run(number, [method for own in methods for method in own])
        found.append([replace(row, outcomes=row.outcomes[begin:end]) for begin, end in pairwise(ends)])
    return found


def _first_reaching(enough: float, begins: Sequence[int], rewards: Sequence[float]) -> int | None:
    return next((begin for begin, reward in zip(begins, rewards, strict=True) if reward >= enough), None)


# ------------------------------------------------------------------------------------------------------ runs that stay


class Record:
    """Runs as they come, in their order: in a list, or in a file, a line each below one that says of what. A
    calibration that was interrupted goes on where its file ends.

    Attributes:
        rows: all runs so far.
    """

    def __init__(self, kept: Kept, trial: CalibrationRuns) -> None:
        if isinstance(kept, list) and kept:
            raise InvalidInput(f"record must be a file or an empty list, got a list with {len(kept)} runs")
        self.rows: list[TaskOutcomes] = kept if isinstance(kept, list) else []
        self._path = None if kept is None or isinstance(kept, list) else Path(kept)
        if self._path is None:
            return
        declared = json.dumps({**trial.found.plain(), "path": trial.path}, sort_keys=True)
        if not self._path.exists():
            write_file(self._path, declared.encode() + b"\n", argument="record")
        first, *lines = _whole_lines(self._path)
        if first != declared:
            raise InvalidInput(f"record must be of this calibration, got {self._path}, which is of another: remove it")
        self.rows.extend(read_record(self._path))
        write_file(self._path, "\n".join([first, *lines, ""]).encode(), argument="record")

    def extend(self, trial: CalibrationRuns, end: int, alive: int, ready: Workers) -> Iterator[int]:
        """Adds the runs up to `end` that are missing, at the first `alive` settings, and says how many there are."""
        for batch in trial.batches(range(len(self.rows), end), alive, ready):
            if self._path is not None:
                numbered = enumerate(batch, len(self.rows))
                lines = [json.dumps({"run": number, **asdict(row)}) + "\n" for number, row in numbered]
                with self._path.open("a", encoding="utf-8") as file:
                    file.writelines(lines)
            self.rows.extend(batch)
            yield len(self.rows)


def read_record(path: str | PathLike[str]) -> list[TaskOutcomes]:
    """The runs that `calibrate(record=path)` has written so far."""
    rows: list[TaskOutcomes] = []
    for line in _whole_lines(Path(path))[1:]:
        try:
            row = json.loads(line)
            if row.pop("run") != len(rows):
                raise ValueError("runs must follow each other")
            rows.append(_row(**row))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInput(
                f"record must hold runs as calibrate writes them, got {path}, whose line {len(rows) + 2} is none "
                f"({error}): remove it"
            ) from None
    return rows


def _row(parameter: Sequence[float], possible: float | None, outcomes: Sequence[Mapping[str, Any]]) -> TaskOutcomes:
    return TaskOutcomes(tuple(parameter), possible, tuple(Outcome(**each) for each in outcomes))


def _whole_lines(path: Path) -> list[str]:
    """The last one may have been cut off."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ArtifactError(f"record: cannot read {path}: {error.strerror or error}") from None
    return text.split("\n")[:-1] or [""]

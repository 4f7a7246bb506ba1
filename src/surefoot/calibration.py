"""How bold a method may be: its setting, moved along a path from cautious to bold as far as simulated tasks allow.

The promise is joint over the task and the episodes, and tasks can be drawn and simulated at will. So the whole learner
is run on many of them at every setting, what it deployed is judged, and settings are taken in their order until one has
too many unsafe tasks (fixed-sequence testing, as in Angelopoulos et al., "Learn then Test", 2021; docs/guarantees.md,
Theorem 12). The learner needs no proof of its own, and the tasks need not be those of training: a slower and more
faithful simulator will do. A calibration keeps its seed and the numbers of its unsafe runs, so that anybody can count
again.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from surefoot.arrays import check_int, check_unit_interval, number
from surefoot.bounds.time_limit import measure_speed
from surefoot.calibration_runs import BATCH, PILOT, CalibrationRuns, Kept, Record, TaskOutcomes, run_side_by_side
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.cmdp.wording import setting_in_words
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.fan_out import Workers, check_jobs, workers
from surefoot.learning.calibrated import MOST_RUNS, Calibration, Setting, check_setting, fixed_sequence_test
from surefoot.learning.spec import MethodSpec
from surefoot.methods import spec_of
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.pool import FIRST_CHUNK
from surefoot.tasks.task_distribution import TaskDistribution

ROUND = 100  # runs after which it is looked whether there are too many
JUDGE_SHARE = 0.1  # of the risk, for judging where values are not exact
RUNS, JUDGED_ON = 600, 8000  # fresh episodes of each policy, at the most
FEWER = (JUDGED_ON, 4000, 2000, 1000, 500, 250)  # where there is little time


def calibrate(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    *,
    method: str | MethodSpec,
    episodes: int,
    risk: float = 0.05,
    runs: int = RUNS,
    path: Sequence[Setting] | None = None,
    levels: Sequence[float] | None = None,
    error: float = 0.0,
    attempt: int = 1,
    judged_on: int = JUDGED_ON,
    minutes: float | None = None,
    abandoned: float = 0.0,
    reserve: float = 0.0,
    seed: int,
    horizon: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    record: Kept = None,
    **options: Any,
) -> Calibration:
    """The boldest setting at which a method keeps its promise on simulated tasks, for `calibration=` of `learner`.

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
        minutes: about how long it may take; decides on `runs` and `judged_on`, which make the same calibration again.
        abandoned: share of the episodes without an outcome; without it the first such ends in the safe policy.
        reserve: part of the risk for the method as it is proved, which takes over after the last episode.
        record: file to which runs are written as they come, for `report.calibration_page` too; those that are in it
            are not simulated again. Or a list to which they are appended.
    """
    check_jobs(jobs)
    spec = spec_of(advice(policies).method if method == "certified" else method)
    parts = {"error": error, "abandoned": abandoned, "reserve": reserve}
    counts = {"runs": runs, "attempt": attempt, "seed": seed, "judged_on": judged_on}
    untried = _untried(spec, policies, tasks, episodes, risk, policies.units.steps(horizon), options, parts, counts)
    if minutes is not None:
        untried = fit_to_time(untried, policies, tasks, minutes, jobs)
    own, chosen = method if isinstance(method, MethodSpec) else spec.name, _path(spec, policies, risk, path, levels)
    trial = CalibrationRuns(own, policies, tasks, untried, chosen, possible=record is not None)
    trial.check_settings()
    with workers(jobs) as ready:
        return _count(trial, ready, Record(record, trial), progress or silent)


def fit_to_time(
    found: Calibration, policies: PolicyValueSet, tasks: TaskDistribution, minutes: float, jobs: int
) -> Calibration:
    """With runs for which so many minutes are enough if every policy is deployed on every task: judged on as many
    episodes as leave twice the runs of which one may be unsafe."""
    if not number("minutes", minutes) > 0:
        raise InvalidInput(f"minutes must be positive, got {minutes}")
    if found.runs != RUNS or found.judged_on not in (0, JUDGED_ON):
        raise InvalidInput(f"minutes must be given without runs and judged_on, which it decides on, got {minutes}")
    if found.judge_error == 0:
        raise InvalidInput(f"minutes must be left out for tasks whose values are read, got {minutes}: runs decide")
    speed = measure_speed(tasks, policies.policies, observed=True)
    own, enough = max(FIRST_CHUNK, found.episodes), 2 * fewest_runs(found, 1)
    for judged_on in FEWER:
        each = speed.seconds(len(policies.policies), own + judged_on) / jobs
        if 60 * minutes >= each * enough:
            break
    least, runs = fewest_runs(found, 0), min(RUNS, int(60 * minutes / each))
    if runs < least:
        raise InvalidInput(f"minutes must be at least {math.ceil(least * each / 60)} for these tasks, got {minutes:g}")
    return replace(found, runs=runs, judged_on=judged_on)


def fewest_runs(found: Calibration, unsafe: int) -> int:
    """With which a setting passes with so many unsafe tasks."""
    return bisect_left(range(1, MOST_RUNS), True, key=lambda runs: replace(found, runs=runs).passes(unsafe)) + 1


def _count(trial: CalibrationRuns, ready: Workers, record: Record, show: Progress) -> Calibration:
    """Outcomes of the runs at every setting. A setting is given up once it has too many unsafe tasks, with all that are
    bolder, whatever these would have shown."""
    runs, alive = trial.found.runs, len(trial.path)
    show(_so_far(trial, record.rows, alive), len(record.rows), runs)
    for end in (*range(ROUND, runs, ROUND), runs):
        for done in record.extend(trial, end, alive, ready):
            show(_so_far(trial, record.rows, alive), done, runs)
        alive = _still_alive(trial, record.rows[:end], alive)
        if alive == 0:
            show("no setting is left", runs, runs)
            break
    return _test(trial, record.rows)


def calibrate_side_by_side(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    paths: Mapping[str, Sequence[Setting]],
    *,
    episodes: int,
    risk: float = 0.05,
    runs: int = 600,
    attempt: int = 1,
    judged_on: int = JUDGED_ON,
    seed: int,
    jobs: int = 2,
    progress: Progress | None = None,
) -> dict[str, Calibration]:
    """The calibration of each of some methods along its path, as `calibrate` would find it with this seed, with every
    task simulated and judged once for all of them: for comparisons. Each keeps its risk; the best of n of them, chosen
    by what they show, is an n-th attempt.
    """
    check_jobs(jobs)
    show, steps = progress or silent, policies.units.steps(None)
    parts = {"error": 0.0, "abandoned": 0.0, "reserve": 0.0}
    counts = {"runs": runs, "attempt": attempt, "seed": seed, "judged_on": judged_on}
    trials = []
    for name, path in paths.items():
        spec = spec_of(name)
        untried = _untried(spec, policies, tasks, episodes, risk, steps, {}, parts, counts)
        trials.append(CalibrationRuns(name, policies, tasks, untried, _path(spec, policies, risk, path, None)))
        trials[-1].check_settings()
    rows: list[list[TaskOutcomes]] = [[] for _ in trials]
    alive = [len(trial.path) for trial in trials]
    with workers(jobs) as ready:
        for end in (*range(ROUND, runs, ROUND), runs):
            batches = [range(begin, min(begin + BATCH, end)) for begin in range(len(rows[0]), end, BATCH)]
            for batch in ready.map("runs", partial(run_side_by_side, trials, alive), [(each,) for each in batches]):
                for own, found in zip(rows, zip(*batch, strict=True), strict=True):
                    own.extend(found)
                show("calibrating side by side", len(rows[0]), runs)
            alive = [_still_alive(*each) for each in zip(trials, rows, alive, strict=True)]
    return {name: _test(trial, own) for name, trial, own in zip(paths, trials, rows, strict=True)}


def _still_alive(trial: CalibrationRuns, rows: Sequence[TaskOutcomes], alive: int) -> int:
    """How many of the first settings have not got too many unsafe tasks."""
    return next((k for k in range(alive) if not trial.found.passes(len(_unsafe_runs(rows, k)))), alive)


def _test(trial: CalibrationRuns, rows: Sequence[TaskOutcomes]) -> Calibration:
    """What the runs allow."""
    unsafe = [_unsafe_runs(rows, k) for k in range(len(trial.path))]
    found = fixed_sequence_test(trial.found, trial.path, lambda setting: len(unsafe[trial.path.index(setting)]))
    tried = len(found.counts)
    gains = tuple(_mean_gain(rows, k) for k in range(tried))
    return replace(found, unsafe_runs=tuple(unsafe[:tried]), gains=gains, standing="counted")


def _so_far(trial: CalibrationRuns, rows: Sequence[TaskOutcomes], alive: int) -> str:
    """Of the boldest setting that is left."""
    unsafe = len(_unsafe_runs(rows, alive - 1))
    return f"{setting_in_words(trial.path[alive - 1])}: {unsafe} unsafe, {trial.found.allowed} allowed"


def _unsafe_runs(rows: Sequence[TaskOutcomes], place: int) -> tuple[int, ...]:
    """Numbers of the unsafe runs at the setting of this place on the path; a row ends where settings were given up."""
    return tuple(n for n, row in enumerate(rows) if place < len(row.outcomes) and row.outcomes[place].unsafe)


def _mean_gain(rows: Sequence[TaskOutcomes], place: int) -> float:
    return float(np.mean([row.outcomes[place].gain for row in rows if place < len(row.outcomes)]))


def choose_path(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    paths: Sequence[Sequence[Setting]],
    *,
    method: str | MethodSpec,
    episodes: int,
    risk: float = 0.05,
    runs: int = 100,
    seed: int,
    judged_on: int = JUDGED_ON,
    abandoned: float = 0.0,
    reserve: float = 0.0,
    horizon: int | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Setting, ...]:
    """The path, of several, whose boldest setting that is likely to pass earns most: for `path=` of `calibrate`.

    A pilot on tasks of its own, independent of those of a calibration with the same seed: the path is then fixed before
    anything is counted, and the calibration promises what it would of any path (docs/guarantees.md, Theorem 12c).

    Args:
        paths: each from cautious to bold, as for `calibrate`; where no setting passes, the path whose first is unsafe
            least often is taken.
        runs: simulated tasks of the pilot.
        method, episodes, risk, judged_on, abandoned, reserve, horizon, options: as for `calibrate`.
    """
    check_jobs(jobs)
    spec = spec_of(advice(policies).method if method == "certified" else method)
    parts = {"error": 0.0, "abandoned": abandoned, "reserve": reserve}
    counts = {"runs": runs, "attempt": 0, "seed": seed, "judged_on": judged_on}
    untried = _untried(spec, policies, tasks, episodes, risk, policies.units.steps(horizon), options, parts, counts)
    if not paths or any(isinstance(path, Mapping | str) or not isinstance(path, Sequence) for path in paths):
        raise InvalidInput(f"paths must be lists of settings, at least one, got {paths!r:.200}")
    chosen = [_path(spec, policies, risk, path, None) for path in paths]
    settings = _distinct([setting for path in chosen for setting in path])
    own = method if isinstance(method, MethodSpec) else spec.name
    trial = CalibrationRuns(own, policies, tasks, untried, settings, streams=PILOT)
    trial.check_settings()
    with workers(jobs) as ready:
        rows = list(trial.rows(range(runs), len(settings), ready, progress or silent))
    return max(chosen, key=lambda path: _worth_of_path(trial, rows, path))


def _distinct(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Each once; some are dictionaries, which no set can hold."""
    return tuple(setting for k, setting in enumerate(settings) if setting not in settings[:k])


def _worth_of_path(trial: CalibrationRuns, rows: Sequence[TaskOutcomes], path: Sequence[Setting]) -> tuple[float, int]:
    """What its boldest setting that passes gains; where none does, how seldom the first is unsafe."""

    def unsafe(setting: Setting) -> int:
        return len(_unsafe_runs(rows, trial.path.index(setting)))

    level = fixed_sequence_test(trial.found, path, unsafe).level
    gain = -math.inf if level is None else _mean_gain(rows, trial.path.index(level))
    return gain, -unsafe(path[0])


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
    rows: list[TaskOutcomes] = []
    with workers(jobs) as ready:
        rows.extend(trial.rows(numbers, len(trial.path), ready, progress or silent))
    for k, (setting, told) in enumerate(zip(trial.path, found.unsafe_runs or (), strict=False)):
        unsafe = {number for number, row in zip(numbers, rows, strict=True) if row.outcomes[k].unsafe}
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
        least = fewest_runs(found, 0)
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
            raise InvalidInput(f"path must be given for method {spec.name!r}, which has none of its own, got None")
        given = spec.path(policies, risk)
    chosen = tuple(check_setting(setting) for setting in given)
    numbers = [each for each in chosen if not isinstance(each, Mapping)]
    if not chosen or any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidInput(f"levels must be increasing numbers, got {given!r}")
    return _distinct(chosen)


def _example(tasks: TaskDistribution) -> Task:
    example: Task = tasks.task(tasks.sample(1, np.random.default_rng(0))[0])
    return example


def _in_words(tasks: TaskDistribution) -> str:
    """Name and arguments of the family, if it has a recipe."""
    arguments = ", ".join(f"{name} {value}" for name, value in tasks.recipe.items() if name != "family")
    name = str(tasks.recipe.get("family", "tasks without a recipe"))
    return f"{name} ({arguments})" if arguments else name

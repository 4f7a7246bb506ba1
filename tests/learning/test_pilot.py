"""A pilot that chooses among paths, on tasks that no calibration sees."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pytest

import surefoot as sf
from contracts.spending import OpenSpending, spending_set
from contracts.test_own_method import HALFWAY
from surefoot.calibration_runs import CalibrationRuns, TaskOutcomes
from surefoot.errors import InvalidInput
from surefoot.fan_out import workers
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family

POLICIES = spending_set(cells=40)
TASKS = family(lambda hazard: OpenSpending(float(hazard[0])), Uniform(0.2, 0.8))
GIVEN: dict[str, Any] = {"method": HALFWAY, "episodes": 40, "risk": 0.3, "runs": 20, "seed": 2, "jobs": 1}
CAUTIOUS = ({"share": 0.05}, {"share": 0.1})
BETTER = ({"share": 0.1}, {"share": 0.2}, {"share": 1.0})  # the last is too bold, the one before it is the best
RASH = ({"share": 1.0},)


def test_the_path_whose_boldest_likely_setting_earns_most_is_chosen() -> None:
    for paths in ([CAUTIOUS, BETTER, RASH], [RASH, BETTER, CAUTIOUS]):
        assert sf.choose_path(POLICIES, TASKS, paths, **GIVEN) == BETTER
    found = sf.calibrate(POLICIES, TASKS, path=BETTER, **GIVEN)
    assert found.level == {"share": 0.2}, "and what is chosen can be calibrated"


def test_where_nothing_passes_the_least_unsafe_path_is_taken() -> None:
    paths = [RASH, ({"share": 0.7},)]
    assert all(sf.calibrate(POLICIES, TASKS, path=path, **GIVEN).level is None for path in paths)
    assert sf.choose_path(POLICIES, TASKS, paths, **GIVEN) == paths[1]


@pytest.mark.long
def test_equal_paths_from_one_process_and_from_two() -> None:
    paths = [CAUTIOUS, BETTER]
    with joblib.parallel_config(backend="threading"):
        assert sf.choose_path(POLICIES, TASKS, paths, **{**GIVEN, "jobs": 2}) == BETTER
    assert sf.choose_path(POLICIES, TASKS, paths, **{**GIVEN, "jobs": 2}) == BETTER


def test_its_tasks_and_runs_are_its_own_even_with_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task and no seed of a pilot is one of a calibration."""
    tasks: list[float] = []
    seeds: list[int] = []
    run, stream = CalibrationRuns.run, CalibrationRuns._stream

    def note_task(self: CalibrationRuns, number: int, alive: int) -> TaskOutcomes:
        row = run(self, number, alive)
        tasks.append(row.parameter[0])
        return row

    def note_seed(self: CalibrationRuns, stage: int, number: int) -> np.random.SeedSequence:
        found = stream(self, stage, number)
        seeds.append(int(found.generate_state(1)[0]))
        return found

    monkeypatch.setattr(CalibrationRuns, "run", note_task)
    monkeypatch.setattr(CalibrationRuns, "_stream", note_seed)
    sf.choose_path(POLICIES, TASKS, [CAUTIOUS], **GIVEN)
    for attempt in (0, 1, 2):
        sf.calibrate(POLICIES, TASKS, path=CAUTIOUS, **{**GIVEN, "attempt": attempt})
    assert (len(tasks), len(set(tasks))) == (80, 60), "only attempts 0 and 1 share theirs"
    assert len(set(seeds)) == 120


def test_a_pilot_in_two_processes_counts_what_one_counts() -> None:
    """The runs themselves, not only what follows from them."""
    trial = _pilot()
    rows = []
    for jobs in (1, 2):
        with workers(jobs) as ready:
            rows.append(list(trial.rows(range(20), 2, ready)))
    assert rows[0] == rows[1]


def _pilot() -> CalibrationRuns:
    made: list[CalibrationRuns] = []
    check = CalibrationRuns.check_settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CalibrationRuns, "check_settings", lambda self: made.append(self) or check(self))
        sf.choose_path(POLICIES, TASKS, [CAUTIOUS], **GIVEN)
    return made[0]


@pytest.mark.parametrize("paths", [[], [0.1, 0.2], [{"share": 0.1}], ["path"]])
def test_what_is_no_list_of_paths_is_refused(paths: Any) -> None:
    with pytest.raises(InvalidInput, match="paths must be lists of settings, at least one"):
        sf.choose_path(POLICIES, TASKS, paths, **GIVEN)

"""Runs of a calibration: what each says, and that they are the same however they come about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from joblib.parallel import BACKENDS, ThreadingBackend
from scipy.optimize import linprog

import surefoot as sf
from bounds.test_fan_out import ray_of_two  # noqa: F401, a fixture
from contracts.spending import BUDGET, DIALS, HORIZON, Dial, OpenSpending, Spending, spending_set, true_values
from surefoot import calibration_runs
from surefoot.calibration_runs import TaskOutcomes, read_record
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration
from surefoot.report import calibration_page
from surefoot.simulate.judge import FIRST_ROUND, SAFE_ALONE, Judge
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

POLICIES = spending_set(cells=40)
SIMULATED = family(Spending, Uniform(0.2, 0.8))
READABLE = family(lambda hazard: OpenSpending(float(hazard[0])), Uniform(0.2, 0.8))
GIVEN: dict[str, Any] = {
    "method": "certified-returns",
    "path": [{"width": 1.0, "level": 0.3, "slack": 0.1}, {"width": 0.2, "level": 0.5, "slack": 0.1}],
    **{"episodes": 40, "risk": 0.3, "runs": 20, "seed": 2, "judged_on": 1000},
}


def count(record: Any, tasks: TaskDistribution = SIMULATED, jobs: int = 1, **changes: Any) -> Calibration:
    return sf.calibrate(POLICIES, tasks, record=record, jobs=jobs, **{**GIVEN, **changes})


# ---------------------------------------------------------------------------------------------------- what a run says


def most_to_gain(hazard: float) -> float:
    """By another program, and the formulas of the task."""
    values = np.array([true_values(hazard, share) for share in DIALS])
    found = linprog(-values[:, 0], values[:, [1]].T, [BUDGET], np.ones((1, len(DIALS))), [1.0])
    return float(-found.fun - values[0, 0])


def test_what_is_possible_where_values_can_be_read() -> None:
    rows: list[TaskOutcomes] = []
    count(rows, READABLE)
    assert len(rows) == GIVEN["runs"]
    assert [row.possible for row in rows] == pytest.approx([most_to_gain(row.parameter[0]) for row in rows], rel=1e-6)


def test_where_they_cannot_the_first_fresh_episodes_tell_and_the_judge_uses_them_again() -> None:
    policies = [Dial(share) for share in DIALS]
    judge = Judge(Spending(0.5), policies, steps=HORIZON, error=0.1, most=1000, seed=3, rounding=1e-9)
    assert judge.possible_gain() == pytest.approx(most_to_gain(0.5), rel=0.1)
    assert judge.possible_gain() != most_to_gain(0.5)
    fresh = {k: each._outcomes for k, each in judge._fresh.items()}
    assert [len(seen) for seen in fresh.values()] == [FIRST_ROUND] * len(DIALS)
    assert judge.shows_safe([SAFE_ALONE])
    assert all(judge._fresh[k]._outcomes is seen for k, seen in fresh.items()), "nothing was simulated again"


def test_a_run_is_that_of_adapt_on_the_same_task_with_the_same_seed() -> None:
    rows: list[TaskOutcomes] = []
    count(rows, READABLE, path=[0.3], runs=10)
    for n, row in enumerate(rows):
        seed = int(np.random.SeedSequence(GIVEN["seed"], spawn_key=(1, n)).generate_state(1)[0])
        task = READABLE.task(row.parameter)
        run = sf.adapt(POLICIES, task, method=GIVEN["method"], episodes=40, risk=0.3, level=0.3, seed=seed)
        gains = np.asarray(run.reward) - true_values(row.parameter[0], DIALS[0])[0]
        enough = np.flatnonzero(gains >= 0.9 * most_to_gain(row.parameter[0]))
        (outcome,) = row.outcomes
        assert outcome.gain == pytest.approx(gains.mean())
        assert outcome.reached == (int(enough[0]) if len(enough) else None)
        assert outcome.unsafe == bool(run.unsafe_episodes)
    reached = [row.outcomes[0].reached for row in rows]
    assert None in reached or max(each or 0 for each in reached) > 0, "not all from the beginning"


def test_nobody_pays_for_what_nobody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The possible gain takes episodes of all policies; the calibration is the same without."""
    kept = count([])
    monkeypatch.setattr(Judge, "possible_gain", lambda self: pytest.fail("it was computed"))
    assert count(None) == kept


# ------------------------------------------------------------------------------------------- however they come about


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Calibration, str, bytes]:
    """Calibration, page and file of one process."""
    return everything(tmp_path_factory.mktemp("alone") / "runs", jobs=1)


def everything(record: Path, jobs: int) -> tuple[Calibration, str, bytes]:
    found = count(record, jobs=jobs)
    return found, calibration_page(found, record), record.read_bytes()


class Clustered(ThreadingBackend):  # type: ignore[misc]
    """Without generators, as Ray has none: results come by the chunk."""

    supports_return_generator = False


@pytest.fixture
def clustered() -> Iterator[None]:
    joblib.register_parallel_backend("clustered", Clustered)
    try:
        yield
    finally:
        BACKENDS.pop("clustered")


@pytest.mark.usefixtures("clustered")
@pytest.mark.short_for(backend=["threading"])
@pytest.mark.parametrize("backend", ["loky", "threading", "clustered"])
def test_any_backend_gives_the_bits_of_one_process(
    backend: str, alone: tuple[Calibration, str, bytes], tmp_path: Path
) -> None:
    with joblib.parallel_config(backend=backend):
        assert everything(tmp_path / "runs", jobs=2) == alone


@pytest.mark.long
@pytest.mark.usefixtures("ray_of_two")
def test_so_does_ray(alone: tuple[Calibration, str, bytes], tmp_path: Path) -> None:
    with joblib.parallel_config(backend="ray"):
        assert everything(tmp_path / "runs", jobs=2) == alone


@pytest.mark.short_for(left=["half a line", "all but the end of a line", "all"])
@pytest.mark.parametrize("left", ["nothing", "half a line", "whole lines", "all but the end of a line", "all"])
def test_after_a_kill_it_ends_as_if_there_had_been_none(
    left: str, alone: tuple[Calibration, str, bytes], tmp_path: Path
) -> None:
    lines = alone[2].splitlines(keepends=True)
    middle = len(b"".join(lines[:9]))
    sizes = {
        "nothing": len(lines[0]),
        "half a line": middle + len(lines[9]) // 2,
        "whole lines": middle,
        "all but the end of a line": len(alone[2]) - 1,
        "all": len(alone[2]),
    }
    (tmp_path / "runs").write_bytes(alone[2][: sizes[left]])
    assert everything(tmp_path / "runs", jobs=1) == alone


def test_rows_in_a_list_make_the_same_page(alone: tuple[Calibration, str, bytes]) -> None:
    rows: list[TaskOutcomes] = []
    found = count(rows)
    assert (found, calibration_page(found, rows)) == alone[:2]
    with pytest.raises(InvalidInput, match="record must be a file or an empty list, got a list with 20 runs"):
        count(rows)


def test_a_file_that_lacks_a_run_or_has_none_is_refused(alone: tuple[Calibration, str, bytes], tmp_path: Path) -> None:
    """In whose place another would count."""
    lines = alone[2].splitlines(keepends=True)
    (tmp_path / "gap").write_bytes(b"".join([*lines[:5], *lines[6:]]))
    with pytest.raises(InvalidInput, match="whose line 6 is none"):
        count(tmp_path / "gap")
    (tmp_path / "strange").write_bytes(b"".join([*lines[:2], b"[1, [false, 0.5]]\n"]))
    with pytest.raises(InvalidInput, match="whose line 3 is none"):
        read_record(tmp_path / "strange")


def test_bolder_settings_are_given_up_after_a_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every ten runs here: what was broken off is in the file, and a resumed file gives up the same."""
    monkeypatch.setattr("surefoot.calibration.ROUND", 10)
    monkeypatch.setattr(calibration_runs, "BATCH", 3)
    bold = {"path": [{"share": 0.05, "slack": 0.1}, {"share": 0.9, "slack": 0.1}], "method": "posterior", "runs": 30}
    found = count(tmp_path / "runs", **bold)
    rows = read_record(tmp_path / "runs")
    assert [len(row.outcomes) for row in rows] == [2] * 10 + [1] * 20
    assert found.counts[1][1] == sum(row.outcomes[1].unsafe for row in rows[:10]) > found.allowed
    text = (tmp_path / "runs").read_text()
    (tmp_path / "runs").write_text(text[: 2 * len(text) // 3])
    assert count(tmp_path / "runs", **bold) == found
    assert (tmp_path / "runs").read_text() == text


def test_progress_tells_the_count_more_often_than_it_decides() -> None:
    said: list[tuple[str, int, int]] = []
    found = count(None, progress=lambda *words: said.append(words))
    assert [done for _, done, _ in said] == [0, 5, 10, 15, 20]
    assert {total for _, _, total in said} == {20}
    assert said[0][0] == f"level 0.5, slack 0.1, width 0.2: 0 unsafe, {found.allowed} allowed"
    assert said[-1][0].endswith(f": {found.counts[-1][1]} unsafe, {found.allowed} allowed")

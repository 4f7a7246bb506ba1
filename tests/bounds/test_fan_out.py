"""Value bounds by simulation in one process, in two and on a cluster: the same numbers, bit for bit."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import joblib
import numpy as np
import pytest

from point_mass import PointMass, lane, speed
from surefoot.bounds.cells import Cells
from surefoot.bounds.envelopes import build_cells, safe_policy_risk
from surefoot.bounds.settings import SAMPLED_PER_HELD_OUT, Envelopes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.fan_out import parallel_map
from surefoot.progress import Progress, silent
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

UNITS = lane(budget=0.3, horizon=6)
POLICIES: list[Policy] = [speed(0.2), speed(0.6), speed(1.0)]
SMALL = Envelopes(cells=3, holdout=32, uncovered=0.2, episodes=100)


def masses() -> TaskDistribution:
    return family(lambda drift: PointMass(drift, UNITS), Uniform(0.5, 0.8))  # a function that only cloudpickle can send


def few() -> TaskDistribution:
    return from_arrays([PointMass(drift, UNITS) for drift in (0.5, 0.6, 0.7)])


def everything(jobs: int, show: Progress = silent) -> list[np.ndarray]:
    """All arrays of both kinds of cells, and the risk of the safe policy."""
    cells = [build_cells(tasks, POLICIES, seed=3, envelopes=SMALL, jobs=jobs, show=show) for tasks in (masses(), few())]
    risk = safe_policy_risk(masses(), POLICIES[0], seed=3, envelopes=SMALL, jobs=jobs)
    return [array for found in cells for array in arrays(found)] + [np.array(risk)]


def arrays(cells: Cells) -> list[np.ndarray]:
    return [cells.low, cells.high, cells.prior, cells.lower, cells.upper, np.array(cells.uncovered)]


@pytest.fixture(scope="module")
def alone() -> list[np.ndarray]:
    return everything(jobs=1)


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.mark.long
def test_two_processes_give_the_numbers_of_one(alone: list[np.ndarray]) -> None:
    assert same(everything(jobs=2), alone)
    assert not same([*alone[:-1], alone[-1] + 1e-16 + np.spacing(alone[-1])], alone), "the comparison can fail"


@pytest.fixture
def ray_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local cluster of two workers. One at a time on a machine: Ray would take another's for its own."""
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else one is written to the home folder
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, beside)]))
    with Path(tempfile.gettempdir(), "surefoot-ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
        try:
            register_ray()
            yield
        finally:
            ray.shutdown()


@pytest.mark.long
@pytest.mark.usefixtures("ray_of_two")
def test_a_cluster_gives_the_numbers_of_one_process(alone: list[np.ndarray]) -> None:
    seen: list[tuple[int, int]] = []
    with joblib.parallel_config(backend="ray"):
        assert same(everything(2, lambda what, done, total: seen.append((done, total))), alone)
    assert seen[-4:] == [(k, 3) for k in range(4)], "finite families last"


def test_progress_counts_every_task_and_says_what_is_planned() -> None:
    said: list[tuple[str, int, int]] = []
    build_cells(
        masses(), POLICIES, seed=0, envelopes=SMALL, show=lambda what, done, total: said.append((what, done, total))
    )
    first, second, *further = dict.fromkeys(what for what, _, _ in said)
    sample = SAMPLED_PER_HELD_OUT * 32
    assert first == f"simulating the tasks that cells are made of, at most {sample * 3 * (100 // 6) * 6:,} steps"
    assert second == f"simulating held-out tasks, at most {32 * 3 * 75 * 6:,} steps"
    assert further == ["simulating the held-out tasks that decide"]
    for what, total in ((first, sample), (second, 32)):
        done = [k for name, k, all_of_them in said if name == what and all_of_them == total]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, total)


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_jobs_that_make_no_sense_are_refused(jobs: int) -> None:
    with pytest.raises(InvalidInput, match="jobs"):
        build_cells(masses(), POLICIES, seed=0, envelopes=SMALL, jobs=jobs)
    with pytest.raises(InvalidInput, match="jobs"):
        safe_policy_risk(masses(), POLICIES[0], seed=0, envelopes=SMALL, jobs=jobs)


def test_what_fails_in_a_process_fails_here() -> None:
    with pytest.raises(ZeroDivisionError):
        list(parallel_map("ratios", lambda k: 1 / k, [(1,), (0,)], 2, silent))

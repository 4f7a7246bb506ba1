"""Calibrating on tables against running the same learner on the same tasks, without a count."""

from __future__ import annotations

import time

import numpy as np

from surefoot.calibration import calibrate
from surefoot.calibration_runs import CALIBRATION
from surefoot.lab.bench.planning import gridworld_policy_set
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, race, times_row
from surefoot.learning.calibrated import Calibration
from surefoot.methods import adapt
from surefoot.simulate.run import Run
from surefoot.tasks.gridworld_tasks import gridworld

METHOD, LEVEL, EPISODES, SEED = "certified-likelihood", 0.05, 1000, 0
RISK = 0.3  # so much that the level passes for certain: one that fails is given up early


def calibrating(sizes: Sizes) -> list[BenchRow]:
    """One level of a calibration, in one process; each further one costs as much again."""
    runs = sizes.calibrated
    ours, plain = race(lambda: _calibrate_level(runs), lambda: _plain_runs(runs), sizes.repeats, time.process_time)
    agree("unsafe runs", ours.result.unsafe_runs[0], plain.result, 0)
    note = f"processor time; calibrating takes {ours.seconds / plain.seconds:.2f} times that of plain runs"
    what = f"calibration of {runs} gridworld runs"
    return [times_row(what, ours, plain, "a run (calibrate)", "a run (adapt)", note, each=runs)]


def _calibrate_level(runs: int) -> Calibration:
    return calibrate(
        gridworld_policy_set(),
        gridworld(),
        method=METHOD,
        episodes=EPISODES,
        risk=RISK,
        runs=runs,
        levels=[LEVEL],
        attempt=0,
        seed=SEED,
        jobs=1,
    )


def _plain_runs(count: int) -> list[int]:
    """Numbers of the unsafe ones, on the tasks that a calibration draws and with its seeds; the regret, which it does
    not need, is left out."""
    return [number for number in range(count) if _plain_run(number).unsafe_episodes > 0]


def _plain_run(number: int) -> Run:
    grids = gridworld()
    task, seed = (np.random.SeedSequence(SEED, spawn_key=(stream, number)) for stream in CALIBRATION)
    return adapt(
        gridworld_policy_set(),
        grids.task(grids.sample(1, np.random.default_rng(task))[0]),
        method=METHOD,
        episodes=EPISODES,
        risk=RISK,
        seed=int(seed.generate_state(1)[0]),
        optimal_reward=0.0,
        level=LEVEL,
    )

"""`surefoot reproduce calibration`: the gridworld with a level that simulated tasks allow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.arrays import Floats
from surefoot.calibration import calibrate
from surefoot.fan_out import check_jobs, each
from surefoot.lab.experiments.calibration.page import calibration_page
from surefoot.lab.experiments.calibration.settings import Settings
from surefoot.lab.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.lab.experiments.results import check_folder, write_report
from surefoot.learning.certified.calibrated import Calibration
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.report.metrics import binomial_interval
from surefoot.streams import Stream
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld
from surefoot.training.train import train


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Calibrate, compare and count; write results.json, the figure and report.html to `out`.

    Fresh tasks are those of the calibrated method, or, where no level passed, of the method as it is proved.
    """
    check_jobs(jobs)
    check_folder(out)
    began, show = time.perf_counter(), progress or silent
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=show)
    found = calibrate(
        policies,
        gridworld(),
        method=settings.method,
        episodes=settings.episodes,
        risk=settings.risk,
        runs=settings.runs,
        levels=settings.levels,
        error=settings.error,
        attempt=settings.attempt,
        seed=settings.seed,
        jobs=jobs,
        progress=show,
    )
    calibrated = time.perf_counter() - began
    chosen = None if found.level is None else found
    regret = {"plain": _runs("published noises", policies, settings, None, _published(settings), jobs, show)}
    if chosen is not None:
        what = "published noises, calibrated"
        regret["calibrated"] = _runs(what, policies, settings, chosen, _published(settings), jobs, show)
    fresh = _runs("fresh tasks", policies, settings, chosen, _fresh(settings), jobs, show)
    results = {
        "experiment": "calibration",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "seconds_calibrating": calibrated,
        "calibration": asdict(found),
        "published": {name: [row["regret"] for row in rows] for name, rows in regret.items()},
        "fresh": _count(fresh),
    }
    write_report(out, results, calibration_page(results))
    return results


def _published(settings: Settings) -> list[tuple[float, int]]:
    """Noises and seeds of `surefoot reproduce gridworld`."""
    return [(noise, settings.seed + 1000 * (k + 1)) for k, noise in enumerate(PUBLISHED_TEST_NOISES)]


def _fresh(settings: Settings) -> list[tuple[float, int]]:
    noises: Floats = gridworld().sample(settings.fresh, Stream.CALIBRATION_TASKS.rng(settings.seed))[:, 0]
    seeds = np.random.SeedSequence([settings.seed, Stream.CALIBRATION_RUNS]).generate_state(settings.fresh)
    return list(zip(noises.tolist(), seeds.tolist(), strict=True))


def _runs(
    what: str,
    policies: PolicyValueSet,
    settings: Settings,
    found: Calibration | None,
    tasks: Sequence[tuple[float, int]],
    jobs: int,
    show: Progress,
) -> list[dict[str, Any]]:
    calls = [(policies, settings, found, noise, seed) for noise, seed in tasks]
    return list(each(what, _run, calls, jobs, show))


def _run(
    policies: PolicyValueSet, settings: Settings, found: Calibration | None, noise: float, seed: int
) -> dict[str, Any]:
    """Regret on one task, and whether anything unsafe was deployed."""
    run = adapt(
        policies,
        gridworld().task([noise]),
        method=settings.method,
        episodes=settings.episodes,
        risk=settings.risk,
        seed=seed,
        calibration=found,
    )
    return {"regret": float(run.regret[-1]), "unsafe": bool(run.unsafe_episodes)}


def _count(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Unsafe tasks, those with nothing feasible among them, and the mean regret on all others."""
    unsafe = sum(row["unsafe"] for row in rows)
    return {
        "tasks": len(rows),
        "unsafe": unsafe,
        "interval": list(binomial_interval(unsafe, len(rows))),
        "regret": float(np.nanmean([row["regret"] for row in rows])),
    }

"""`surefoot reproduce covering`: C_ε(D, δ), exactly and from samples, beside the covers that Algorithm 1 finds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.errors import InvalidInput
from surefoot.fan_out import check_jobs, each
from surefoot.lab.analysis.covering_number import covering_number, sampled_covering_number
from surefoot.lab.experiments.covering.page import covering_page
from surefoot.lab.experiments.covering.settings import ERROR, FAMILIES, FINEST_IN_MANY, Settings
from surefoot.lab.experiments.results import check_folder, write_report
from surefoot.oracles.exact import ParameterDistance, exact_check
from surefoot.progress import Progress, silent
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.cover import cover_tasks

LEFT = 3  # δ that Algorithm 1 may leave of its samples: what its cover is to be held against


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Count, and write results.json, the figure and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    began = time.perf_counter()
    calls = [(name, epsilon, settings) for name in settings.families for epsilon in radii(name, settings)]
    _check_radii(calls, settings)
    rows = list(each("covering", counted, calls, jobs, progress or silent))
    results = {
        "experiment": "covering",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "rows": rows,
    }
    write_report(out, results, covering_page(results))
    return results


def _check_radii(calls: Sequence[tuple[str, float, Settings]], settings: Settings) -> None:
    """Families of which nothing would be counted are not passed over."""
    left = [name for name in settings.families if name not in {call[0] for call in calls}]
    if left:
        raise InvalidInput(
            f"epsilons must hold one of at least {FINEST_IN_MANY:g} for {', '.join(left)}, of several parameters, "
            f"got {', '.join(map(str, settings.epsilons))}"
        )


def radii(name: str, settings: Settings) -> list[float]:
    one = FAMILIES[name]().dimension == 1
    return [epsilon for epsilon in settings.epsilons if one or epsilon >= FINEST_IN_MANY]


def counted(name: str, epsilon: float, settings: Settings) -> dict[str, Any]:
    """One family at one radius."""
    tasks = FAMILIES[name]()
    check = exact_check(tasks)
    if not isinstance(check, ParameterDistance):
        raise InvalidInput(f"families must have coordinates, got {name}, which has none")
    points = check.coordinates(tasks.sample(settings.points, Stream.COVERING_SAMPLE.rng(settings.seed)))
    lower, upper = sampled_covering_number(points, epsilon, settings.delta, ERROR)
    rng = Stream.COVERING_COVER.rng(settings.seed)
    samples, centres = cover_tasks(tasks, epsilon, settings.delta, check, rng, silent)
    exact, as_left = (_exact(tasks, check, epsilon, part * settings.delta) for part in (1, LEFT))
    return {
        "family": name,
        "epsilon": epsilon,
        "exact": exact,
        "lower": lower,
        "upper": upper,
        "found": len(centres),
        "sampled": len(samples),
        "exact_as_left": as_left,
    }


def _exact(tasks: TaskDistribution, check: ParameterDistance, epsilon: float, delta: float) -> int | None:
    """C of a family of one parameter, of which points are a multiple."""
    if tasks.dimension != 1:
        return None
    support = tasks.distribution.support
    scale = float(np.ptp(check.coordinates(support.T)) / np.ptp(support))
    return covering_number(tasks.distribution, epsilon / scale, delta)

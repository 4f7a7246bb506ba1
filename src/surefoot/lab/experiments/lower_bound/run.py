"""`surefoot reproduce lower-bound`: samples until the best policy is found, on the tasks that make this hardest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surefoot import __version__
from surefoot.arrays import Floats
from surefoot.fan_out import check_jobs, each
from surefoot.lab.experiments.lower_bound.page import lower_bound_page
from surefoot.lab.experiments.lower_bound.settings import SWEEPS, Settings, drawn
from surefoot.lab.experiments.results import check_folder, write_report
from surefoot.lab.families.hard_instance import AVOID, HardInstances
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.run import Run
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.training.policy_set import policy_set

FIRST = 1000  # episodes of a run at first; twice as many each time that this does not do
NEAR = 0.1  # of the difference between the optima of two tasks: who is as near to the optimum has found the best gate


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Count samples, and write results.json, the figure and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    began = time.perf_counter()
    calls = [
        (quantity, instances, method, settings)
        for quantity in settings.quantities
        for instances in SWEEPS[quantity]
        for method in settings.methods
    ]
    rows = list(each("hard instances", measured, calls, jobs, progress or silent))
    results = {
        "experiment": "lower-bound",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "rows": rows,
        "fits": fits(rows),
    }
    write_report(out, results, lower_bound_page(results))
    return results


def measured(quantity: str, instances: HardInstances, method: str, settings: Settings) -> dict[str, Any]:
    """One method on task 0, on which every other one has to be ruled out, as in the proof of the bound."""
    searches = [search(instances, method, settings, repeat) for repeat in range(settings.repeats)]
    return {
        "quantity": quantity,
        "value": drawn(quantity, instances),
        "method": method,
        "tasks": instances.tasks,
        "alpha": instances.alpha,
        "gap": gap(instances),
        "samples": [found.samples for found in searches],
        "episodes": [found.episodes for found in searches],
        "unsafe": sum(found.unsafe for found in searches),
    }


class Search(NamedTuple):
    """Episodes until the best policy was deployed for good and samples in loops by then, None if it was not; whether
    anything unsafe was deployed."""

    episodes: int | None
    samples: float | None
    unsafe: bool


def search(instances: HardInstances, method: str, settings: Settings, repeat: int) -> Search:
    """For good: to the end of a run that is twice as long."""
    policies, task, episodes = gates(instances), instances.task(0), FIRST
    while True:
        run = adapt(
            policies,
            task,
            method=method,
            episodes=episodes,
            risk=settings.risk,
            seed=settings.seed + repeat,
            optimal_reward=instances.optimum(0),
            optimistic=True,
        )
        far = np.flatnonzero(np.diff(run.regret, prepend=0.0) > NEAR * gap(instances))
        until = int(far[-1]) + 1 if far.size else 0
        unsafe = bool(run.unsafe.any())
        if 2 * until <= episodes:
            return Search(until, float(loop_samples(instances, run)[:until].sum()), unsafe)
        if 2 * episodes > settings.most:
            return Search(None, None, unsafe)
        episodes *= 2


@lru_cache(maxsize=8)
def gates(instances: HardInstances) -> PolicyValueSet:
    """The best policy of every task, and one that enters no loop."""
    tasks = instances.family()
    best = {f"task {k}": solve(instances.task(k)).policy for k in range(instances.tasks)}
    safe = TabularPolicy(np.eye(2)[np.full(instances.states, AVOID)])
    return policy_set(tasks, safe=safe, candidates=best, seed=0, progress=False)


def gap(instances: HardInstances) -> float:
    """Between the optima of task 0 and of any other."""
    return instances.optimum(1) - instances.optimum(0)


def loop_samples(instances: HardInstances, run: Run) -> Floats:
    """[K] the samples that the bound counts, transitions from loops, expected of the policy deployed in each episode.

    Nothing but steps in loops pays, 1 each, discounted: entering one with q₀ at step t is worth γᵗ/(1-γq₀), and takes
    1/(1-q₀) samples.
    """
    q0, γ = instances.loops[0], instances.discount
    entered = np.asarray(run.reward) * (1 - γ * q0) / γ**instances.arrival / instances.reward
    samples: Floats = entered / (1 - q0)
    return samples


def fits(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exponents by least squares on logarithms, with their standard errors; none where a run did not end."""
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["quantity"], row["method"]), []).append(row)
    return [{"quantity": quantity, "method": method, **_fit(own)} for (quantity, method), own in lines.items()]


def _fit(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    runs = [(row["value"], samples) for row in rows for samples in row["samples"]]
    if len(rows) < 2 or not all(samples for _, samples in runs):
        return {"exponent": None, "error": None}
    x, y = np.log(np.array(runs, np.float64)).T
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    off = y - y.mean() - slope * centred
    return {"exponent": slope, "error": float(np.sqrt(off @ off / max(1, len(x) - 2) / (centred @ centred)))}

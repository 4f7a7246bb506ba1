"""`surefoot reproduce shift`: certified methods on tasks they were not trained for."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.experiments.results import check_folder, write_report
from surefoot.experiments.shift.page import shift_page
from surefoot.experiments.shift.settings import Settings
from surefoot.experiments.shift.tasks import SHIFTS, shifted
from surefoot.fan_out import check_jobs, each
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.runner import run_learner
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.training_phase import train


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Run every method under every shift, and write results.json and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    began = time.perf_counter()
    show = progress or silent
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=False)
    calls = [(policies, shift, method, settings) for shift in SHIFTS for method in settings.methods]
    rows = list(each("running", _runs, calls, jobs, show))
    results = {
        "experiment": "shift",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "rows": rows,
    }
    write_report(out, results, shift_page(results))
    return results


def _runs(policies: PolicyValueSet, name: str, method: str, settings: Settings) -> dict[str, Any]:
    """What happened in all runs of one method under one shift."""
    task = shifted(name)
    alarms, before, after, safe_margin = [], [], [], 0.0
    for k in range(settings.runs):
        seed = int(np.random.SeedSequence([settings.seed, 5, k]).generate_state(1)[0])
        agent = learner(policies, method=method, risk=settings.risk, seed=seed)
        run = run_learner(agent, task, episodes=settings.episodes, seed=seed, optimal_reward=0.0)
        alarm = next((event.episode for event in run.events if event.kind == "alarm"), None)
        unsafe = run.unsafe
        cut = settings.episodes if alarm is None else alarm
        alarms.append(alarm)
        before.append(int(unsafe[:cut].sum()))
        after.append(int(unsafe[cut:].sum()))
        safe_margin = float(run.margin[0])
    raised = [alarm for alarm in alarms if alarm is not None]
    return {
        "shift": name,
        "method": method,
        "runs": settings.runs,
        "alarms": len(raised),
        "median_alarm": float(np.median(raised)) if raised else None,
        "last_alarm": max(raised) if raised else None,
        "runs_unsafe_before": sum(count > 0 for count in before),
        "unsafe_before_mean": float(np.mean(before)),
        "unsafe_after_mean": float(np.mean(after)),
        "first_margin": safe_margin,
    }

"""`surefoot reproduce shift`: certified methods on tasks they were not trained for, and tests that tell such tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.cmdp.task import Task
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.lab.experiments.shift.near import model_free_runs, near_runs
from surefoot.lab.experiments.shift.page import shift_page, tables
from surefoot.lab.experiments.shift.settings import BESIDE, NEAR_METHODS, QUICK, TESTS, Settings
from surefoot.lab.experiments.shift.tasks import FROM_D, SHIFTS, shifted
from surefoot.lab.experiments.shift.watched import Watched
from surefoot.learning.learner import Learner
from surefoot.learning.shift_test import ShiftTest
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.training_phase import train

FRESH_STAGE = 8  # of random numbers


def run(settings: Settings, bench: Bench) -> dict[str, Any]:
    """Every method and test under every shift, and the promise at every distance."""
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=bench.progress)
    for shift in settings.distances:
        for method in NEAR_METHODS:
            learner(policies, method=method, risk=settings.risk, shift=shift)  # refused now rather than in an hour
    kinds = [*((name, "") for name in settings.methods), *((BESIDE, test) for test in TESTS)]
    calls = [(policies, shift, *kind, settings) for shift in (FROM_D, *SHIFTS) for kind in kinds]
    rows = bench.map("running", _runs, calls)
    distances = [(policies, method, shift, settings) for shift in settings.distances for method in NEAR_METHODS]
    near = bench.map("at a distance", near_runs, distances)
    free = bench.map("without a model", model_free_runs, [(policies, shift, settings) for shift in SHIFTS])
    return {
        "uncovered": policies.cells.uncovered if policies.cells else None,
        "rows": rows,
        "near": near,
        "model_free": [row for row in free if row is not None],
    }


def _runs(policies: PolicyValueSet, name: str, method: str, test: str, settings: Settings) -> dict[str, Any]:
    """What happened in all runs of one method, with a test beside it or without, under one shift."""
    alarms, before, after, safe_margin = [], [], [], 0.0
    for k, task in enumerate(_tasks(name, settings)):
        seed = int(np.random.SeedSequence([settings.seed, 5, k]).generate_state(1)[0])
        agent = learner(policies, method=method, risk=settings.risk, seed=seed)
        if test:
            watched = Watched(agent.method, ShiftTest(_known_to(policies, test), settings.risk))
            agent = Learner(watched, seed=seed, horizon=agent.horizon)
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
        "test": test,
        "runs": len(alarms),
        "alarms": len(raised),
        "median_alarm": float(np.median(raised)) if raised else None,
        "last_alarm": max(raised) if raised else None,
        "runs_unsafe_before": sum(count > 0 for count in before),
        "unsafe_before_mean": float(np.mean(before)),
        "unsafe_after_mean": float(np.mean(after)),
        "first_margin": None if name == FROM_D else safe_margin,
    }


def _tasks(name: str, settings: Settings) -> Sequence[Task]:
    """Of every run: fresh tasks of the distribution, or always the same one outside."""
    if name != FROM_D:
        return [shifted(name)] * settings.runs
    tasks = gridworld()
    return [tasks.task(p) for p in tasks.sample(settings.fresh, np.random.default_rng([settings.seed, FRESH_STAGE]))]


def _known_to(policies: PolicyValueSet, test: str) -> PolicyValueSet:
    """What a test knows of the cells: everything, or transitions up to their radius only."""
    cells = policies.cells
    if cells is None or cells.model is None:
        raise InvalidInput("policies must hold cells with a transition model, got none")
    if test == TESTS[0]:
        return policies
    return replace(policies, cells=replace(cells, model=replace(cells.model, affine=None)))


EXPERIMENT = Experiment(
    "shift",
    Settings,
    run,
    shift_page,
    tables,
    "power.png, price.png and results.json beside it",
    quick=QUICK,
)

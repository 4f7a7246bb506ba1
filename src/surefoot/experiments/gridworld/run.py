"""`surefoot reproduce gridworld`: train, adapt on the test tasks, write results, figures and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from surefoot.adapt.plan import plan
from surefoot.adapt.run_record import Run
from surefoot.cmdp.model import Floats
from surefoot.errors import InvalidInput
from surefoot.experiments.gridworld.page import gridworld_page
from surefoot.experiments.gridworld.settings import Settings
from surefoot.experiments.results import check_folder, experiment_results, write_report
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import summarise
from surefoot.tasks.gridworld import PUBLISHED_TEST_NOISES, gridworld
from surefoot.train.training_phase import train

Progress = Callable[[str, int, int], None]  # (what, done, in all)


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Everything behind Figures 1 and 2; returns what is written to results.json."""
    if jobs < 1:
        raise InvalidInput(f"jobs must be a positive whole number, got {jobs}")
    check_folder(out)
    began = time.perf_counter()
    show = progress or (lambda what, done, total: None)
    show("training", 0, 1)
    tasks = gridworld()
    policies = train(tasks, epsilon=settings.epsilon, delta=settings.delta, seed=settings.seed, progress=False)
    noises = noises_under_test(settings)
    trained = time.perf_counter()
    runs = run_methods(policies, noises, settings, jobs, show)
    seconds = {"training": trained - began, "adapting": time.perf_counter() - trained}
    results = experiment_results(
        "gridworld",
        settings={**asdict(settings), "noises": noises.tolist(), "candidates": len(policies)},
        seconds=seconds,
        methods={name: summarise(each) for name, each in runs.items()},
        events={name: [run.events for run in each] for name, each in runs.items()},
        policies=policies,
        plan=plan(policies, episodes=settings.episodes, risk=settings.risk),
    )
    show("writing the report", 0, 1)
    report = gridworld_page(results)
    policies.save(out / "gridworld.policyset")
    write_report(out, results, report)
    return results


def noises_under_test(settings: Settings) -> Floats:
    """The published test noises, continued by fresh draws when more are asked for."""
    published = np.array(PUBLISHED_TEST_NOISES[: settings.tasks])
    extra = settings.tasks - len(published)
    if not extra:
        return published
    fresh = gridworld().sample(extra, np.random.default_rng([settings.seed, 1]))[:, 0]
    return np.concatenate([published, fresh])


def run_methods(
    policies: PolicyValueSet, noises: Floats, settings: Settings, jobs: int, show: Progress
) -> Mapping[str, Sequence[Run]]:
    """Each method on each test task; every task has its own seed, so the order of work does not matter."""
    pairs = [(name, k) for k in range(len(noises)) for name in settings.methods]
    calls = (
        delayed(_adapt)(policies, float(noises[k]), name, settings, settings.seed + 1000 * (k + 1)) for name, k in pairs
    )
    runs: dict[str, list[Run]] = {name: [] for name in settings.methods}
    show("adapting", 0, len(pairs))
    # Results arrive in the order of the calls, task by task.
    for done, ((name, _), run) in enumerate(zip(pairs, Parallel(jobs, return_as="generator")(calls), strict=True), 1):
        runs[name].append(run)
        show("adapting", done, len(pairs))
    return runs


def _adapt(policies: PolicyValueSet, noise: float, method: str, settings: Settings, seed: int) -> Run:
    task = gridworld().task([noise])
    return adapt(policies, task, method=method, episodes=settings.episodes, risk=settings.risk, seed=seed)

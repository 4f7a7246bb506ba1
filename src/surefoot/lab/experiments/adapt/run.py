"""`surefoot adapt`: one method on one simulated task."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from surefoot.errors import Infeasible, InvalidInput
from surefoot.lab.experiments.adapt.page import task_text
from surefoot.lab.experiments.adapt.settings import Settings
from surefoot.lab.experiments.results import experiment_results
from surefoot.methods import adapt
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.report.metrics import summarise
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve
from surefoot.tasks.task_distribution import TaskDistribution


def adapt_one(
    policies: PolicyValueSet, tasks: TaskDistribution, settings: Settings, progress: Progress
) -> dict[str, Any]:
    """Run one method on one task; returns what is written to results.json.

    Raises:
        Infeasible: no policy keeps the budget on that task, so that regret has no meaning.
    """
    began = time.perf_counter()
    try:
        task = tasks.task(settings.task)
        if isinstance(task, TabularCMDP):  # of which the least cost can be told
            solve(task)
    except InvalidInput as error:
        raise InvalidInput(f"task {task_text(settings.task)}: {error}") from None
    except Infeasible as error:
        raise Infeasible(f"task {task_text(settings.task)}: {error}; choose another task", error.least_cost) from None
    run = adapt(
        policies,
        task,
        method=settings.method,
        episodes=settings.episodes,
        risk=settings.risk,
        seed=settings.seed,
        observer=lambda done, total: progress(settings.method, done, total),
    )
    results = experiment_results(
        "adapt",
        settings={**asdict(settings), "task": list(settings.task), "risk_split": dict(run.risk_split)},
        seconds={"adapting": time.perf_counter() - began},
        methods={settings.method: summarise([run])},
        events={settings.method: [run.events]},
        policies=policies,
    )
    return {**results, "advice": advice(policies).as_dict()}

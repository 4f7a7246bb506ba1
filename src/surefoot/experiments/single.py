"""One method on one task, for `surefoot adapt`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from surefoot.errors import Infeasible, InvalidInput
from surefoot.experiments.results import Report, experiment_results
from surefoot.learning.event import Event
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import cost_in_words, learning_curves, png
from surefoot.report.metrics import summarise
from surefoot.report.page import Page, Section, Table, results_table, versions
from surefoot.tabular.solve import solve
from surefoot.tasks.family import TaskDistribution

SHOWN_EVENTS = 200


def adapt_one(
    policies: PolicyValueSet,
    tasks: TaskDistribution,
    parameter: Sequence[float],
    *,
    method: str,
    episodes: int,
    risk: float,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """Run one method on the task of `parameter`; returns what is written to results.json.

    Raises:
        Infeasible: no policy keeps the budget on that task, so that regret has no meaning.
    """
    began = time.perf_counter()
    try:
        task = tasks.task(parameter)
        solve(task)
    except InvalidInput as error:
        raise InvalidInput(f"task {_text(parameter)}: {error}") from None
    except Infeasible as error:
        raise Infeasible(f"task {_text(parameter)}: {error}; choose another task", error.least_cost) from None
    run = adapt(
        policies,
        task,
        method=method,
        episodes=episodes,
        risk=risk,
        seed=seed,
        observer=lambda done, total: progress(method, done, total),
    )
    return experiment_results(
        "adapt",
        settings={
            "task": list(parameter),
            "episodes": episodes,
            "risk": risk,
            "risk_split": dict(run.risk_split),
            "seed": seed,
            "method": method,
        },
        seconds={"adapting": time.perf_counter() - began},
        methods={method: summarise([run])},
        events={method: [run.events]},
        policies=policies,
    )


def single_page(results: Mapping[str, Any]) -> Report:
    """Regret, cost and events of one run."""
    settings, methods = results["settings"], results["methods"]
    curves = png(learning_curves(methods, budgets=results["training"]["budget"]))
    task = _text(settings["task"])
    page = Page(
        title=f"Method ‘{settings['method']}’ on task {task}",
        lead=(
            f"{settings['episodes']:,} simulated episodes on the task with parameter {task}. Regret and cost are exact "
            "values of the deployed policies, not averages of what was observed."
        ),
        facts=(
            ("task", task),
            *((name, str(settings[name])) for name in ("method", "episodes", "risk", "seed")),
            *_risk_facts(settings.get("risk_split", {})),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            Section(
                "Regret and cost",
                figure=curves,
                caption=f"Top: cumulative regret. Bottom: {cost_in_words(results['training']['budget'])}.",
                table=results_table(methods),
            ),
            _events_section([Event(**event) for event in results["events"][settings["method"]][0]]),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"curves.png": curves})


def _risk_facts(split: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """How the risk is spent, for the methods that say so."""
    parts = ", ".join(f"{name} {value:.3g}" for name, value in split.items() if value)
    return (("risk is spent on", parts),) if parts else ()


def _events_section(events: Sequence[Event]) -> Section:
    if not events:
        return Section("What happened", paragraphs=("No decision fell: the same policy in every episode.",))
    rows = tuple((f"{event.episode:,}", event.kind, event.message) for event in events[:SHOWN_EVENTS])
    left_out = len(events) - len(rows)
    return Section(
        "What happened",
        table=Table(("episode", "event", "what"), rows, numbers=(0,)),
        notes=(f"{left_out:,} later events are in results.json.",) if left_out else (),
    )


def _text(parameter: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in parameter)

"""`surefoot adapt`: one method on one simulated task, and its page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from surefoot.errors import Infeasible, InvalidInput
from surefoot.lab.experiments.frame import ExperimentSettings, Report, Results, experiment_results, report, setting
from surefoot.learning.event import Event
from surefoot.methods import adapt
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.report.figures import learning_curves, panels_in_words, regret_known, svg
from surefoot.report.metrics import Summary, summarise
from surefoot.report.page import Section
from surefoot.report.table import Column, Table, number, results_table
from surefoot.report.verdict import Answer, Verdict, elapsed_time, unsafe
from surefoot.simulate.runner import JUDGED_ERROR
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve
from surefoot.tasks.task_distribution import TaskDistribution

SHOWN_EVENTS = 200


def task_text(parameter: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in parameter)


@dataclass(frozen=True)
class Adaptation(ExperimentSettings):
    """One method on the task of one parameter."""

    task: tuple[float, ...] = field(metadata={"fact": ("task", task_text)})
    method: str = setting("certified", fact="method")
    episodes: int = setting(40_000, fact="episodes")
    risk: float = setting(0.05, fact="risk")
    seed: int = setting(0, fact=("seed", str))


def adapt_one(
    policies: PolicyValueSet, tasks: TaskDistribution, settings: Adaptation, progress: Progress
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


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    """Regret, cost and events of one run."""
    settings, methods, budgets = results["settings"], results["methods"], results["training"]["budget"]
    curves = learning_curves(methods, budgets=budgets)
    task = task_text(settings["task"])
    return report(
        results,
        Adaptation,
        title=f"Method ‘{settings['method']}’ on task {task}",
        verdict=_verdict(results),
        lead=(
            f"{settings['episodes']:,} simulated episodes on the task with parameter {task}. "
            f"{_origin(methods[settings['method']])}"
        ),
        sections=(
            *(
                Section(title, figure=svg(curves), caption=panels_in_words(methods, budgets), table=table)
                for title, table in tables(results).items()
            ),
            _events_section([Event(**event) for event in results["events"][settings["method"]][0]]),
        ),
        figures={"curves.png": curves},
        facts=_risk_facts(settings.get("risk_split", {})),
    )


def tables(results: Results) -> dict[str, Table]:
    """Of the one method."""
    earned = "Regret" if regret_known(results["methods"]) else "Reward"
    return {f"{earned} and cost": results_table(results["methods"])}


def _verdict(results: Results) -> Verdict:
    """Of one run: what it deployed, and what that cost."""
    settings, method = results["settings"], results["settings"]["method"]
    found: Summary = results["methods"][method]
    count, undecided, episodes = found["unsafe_episodes"], found.get("undecided_episodes", 0), found["episodes"]
    counted = f" in {count or undecided:,} of {episodes:,} episodes"
    safe = "deployed nothing unsafe" if not undecided else f"was too close to a budget to tell{counted}"
    words = f"‘{method}’ {f'deployed unsafe policies{counted}' if count else safe}"
    regret, per_episode = found["regret_mean"], f"over {episodes:,} episodes, "
    earned = (
        Answer("Reward", number(found.get("reward_mean")), "per episode; nobody knows the optimum, hence no regret")
        if regret is None
        else Answer("Regret", number(regret), f"{per_episode}beside the best policy of this very task")
    )
    beside = (
        f"episodes; a method with a proof at risk {settings['risk']:g}"
        if found["certified"]
        else "episodes; uncertified"
    )
    margin = Answer("Smallest margin", number(found["min_margin"]), "left of a budget by anything that was deployed")
    return Verdict(
        f"{words}{'' if regret is None else f', and lost {number(regret)} against the best policy'}.",
        (
            earned,
            unsafe(count, episodes, beside, undecided),
            margin,
            elapsed_time(results["seconds"], "one run on one task"),
        ),
    )


def _origin(found: Summary) -> str:
    """Where the numbers come from."""
    if not found.get("estimated"):
        return "Regret and cost are exact values of the deployed policies, not averages of what was observed."
    return (
        "The task can only be simulated, so values are estimated: every deployed policy was judged on episodes of its "
        f"own, with an interval that is wrong with probability at most {JUDGED_ERROR:g}. An episode is undecided if "
        "the interval of its policy's margin holds 0."
    )


def _risk_facts(split: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """How the risk is spent, for the methods that say so."""
    parts = ", ".join(f"{name} {value:.3g}" for name, value in split.items() if value)
    return (("risk is spent on", parts),) if parts else ()


def _events_section(events: Sequence[Event]) -> Section:
    if not events:
        return Section("What happened", paragraphs=("No decision fell: the same policy in every episode.",))
    left_out = len(events) - SHOWN_EVENTS
    return Section(
        "What happened",
        table=Table.of(
            map(asdict, events[:SHOWN_EVENTS]),
            Column("episode", "episode", ","),
            Column("event", "kind"),
            Column("what", "message"),
        ),
        notes=(f"{left_out:,} later events are in results.json.",) if left_out > 0 else (),
    )

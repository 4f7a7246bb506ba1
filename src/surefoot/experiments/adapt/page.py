"""The report on one run, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surefoot.experiments.results import Report, Results
from surefoot.learning.event import Event
from surefoot.report.figures import learning_curves, panels_in_words, png, regret_known
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table, results_table
from surefoot.simulate.runner import JUDGED_ERROR

SHOWN_EVENTS = 200


def adapt_page(results: Results) -> Report:
    """Regret, cost and events of one run."""
    settings, methods, budgets = results["settings"], results["methods"], results["training"]["budget"]
    curves = png(learning_curves(methods, budgets=budgets))
    task = task_text(settings["task"])
    page = Page(
        title=f"Method ‘{settings['method']}’ on task {task}",
        lead=(
            f"{settings['episodes']:,} simulated episodes on the task with parameter {task}. "
            f"{_verdict(methods[settings['method']])}"
        ),
        facts=(
            ("task", task),
            *((name, str(settings[name])) for name in ("method", "episodes", "risk", "seed")),
            *_risk_facts(settings.get("risk_split", {})),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            *(
                Section(title, figure=curves, caption=panels_in_words(methods, budgets), table=table)
                for title, table in tables(results).items()
            ),
            _events_section([Event(**event) for event in results["events"][settings["method"]][0]]),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"curves.png": curves})


def tables(results: Results) -> dict[str, Table]:
    """Of the one method."""
    earned = "Regret" if regret_known(results["methods"]) else "Reward"
    return {f"{earned} and cost": results_table(results["methods"])}


def task_text(parameter: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in parameter)


def _verdict(found: Summary) -> str:
    """Where the numbers come from, and what they say about safety."""
    if not found.get("estimated"):
        return "Regret and cost are exact values of the deployed policies, not averages of what was observed."
    unsafe, undecided = found["unsafe_episodes"], found.get("undecided_episodes", 0)
    judgement = "safe in every episode" if not unsafe and not undecided else "undecided" if not unsafe else "unsafe"
    counted = [f"{count:,} {what}" for count, what in ((unsafe, "unsafe"), (undecided, "undecided")) if count]
    regret = "" if found["regret_mean"] is not None else " Nobody knows the optimum of this task, hence no regret."
    return (
        "The task can only be simulated, so values are estimated: every deployed policy was judged on episodes of its "
        f"own, with an interval that is wrong with probability at most {JUDGED_ERROR:g}. An episode is undecided if "
        f"the interval of its policy's margin holds 0. This run: {judgement}"
        + (f" ({', '.join(counted)} of {found['episodes']:,} episodes)." if counted else ".")
        + regret
    )


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

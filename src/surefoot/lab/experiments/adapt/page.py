"""The report on one run, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surefoot.lab.experiments.results import Report, Results
from surefoot.learning.event import Event
from surefoot.report.figures import learning_curves, panels_in_words, png, regret_known, svg
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table, number, results_table
from surefoot.report.verdict import Answer, Verdict, took, unsafe
from surefoot.simulate.runner import JUDGED_ERROR

SHOWN_EVENTS = 200


def adapt_page(results: Results) -> Report:
    """Regret, cost and events of one run."""
    settings, methods, budgets = results["settings"], results["methods"], results["training"]["budget"]
    curves = learning_curves(methods, budgets=budgets)
    task = task_text(settings["task"])
    page = Page(
        title=f"Method ‘{settings['method']}’ on task {task}",
        verdict=_verdict(results),
        lead=(
            f"{settings['episodes']:,} simulated episodes on the task with parameter {task}. "
            f"{_origin(methods[settings['method']])}"
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
                Section(title, figure=svg(curves), caption=panels_in_words(methods, budgets), table=table)
                for title, table in tables(results).items()
            ),
            _events_section([Event(**event) for event in results["events"][settings["method"]][0]]),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"curves.png": png(curves)})


def tables(results: Results) -> dict[str, Table]:
    """Of the one method."""
    earned = "Regret" if regret_known(results["methods"]) else "Reward"
    return {f"{earned} and cost": results_table(results["methods"])}


def task_text(parameter: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in parameter)


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
        (earned, unsafe(count, episodes, beside, undecided), margin, took(results["seconds"], "one run on one task")),
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
    rows = tuple((f"{event.episode:,}", event.kind, event.message) for event in events[:SHOWN_EVENTS])
    left_out = len(events) - len(rows)
    return Section(
        "What happened",
        table=Table(("episode", "event", "what"), rows, numbers=(0,)),
        notes=(f"{left_out:,} later events are in results.json.",) if left_out else (),
    )

"""The report of the gridworld reproduction, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.gridworld.figure import Panel, policies_and_values
from surefoot.learning.event import Event
from surefoot.methods import BASELINES
from surefoot.report import verdict
from surefoot.report.figures import learning_curves, png, svg
from surefoot.report.metrics import Totals, sort_by_regret
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table, events_table, plan_table, results_table
from surefoot.report.verdict import Verdict
from surefoot.tasks.gridworld_tasks import BUDGET

TEST, FRESH, PLAN = "On the test tasks", "On fresh tasks", "How long each method stays on the safe policy"


def gridworld_page(results: Results) -> Report:
    """Figures 1 and 2, the tables, and where to read how the paper's text and its figure differ."""
    settings = results["settings"]
    curves = learning_curves(results["methods"], budgets=[BUDGET], closer=True, limit=results.get("limit"))
    figures: dict[str, Figure] = {}
    if "figure1" in results:  # runs of earlier versions have it as a picture only
        figures["figure1.png"] = policies_and_values([_panel(**panel) for panel in results["figure1"]])
    figures["figure2.png"] = curves
    page = Page(
        title="The paper's gridworld, reproduced",
        verdict=_verdict(results),
        lead=(
            f"{settings['tasks']} gridworlds whose noise the learner does not know, {settings['episodes']:,} episodes "
            "on each. Every number below is the exact value of the deployed policy on the true task."
        ),
        facts=(
            ("episodes per task", f"{settings['episodes']:,}"),
            (
                "test tasks",
                f"{settings['tasks']}, noise {', '.join(f'{noise:.3f}' for noise in settings['noises'][:10])}",
            ),
            ("methods", ", ".join(settings["methods"])),
            ("risk", f"{settings['risk']:g}"),
            ("cover", f"ε = {settings['epsilon']:g}, δ = {settings['delta']:g}: {settings['candidates']} candidates"),
            ("tasks sampled in training", f"{results['training']['samples']:,}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            _figure_2(results, svg(curves)),
            *_fresh_sections(results),
            *([_figure_1(svg(figures["figure1.png"]))] if "figure1.png" in figures else []),
            _certified_section(results),
            _plan_section(results),
            _events_section(results),
            _discrepancy_section(),
        ),
        command=_command(settings),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {name: png(figure) for name, figure in figures.items()})


def tables(results: Results) -> dict[str, Table]:
    """Regret and safety on the test tasks, on fresh ones, in the order of the figure's lines; and the plan."""
    limit = results["limit"]["mean"][-1] if "limit" in results else None  # runs of earlier versions have none
    found = {TEST: results_table(sort_by_regret(results["methods"]), reference_methods(results["methods"]), limit)}
    fresh = results.get("fresh", {})  # runs of earlier versions have none
    if fresh:
        found[FRESH] = results_table(sort_by_regret(fresh), reference_methods(fresh))
    return {**found, PLAN: plan_table(results["plan"])}


def _panel(noise: float, policy: Any, state_values: Any, optimal_value: float) -> Panel:
    return Panel(noise, np.array(policy), np.array(state_values), optimal_value)


def _verdict(results: Results) -> Verdict:
    """On the test tasks; how sure it is follows from fresh ones where there are some."""
    settings, methods = results["settings"], results["methods"]
    best, share = verdict.best_certified(methods), verdict.regret_reduction(methods)
    worth = "" if share is None else f"‘{best}’ avoided {verdict.percent(share)} of the regret of never adapting, and "
    words = worth + verdict.in_words(methods)
    counted = results.get("fresh") or methods
    amount = f"{len(methods)} methods on {settings['tasks']} tasks, {settings['episodes']:,} episodes each"
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            verdict.adaptation_gain(methods),
            verdict.safety(methods),
            verdict.sureness(counted, settings["risk"], "fresh tasks" if counted is not methods else "tasks"),
            verdict.elapsed_time(results["seconds"], amount),
        ),
    )


def _figure_1(figure: bytes) -> Section:
    return Section(
        "Figure 1: optimal policies",
        paragraphs=(
            "The agent wants to reach the green goal; time in the red cells counts as cost. With little wind the best "
            "policy takes the corridor between the red walls. With more wind the corridor gets risky, and from more "
            "and more cells the best policy walks around.",
        ),
        figure=figure,
        caption=(
            "Optimal policy and value of every cell at noise 0.1 and 0.3. Several arrows in a cell: the policy chooses "
            "among them at random. The paper prints V* = 59.74 and 51.96."
        ),
    )


def _figure_2(results: Results, figure: bytes) -> Section:
    return Section(
        "Figure 2: regret and cost while adapting",
        figure=figure,
        caption=(
            "Top: cumulative regret, on the paper's axes. Middle: expected discounted cost of the deployed policy; "
            f"above the dashed budget of {BUDGET} it is unsafe. Lines are means over the test tasks; bands hold 80 % "
            "of them, drawn where no other line runs through. Broken lines belong to methods without a proof; a cross "
            "marks the worst policy deployed by a method that exceeded the budget. Bottom: the same regret on "
            "logarithmic axes"
        )
        + (", and what no method stays below in expectation that keeps the promise." if "limit" in results else "."),
        table=tables(results)[TEST],
        notes=(
            *_best_baseline(results["methods"]),
            *_limit_note(results),
            "Read off the paper's figure at 40,000 episodes: Safe-PCE ≈ 40 k (method 'published' here), PCE ≈ 13 k and "
            "unsafe, Safe Meta-RL ≈ 92 k, DOPE+ ≈ 106 k, DOPE ≈ 108 k, LB-SGD ≈ 154 k (here 'safe-meta-published', "
            "'dope-plus-published', 'dope-published', 'lb-sgd-published').",
            "Baselines end in their preset: ‘theory’ has the constants that their guarantee needs, with which most of "
            "them never leave their first policy in a run of this length; ‘published’ has what the paper's figure was "
            "made with, and no guarantee. DOPE+ and 'dope-published' are reconstructed from what is public of them.",
        ),
    )


def _limit_note(results: Results) -> tuple[str, ...]:
    if "limit" not in results:
        return ()
    return (
        f"The limit is {results['limit']['mean'][-1]:,.0f} in the mean: no method that is unsafe with a probability of "
        f"at most {results['settings']['risk']:g} on every single gridworld that the certified methods speak of has "
        "less expected regret, whatever it deploys (docs/guarantees.md, Theorem 11). It says nothing of methods that "
        "are unsafe.",
    )


def reference_methods(methods: Mapping[str, Totals]) -> dict[str, str]:
    """Whose regret the others' is measured against: never adapting, and the best baseline that was never unsafe."""
    safe = {name: found["regret_mean"] for name, found in methods.items() if not found["unsafe_tasks"]}
    baselines = {name: mean for name, mean in safe.items() if name in BASELINES and mean is not None}
    best = {"best baseline": min(baselines, key=lambda name: baselines[name])} if baselines else {}
    return {"safe-only": "safe-only", **best}


def _best_baseline(methods: Mapping[str, Totals]) -> tuple[str, ...]:
    best = reference_methods(methods).get("best baseline")
    return () if best is None else (f"The best baseline that was never unsafe here is ‘{best}’.",)


def _fresh_sections(results: Results) -> tuple[Section, ...]:
    if FRESH not in tables(results):
        return ()
    text = (
        f"{results['settings']['fresh']} further tasks drawn from the distribution, "
        f"{results['settings']['episodes']:,} episodes on each."
    )
    table = tables(results)[FRESH]
    return (Section(FRESH, paragraphs=(text,), table=table, notes=_best_baseline(results["fresh"])),)


def _certified_section(results: Results) -> Section:
    return Section(
        "Why the certified methods may move sooner",
        paragraphs=(
            "The paper's test looks at one candidate at a time and asks: does this candidate behave as it would if it "
            "were the right one? Until that is settled it must assume the worst of the candidate, a policy that spends "
            "all its time in the red cells, and a policy that bad may be mixed in only a little at a time. The "
            "certified methods ask another question: which tasks can this still be? In training, every policy was "
            "evaluated on every task that may come, so for each possible task it is known how much each policy would "
            "cost there. Whatever mixture is affordable on all tasks that are still possible is affordable on the true "
            "one, and so it may be deployed at once, tested or not.",
            "Ruling tasks out is done by betting. For each possible task an imaginary gambler bets against it, in a "
            "game that would be fair or worse if it were the true one. If the task is true, the gambler's fortune "
            "grows twentyfold with a probability of at most 1 in 20, however long the game lasts; so at risk "
            f"{results['settings']['risk']:g} a task is dropped when the fortune against it has grown by the inverse "
            "of that risk. Only the true task must not be dropped by mistake, so nothing is lost by testing hundreds "
            "of them at once. The likelihood method bets on every single move of the agent, the returns method only "
            "on what each episode earned and cost; the model-free method makes no use of the training tasks to judge "
            "safety and has to learn the cost of each policy by running it.",
        ),
    )


def _plan_section(results: Results) -> Section:
    return Section(
        PLAN,
        paragraphs=(
            "Computed before the first episode. The paper's constants are sound once its slips are mended, but they "
            "ask for more episodes than any run here has: 'paper' then equals 'safe-only'.",
        ),
        table=tables(results)[PLAN],
    )


def _events_section(results: Results) -> Section:
    events = {name: [[Event(**event) for event in run] for run in runs] for name, runs in results["events"].items()}
    return Section("What happened on the way", table=events_table(events))


def _discrepancy_section() -> Section:
    return Section(
        "Where the paper's text and its figure disagree",
        paragraphs=(
            "docs/experiments.md lists every place: what the text says, what the figure was made with, and what was "
            "done here.",
        ),
    )


def _command(settings: Mapping[str, Any]) -> str:
    return (
        f"surefoot reproduce gridworld --episodes {settings['episodes']} --tasks {settings['tasks']} \\\n"
        f"  --fresh {settings.get('fresh', 0)} --methods {','.join(settings['methods'])} \\\n"
        f"  --risk {settings['risk']:g} --seed {settings['seed']} --out DIR"
    )

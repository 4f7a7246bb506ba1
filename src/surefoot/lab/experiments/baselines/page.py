"""The report on the baselines' own benchmarks, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.lab.baselines.dope import VISIT_GROWTH
from surefoot.lab.experiments.baselines.settings import BENCHMARKS, SAFE_SHARE, BaselinesSettings
from surefoot.lab.experiments.frame import Report, Results
from surefoot.report import table, verdict
from surefoot.report.figures import learning_curves, panels_in_words, png, svg
from surefoot.report.metrics import sort_by_regret
from surefoot.report.page import Page, Section, versions
from surefoot.report.palette import REFERENCE
from surefoot.report.table import MISSING, Cell, Table, interval
from surefoot.report.verdict import Answer, Verdict

OURS = "certified-likelihood"
INTRODUCTION = (
    "Before a baseline is compared with anything, it has to behave on the task that its authors published it with. "
    "Each was run there several times, next to a certified method of this library and to never adapting. Regret, costs "
    "and margins are exact values of the deployed policies."
)


def baselines_page(results: Results) -> Report:
    """Per benchmark what it is, the learning curves, the table, and what was cut."""
    settings, benchmarks = results["settings"], results["benchmarks"]
    figures = {
        name: learning_curves(benchmark["methods"], budgets=benchmark["training"]["budget"], closer=True)
        for name, benchmark in benchmarks.items()
    }
    page = Page(
        title="The baselines on their own benchmarks",
        verdict=_verdict(results),
        lead=INTRODUCTION,
        facts=(
            ("risk", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            *(_section(name, each, svg(figures[name])) for name, each in benchmarks.items()),
            _presets_section(settings["risk"]),
        ),
        command=_command(settings),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {f"{name}.png": png(figure) for name, figure in figures.items()})


def tables(results: Results) -> dict[str, Table]:
    """One per benchmark."""
    return {name: methods_table(benchmark) for name, benchmark in results["benchmarks"].items()}


def _verdict(results: Results) -> Verdict:
    """Which baselines were unsafe, and whether the certified method beats them."""
    benchmarks = results["benchmarks"]
    runs = {f"{method}, {name}": own for name, each in benchmarks.items() for method, own in each["methods"].items()}
    theirs = {name: each for name, each in runs.items() if name.split(",")[0] not in (REFERENCE, OURS)}
    loose = [name for name, each in theirs.items() if each["unsafe_tasks"]]
    verb = "was" if len(loose) == 1 else "were"
    words = f"Of {len(theirs)} baselines on benchmarks of their authors {len(loose)} {verb} ever unsafe"
    proved = {name: each for name, each in runs.items() if each["certified"]}
    beaten, met = _count_wins(benchmarks)
    return Verdict(
        f"{words}; {verdict.in_words(proved)}." if proved else f"{words}.",
        (
            Answer(
                "Least regret",
                f"{beaten} of {met}",
                f"benchmarks on which ‘{OURS}’ has less regret than every baseline",
            ),
            Answer("Unsafe baselines", f"{len(loose)} of {len(theirs)}", _worst(theirs)),
            verdict.safety(runs),
            verdict.elapsed_time(results["seconds"], f"{len(runs)} runs of methods on benchmarks"),
        ),
    )


def _count_wins(benchmarks: Mapping[str, Any]) -> tuple[int, int]:
    """On how many benchmarks ours has the least regret, of those on which it met a baseline."""
    results = []
    for each in benchmarks.values():
        regrets = {name: found["regret_mean"] for name, found in each["methods"].items() if name != REFERENCE}
        ours = regrets.pop(OURS, None)
        if ours is not None and regrets:
            results.append(ours < min(regrets.values()))
    return sum(results), len(results)


def _worst(theirs: Mapping[str, Any]) -> str:
    worst = max(theirs, key=lambda name: theirs[name]["unsafe_episodes"], default=None)
    if worst is None or not theirs[worst]["unsafe_episodes"]:
        return "no baseline was unsafe in any episode"
    return f"most often ‘{worst}’, in {theirs[worst]['unsafe_episodes']:,} episodes"


def _section(name: str, benchmark: Mapping[str, Any], figure: bytes) -> Section:
    panels = panels_in_words(benchmark["methods"], benchmark["training"]["budget"], closer=True)
    return Section(
        name,
        paragraphs=(BENCHMARKS[name].what,),
        figure=figure,
        caption=f"{panels} Lines are means over the runs; bands hold 80 % of them, where no other line runs through.",
        table=methods_table(benchmark),
        notes=(_facts(benchmark), _cut(name, benchmark)),
    )


def methods_table(benchmark: Mapping[str, Any]) -> Table:
    """One row per method, in the order of the figure's lines."""
    methods = benchmark["methods"]
    rows = []
    for name, summary in sort_by_regret(methods).items():
        grown, last, unsafe = benchmark["growth"][name], benchmark["last"][name], summary["unsafe_episodes"]
        counted = f"{unsafe:,} in {summary['unsafe_tasks']} of {summary['tasks']} runs" if unsafe else "0"
        rows.append(
            (
                name,
                table.certified(summary),
                table.regret(summary),
                interval(summary["regret_interval"]),
                _with_interval(grown["exponent"], grown["interval"]),
                Cell(counted, "bad") if unsafe else counted,
                table.smallest_margin(summary),
                table.number(last["gap"]),
                table.number(last["margin"]),
                f"{benchmark['seconds_per_run'][name]:.1f}",
            )
        )
    headers = (
        "method",
        "certified",
        "regret, mean",
        "95 % interval",
        "growth exponent",
        "unsafe episodes",
        "smallest margin",
        "last gap to V*",
        "last margin",
        "seconds per run",
    )
    return Table(headers, tuple(rows), numbers=tuple(range(2, len(headers))), optional=(3, 7, 8, 9))


def _facts(benchmark: Mapping[str, Any]) -> str:
    costs = " and ".join(f"{cost:.3f}" for cost in benchmark["safe_cost"])
    return (
        f"Optimal value {benchmark['optimum']:.6f}. The safe policy costs {costs}. Growth exponent: slope of log "
        "regret against log episode, fitted on the second half of every run; 1 is linear growth. ‘Last’ is the policy "
        "of the last episode."
    )


def _cut(name: str, benchmark: Mapping[str, Any]) -> str:
    """What the authors ran, and in what this run falls short of it."""
    published, episodes, runs = BENCHMARKS[name], benchmark["settings"]["episodes"], benchmark["settings"]["runs"]
    theirs = f"{published.published_episodes:,} episodes, {published.published_runs} runs"
    if (episodes, runs) == (published.published_episodes, published.published_runs):
        return f"As many episodes and runs as the authors had ({theirs})."
    return f"The authors had {theirs}; this is {episodes:,} episodes, {runs} runs."


def _presets_section(risk: float) -> Section:
    return Section(
        "What the names mean",
        paragraphs=(
            "A baseline's name ends in its preset. ‘theory’ has the constants that its guarantee needs, ‘published’ "
            "those of the code behind a published figure. Planning methods know rewards, costs and which transitions "
            "are possible, as in their authors' code, and pool what they count over the steps of an episode. They plan "
            f"again when a visit count has grown by {VISIT_GROWTH:.0%}, not after every episode, which changes the "
            "regret by less than 3 %. The last step leads to the end for sure, so it is planned without a bonus.",
            f"The safe policy of the planning benchmarks is their authors' baseline policy: the optimum for "
            f"{SAFE_SHARE:.0%} of the budget. The certified method is told a family of tasks around the published one "
            "(a range for one parameter), which the baselines are not; in return they need no training. Certified "
            f"means that a run has an unsafe episode with a probability of at most {risk:g}, not that none ever has.",
        ),
    )


def _command(settings: Mapping[str, Any]) -> str:
    given = [f"--{option} {settings[option]}" for option in ("runs", "episodes") if settings[option] is not None]
    standard = BaselinesSettings()
    lines = [" ".join(["surefoot reproduce baselines", *given])]
    for option in ("benchmarks", "methods"):
        if tuple(settings[option]) != getattr(standard, option):
            lines.append(f"--{option} {','.join(settings[option])}")
    lines.append(f"--seed {settings['seed']} --out DIR")
    return " \\\n  ".join(lines)


def _with_interval(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.2f}" if ends is None else f"{value:.2f} ({interval(ends, '.2f')})"

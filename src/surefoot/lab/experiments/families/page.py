"""The report on further families, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.lab.experiments.families.settings import VARIANTS
from surefoot.lab.experiments.results import Report, Results
from surefoot.report import table, verdict
from surefoot.report.figures import learning_curves, panels_in_words, png, svg
from surefoot.report.metrics import ranked
from surefoot.report.page import Page, Section, versions
from surefoot.report.palette import REFERENCE
from surefoot.report.table import Table
from surefoot.report.verdict import Answer, Verdict

DESCRIPTIONS = {
    "windy": (
        "An 8×6 gridworld in which slip and wind are both unknown. The wind blows towards a strip of hazard cells on "
        "the short way to the goal; how close to it one may walk depends on both."
    ),
    "maintenance": (
        "A machine that wears out. Products, spills and spare parts are random, so rewards and costs are; two budgets, "
        "one for spills and one for spare parts. How fast it wears and how often it makes scrap are unknown."
    ),
}


def families_page(results: Results) -> Report:
    """Per family what it is, the learning curves and the table of regret, safety and CPU time."""
    settings, families = results["settings"], results["families"]
    figures = {
        name: learning_curves(family["methods"], budgets=family["training"]["budget"], closer=True)
        for name, family in families.items()
    }
    page = Page(
        title="Families nobody tuned for",
        verdict=_verdict(results),
        lead=_introduction(settings),
        facts=(
            ("episodes per task", f"{settings['episodes']:,}"),
            ("test tasks per family", str(settings["tasks"])),
            ("risk", f"{settings['risk']:g}"),
            ("cover", f"ε = {settings['epsilon']:g}, δ = {settings['delta']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=tuple(_family_section(name, family, svg(figures[name])) for name, family in families.items()),
        command=_command(settings),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {f"{name}.png": png(figure) for name, figure in figures.items()})


def tables(results: Results) -> dict[str, Table]:
    """One per family."""
    return {name: methods_table(family) for name, family in results["families"].items()}


def _introduction(settings: Mapping[str, Any]) -> str:
    return (
        "Constants of the certified methods were chosen on the paper's gridworld, with one unknown and one constraint. "
        f"Here they meet other families as they are: {settings['tasks']} fresh tasks of each, {settings['episodes']:,} "
        "episodes on each task. Regret and margins are exact values of the deployed policies."
    )


def _verdict(results: Results) -> Verdict:
    settings, families = results["settings"], results["families"]
    runs = {
        f"{name}: {method}": each for name, family in families.items() for method, each in family["methods"].items()
    }
    adapting = {name: each for name, each in runs.items() if not name.endswith(f": {REFERENCE}")}
    shares = {
        name: share for name, family in families.items() if (share := verdict.avoided(family["methods"])) is not None
    }
    told = verdict.listed([f"{verdict.percent(share)} ({name})" for name, share in shares.items()]) if shares else ""
    worth = f"the best certified method avoided {told} of the regret of never adapting, and " if shares else ""
    words = worth + verdict.in_words(runs)
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            Answer("Gained", _range(list(shares.values())), "of the regret of never adapting avoided, by family"),
            verdict.safety(runs),
            verdict.sureness(adapting, settings["risk"]),
            verdict.took(results["seconds"], f"{len(families)} families trained and {len(runs)} methods run"),
        ),
    )


def _range(shares: Sequence[float]) -> str:
    ends = list(dict.fromkeys(verdict.percent(share) for share in (min(shares), max(shares)))) if shares else []
    return " to ".join(ends) or table.MISSING


def _family_section(name: str, family: Mapping[str, Any], figure: bytes) -> Section:
    settings, seconds = family["settings"], family["seconds_by_stage"]
    panels = panels_in_words(family["methods"], family["training"]["budget"], closer=True)
    return Section(
        name,
        paragraphs=(DESCRIPTIONS[name],),
        figure=figure,
        caption=f"{panels} Lines are means over the tasks; bands hold 80 % of them, where no other line runs through.",
        table=methods_table(family),
        notes=(
            f"Training: {seconds['training']:.1f} s for {settings['candidates']} candidates from "
            f"{family['training']['samples']:,} sampled tasks, and {family['cells']:,} cells with bounds; probability "
            f"{family['uncovered']:.2g} of the tasks lies in none of them.",
            *(
                f"‘{method}’ begins with {VARIANTS[method].cells:g} times as many cells as the others."
                for method in family["methods"]
                if method in VARIANTS and VARIANTS[method].cells != 1
            ),
        ),
    )


def methods_table(family: Mapping[str, Any]) -> Table:
    """One row per method, in the order of the figure's lines."""
    methods = family["methods"]
    rows = []
    for name, summary in ranked(methods).items():
        share = _share(summary, methods)
        rows.append(
            (
                name,
                table.certified(summary),
                table.regret(summary),
                table.MISSING if share is None else f"{share:.2f}",
                table.unsafe_tasks(summary),
                table.interval(summary["unsafe_interval"], ".3f"),
                table.smallest_margin(summary),
                f"{family['seconds_per_run'][name]:.2f}",
            )
        )
    headers = (
        "method",
        "certified",
        "regret, mean",
        "times safe-only",
        "unsafe tasks",
        "95 % interval of the fraction",
        "smallest margin",
        "CPU seconds per run",
    )
    return Table(headers, tuple(rows), numbers=(2, 3, 4, 5, 6, 7), optional=(3, 5))


def _share(summary: Mapping[str, Any], methods: Mapping[str, Any]) -> float | None:
    """Regret as a multiple of that of never adapting, where that was run and has any."""
    base = methods["safe-only"]["regret_mean"] if "safe-only" in methods else 0.0
    return summary["regret_mean"] / base if base > 0 else None


def _command(settings: Mapping[str, Any]) -> str:
    return (
        f"surefoot reproduce families --tasks {settings['tasks']} --episodes {settings['episodes']} \\\n"
        f"  --methods {','.join(settings['methods'])} \\\n"
        f"  --risk {settings['risk']:g} --seed {settings['seed']} --out DIR"
    )

"""The report on further families, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.experiments.families.settings import VARIANTS
from surefoot.experiments.results import Report, Results
from surefoot.report import table
from surefoot.report.figures import learning_curves, panels_in_words, png
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table

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
        f"{name}.png": png(learning_curves(family["methods"], budgets=family["training"]["budget"]))
        for name, family in families.items()
    }
    page = Page(
        title="Families nobody tuned for",
        lead=" ".join([_introduction(settings), *(_verdict(name, family) for name, family in families.items())]),
        facts=(
            ("episodes per task", f"{settings['episodes']:,}"),
            ("test tasks per family", str(settings["tasks"])),
            ("risk", f"{settings['risk']:g}"),
            ("cover", f"ε = {settings['epsilon']:g}, δ = {settings['delta']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            *(_family_section(name, family, figures[f"{name}.png"]) for name, family in families.items()),
            Section("How to run this again", code=_command(settings)),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, figures)


def tables(results: Results) -> dict[str, Table]:
    """One per family."""
    return {name: methods_table(family) for name, family in results["families"].items()}


def _introduction(settings: Mapping[str, Any]) -> str:
    return (
        "Constants of the certified methods were chosen on the paper's gridworld, with one unknown and one constraint. "
        f"Here they meet other families as they are: {settings['tasks']} fresh tasks of each, {settings['episodes']:,} "
        "episodes on each task. Regret and margins are exact values of the deployed policies."
    )


def _verdict(name: str, family: Mapping[str, Any]) -> str:
    """The best certified method of a family in one sentence."""
    methods = family["methods"]
    adapting = {
        method: summary for method, summary in methods.items() if summary["certified"] and method != "safe-only"
    }
    if not adapting:
        return ""
    best = min(adapting, key=lambda method: adapting[method]["regret_mean"])
    share = _share(methods[best], methods)
    unsafe = sum(summary["unsafe_episodes"] for summary in adapting.values())
    safety = (
        "no certified method deployed an unsafe policy" if not unsafe else f"{unsafe:,} certified episodes were unsafe"
    )
    against = "" if share is None else f" ({share:.2f} times that of never adapting)"
    return f"{name}: ‘{best}’ has the least regret, {methods[best]['regret_mean']:,.0f}{against}; {safety}."


def _family_section(name: str, family: Mapping[str, Any], figure: bytes) -> Section:
    settings, seconds = family["settings"], family["seconds_by_stage"]
    panels = panels_in_words(family["methods"], family["training"]["budget"])
    return Section(
        name,
        paragraphs=(DESCRIPTIONS[name],),
        figure=figure,
        caption=f"{panels} Lines are means over the tasks, bands hold 80 % of them.",
        table=methods_table(family),
        notes=(
            f"Training: {seconds['training']:.1f} s for {settings['candidates']} candidates from "
            f"{family['training']['samples']:,} sampled tasks, and {family['cells']:,} cells with bounds; probability "
            f"{family['uncovered']:.2g} of the tasks lies in none of them.",
            *(
                f"‘{method}’ begins with {VARIANTS[method].cells:g} times as many cells as the others."
                for method in family["methods"]
                if method in VARIANTS
            ),
        ),
    )


def methods_table(family: Mapping[str, Any]) -> Table:
    """One row per method."""
    methods = family["methods"]
    rows = []
    for name, summary in methods.items():
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

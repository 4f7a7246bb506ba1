"""`surefoot reproduce families`: the certified methods on families that nothing in them was tuned for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from surefoot.arrays import Floats
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option, setting
from surefoot.methods import METHODS, adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report import table, verdict
from surefoot.report.figures import learning_curves, panels_in_words, svg
from surefoot.report.metrics import sort_by_regret, summarise
from surefoot.report.page import Section
from surefoot.report.palette import REFERENCE
from surefoot.report.table import Column, Table
from surefoot.report.verdict import Answer, Verdict
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tasks import TaskDistribution, maintenance, windy_gridworld
from surefoot.training.train import train

FAMILIES: Mapping[str, Callable[[], TaskDistribution]] = {"windy": windy_gridworld, "maintenance": maintenance}

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


@dataclass(frozen=True)
class Variant:
    """A method with options, and with another number of cells than the others: so many times theirs."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cells: float = 1.0


# Cells that split may be few.
VARIANTS: Mapping[str, Variant] = {
    "certified-likelihood-split": Variant("certified-likelihood", {"split": True}, cells=1 / 8),
}

DEFAULT_METHODS = (
    "safe-only",
    "certified-likelihood",
    "certified-likelihood-split",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
)


@dataclass(frozen=True)
class FurtherFamilies(frame.ExperimentSettings):
    """Each method on the same `tasks` fresh draws of each family; ε, δ and the number of cells are one for all."""

    families: tuple[str, ...] = setting(tuple(FAMILIES), choices=FAMILIES)
    episodes: int = frame.episodes_option(5_000, "Episodes per task.", fact="episodes per task")
    tasks: int = option(20, "Fresh tasks per family.", least=1, fact="test tasks per family")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.", choices=(*METHODS, *VARIANTS))
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    epsilon: float = 0.02
    delta: float = 0.05
    cells: int = setting(800, least=1)


def variant(name: str) -> Variant:
    """What a name among the methods stands for."""
    return VARIANTS.get(name, Variant(name))


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: FurtherFamilies, bench: Bench) -> dict[str, Any]:
    """Train and adapt on every family."""
    families = {name: run_family(name, settings, bench) for name in settings.families}
    return {"seconds": sum(family["seconds"] for family in families.values()), "families": families}


def run_family(name: str, settings: FurtherFamilies, bench: Bench) -> dict[str, Any]:
    """The results of all methods on the fresh tasks of one family; its policy set is kept."""
    began = time.perf_counter()
    bench.progress(f"{name}: training", 0, 1)
    tasks = FAMILIES[name]()
    shares = {1.0, *(variant(method).cells for method in settings.methods)}
    sets = {share: _policy_set(tasks, round(share * settings.cells), settings, bench) for share in sorted(shares)}
    policies = bench.policy_sets[f"{name}.policyset"] = sets[1.0]
    parameters = tasks.sample(settings.tasks, Stream.FAMILIES_TASKS.rng(settings.seed))
    trained = time.perf_counter()
    runs, seconds = run_methods(sets, name, parameters, settings, bench)
    results = frame.experiment_results(
        name,
        settings={"parameters": parameters.tolist(), "candidates": len(policies), "recipe": dict(tasks.recipe)},
        seconds={"training": trained - began, "adapting": time.perf_counter() - trained},
        methods={method: summarise(each) for method, each in runs.items()},
        events={method: [run.events for run in each] for method, each in runs.items()},
        policies=policies,
    )
    cells = policies.cells
    facts = {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered}
    return {**results, **facts, "seconds_per_run": seconds}


def _policy_set(tasks: TaskDistribution, cells: int, settings: FurtherFamilies, bench: Bench) -> PolicyValueSet:
    ε, δ, seed = settings.epsilon, settings.delta, settings.seed
    return train(tasks, epsilon=ε, delta=δ, seed=seed, progress=bench.progress, cells=cells)


def run_methods(
    sets: Mapping[float, PolicyValueSet], family: str, parameters: Floats, settings: FurtherFamilies, bench: Bench
) -> tuple[dict[str, list[Run]], dict[str, float]]:
    """Runs of each method, one per task, and its mean CPU time; every task has its own seed, the same for all."""
    seeds = [settings.seed + 1000 * (k + 1) for k in range(len(parameters))]
    calls = [
        (sets[variant(method).cells], family, parameter, method, settings, seed)
        for parameter, seed in zip(parameters, seeds, strict=True)
        for method in settings.methods
    ]
    runs: dict[str, list[Run]] = {method: [] for method in settings.methods}
    seconds = dict.fromkeys(settings.methods, 0.0)
    for call, (found, took) in zip(calls, bench.map(f"{family}: adapting", _adapt, calls), strict=True):
        runs[call[3]].append(found)
        seconds[call[3]] += took / len(parameters)
    return runs, seconds


def _adapt(
    policies: PolicyValueSet, family: str, parameter: Floats, method: str, settings: FurtherFamilies, seed: int
) -> tuple[Run, float]:
    """One run and its CPU time in seconds, which does not depend on what else the machine does."""
    began = time.process_time()
    task, chosen = FAMILIES[family]().task(parameter), variant(method)
    found = adapt(
        policies,
        task,
        method=chosen.method,
        episodes=settings.episodes,
        risk=settings.risk,
        seed=seed,
        **chosen.options,
    )
    return found, time.process_time() - began


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    """Per family what it is, the learning curves and the table of regret, safety and CPU time."""
    settings, families = results["settings"], results["families"]
    figures = {
        name: learning_curves(family["methods"], budgets=family["training"]["budget"], closer=True)
        for name, family in families.items()
    }
    return frame.report(
        results,
        FurtherFamilies,
        title="Families nobody tuned for",
        verdict=_verdict(results),
        lead=_introduction(settings),
        sections=[_family_section(name, family, svg(figures[name])) for name, family in families.items()],
        figures={f"{name}.png": figure for name, figure in figures.items()},
        facts=(("cover", f"ε = {settings['epsilon']:g}, δ = {settings['delta']:g}"),),
    )


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
        name: share
        for name, family in families.items()
        if (share := verdict.regret_reduction(family["methods"])) is not None
    }
    told = (
        verdict.join_words([f"{verdict.percent(share)} ({name})" for name, share in shares.items()]) if shares else ""
    )
    worth = f"the best certified method avoided {told} of the regret of never adapting, and " if shares else ""
    words = worth + verdict.in_words(runs, settings["risk"])
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            Answer("Gained", _range(list(shares.values())), "of the regret of never adapting avoided, by family"),
            verdict.safety(runs, settings["risk"]),
            verdict.sureness(adapting, settings["risk"]),
            verdict.elapsed_time(results["seconds"], f"{len(families)} families trained and {len(runs)} methods run"),
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
    methods, seconds = family["methods"], family["seconds_per_run"]
    return Table.of(
        ({**found, "name": name} for name, found in sort_by_regret(methods).items()),
        Column("method", "name"),
        Column("certified", table.certified),
        Column("regret, mean", table.regret, ""),
        Column("times safe-only", lambda row: _share(row, methods), ".2f", optional=True),
        Column("unsafe tasks", table.unsafe_tasks, ""),
        Column(
            "95 % interval of the fraction",
            lambda row: table.interval(row["unsafe_interval"], ".3f"),
            "",
            optional=True,
        ),
        Column("smallest margin", table.smallest_margin, ""),
        Column("CPU seconds per run", lambda row: seconds[row["name"]], ".2f"),
    )


def _share(summary: Mapping[str, Any], methods: Mapping[str, Any]) -> float | None:
    """Regret as a multiple of that of never adapting, where that was run and has any."""
    base = methods["safe-only"]["regret_mean"] if "safe-only" in methods else 0.0
    return summary["regret_mean"] / base if base > 0 else None


EXPERIMENT = frame.Experiment(
    "families",
    FurtherFamilies,
    run,
    page,
    tables,
    "a figure and a policy set per family and results.json beside it",
    policy_sets=lambda settings: [f"{name}.policyset" for name in settings.families],
    quick={"tasks": 2, "episodes": 500, "cells": 100},
)

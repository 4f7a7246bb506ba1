"""`surefoot reproduce …`: the experiments."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from surefoot.cli.terminal import (
    MOST_EPISODES,
    Jobs,
    Json,
    Out,
    Risk,
    Seed,
    console,
    plain_table,
    print_json,
    print_methods,
    print_path,
    progress,
)
from surefoot.experiments.baselines import run as baselines
from surefoot.experiments.baselines.settings import BENCHMARKS
from surefoot.experiments.baselines.settings import METHODS as BASELINES
from surefoot.experiments.baselines.settings import QUICK as QUICK_BASELINES
from surefoot.experiments.baselines.settings import Settings as BaselinesSettings
from surefoot.experiments.families import run as families
from surefoot.experiments.families.settings import Settings as FamiliesSettings
from surefoot.experiments.gridworld.run import reproduce as reproduce_gridworld
from surefoot.experiments.gridworld.settings import ALL_METHODS, QUICK, Settings
from surefoot.experiments.promise import run as promise
from surefoot.experiments.shift import run as shift
from surefoot.methods import METHODS

reproduce_app = typer.Typer(help="Reproduce an experiment of the paper, or one about the certified methods.")


@reproduce_app.command("gridworld")
def gridworld_command(
    out: Out,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_EPISODES, help="Episodes per task; 40000 by default.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Test tasks, the first ten the published ones; 10 by default.")
    ] = None,
    fresh: Annotated[
        int, typer.Option(min=0, help="Further tasks drawn from the distribution, for a table of their own.")
    ] = Settings.fresh,
    methods: Annotated[
        str | None, typer.Option(help=f"all, or comma-separated names out of {', '.join(METHODS)}.")
    ] = None,
    risk: Risk = Settings.risk,
    seed: Seed = Settings.seed,
    quick: Annotated[bool, typer.Option("--quick", help="3 tasks and 4000 episodes unless given.")] = False,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> None:
    """Figures 1 and 2 of the paper, with the constraint value of every deployed policy computed exactly."""
    base = QUICK if quick else Settings()
    settings = Settings(
        episodes=base.episodes if episodes is None else episodes,
        tasks=base.tasks if tasks is None else tasks,
        fresh=fresh,
        methods=base.methods if methods is None else ALL_METHODS if methods == "all" else _names(methods),
        risk=risk,
        seed=seed,
    )
    with progress(not as_json) as show:
        results = reproduce_gridworld(settings, out, jobs=jobs, progress=show)
    if as_json:
        print_json(results)
        return
    print_methods(results)
    if results["fresh"]:
        console.print(f"{settings.fresh} fresh tasks:")
        print_methods({**results, "methods": results["fresh"]})
    _print_plan_sentence(results)
    print_path(out / "report.html", "figure1.png, figure2.png, results.json and gridworld.policyset beside it")


@reproduce_app.command("promise")
def promise_command(
    out: Out,
    on: Annotated[
        str, typer.Option("--families", help="gridworld, or random: small families of every kind.")
    ] = "gridworld",
    number: Annotated[int | None, typer.Option(min=1, help="Random families; 200 by default.")] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Fresh tasks per method and risk: 2000 gridworlds, or 20 per family.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes per task; 3000, or 240 on random ones.")] = None,
    methods: Annotated[str | None, typer.Option(help="Comma-separated names.")] = None,
    risks: Annotated[str | None, typer.Option(help="Comma-separated; 0.05,0.5, or 0.5,0.1 on random ones.")] = None,
    seed: Seed = promise.Settings.seed,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> None:
    """How often certified methods were ever unsafe on fresh tasks, against the risk they were given."""
    settings = promise.settings_for(
        on,
        number=number,
        tasks=tasks,
        episodes=episodes,
        methods=None if methods is None else _names(methods),
        risks=None if risks is None else promise.levels(risks),
        seed=seed,
    )
    with progress(not as_json) as show:
        results = promise.reproduce(settings, out, jobs=jobs, progress=show)
    if as_json:
        print_json(results)
        return
    for title, headers, rows in promise.tables(results):
        console.print(title, style="bold")
        table = plain_table(*headers, numbers=(1, *range(promise.VERDICT + 1, len(headers))))
        for row in rows:
            table.add_row(*row)
        console.print(table)
    print_path(out / "report.html", "results.json beside it")


@reproduce_app.command("shift")
def shift_command(
    out: Out,
    runs: Annotated[int, typer.Option(min=1, help="Runs per shift and method.")] = shift.Settings.runs,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per run.")] = shift.Settings.episodes,
    methods: Annotated[str | None, typer.Option(help="Comma-separated names.")] = None,
    risk: Risk = shift.Settings.risk,
    seed: Seed = shift.Settings.seed,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> None:
    """Certified methods on tasks that nobody trained for: how often and when the alarm is raised."""
    chosen = shift.Settings.methods if methods is None else _names(methods)
    settings = shift.Settings(methods=chosen, runs=runs, episodes=episodes, risk=risk, seed=seed)
    with progress(not as_json) as show:
        results = shift.reproduce(settings, out, jobs=jobs, progress=show)
    if as_json:
        print_json(results)
        return
    headers = ("shift", "method", "safe margin", "alarms", "median episode", "unsafe before", "unsafe after")
    table = plain_table(*headers, numbers=(2, 3, 4, 5, 6))
    for row in results["rows"]:
        median = "-" if row["median_alarm"] is None else f"{row['median_alarm']:,.0f}"
        alarms = f"{row['alarms']} of {row['runs']}"
        unsafe = (f"{row[key]:,.0f}" for key in ("unsafe_before_mean", "unsafe_after_mean"))
        table.add_row(row["shift"], row["method"], f"{row['first_margin']:.3f}", alarms, median, *unsafe)
    console.print(table)
    print_path(out / "report.html", "results.json beside it")


@reproduce_app.command("families")
def families_command(
    out: Out,
    tasks: Annotated[int, typer.Option(min=1, help="Fresh tasks per family.")] = FamiliesSettings.tasks,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per task.")] = FamiliesSettings.episodes,
    methods: Annotated[str | None, typer.Option(help="Comma-separated names.")] = None,
    risk: Risk = FamiliesSettings.risk,
    seed: Seed = FamiliesSettings.seed,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> None:
    """The certified methods on two further families: slip and wind, and machine maintenance."""
    chosen = FamiliesSettings.methods if methods is None else _names(methods)
    settings = FamiliesSettings(tasks=tasks, episodes=episodes, methods=chosen, risk=risk, seed=seed)
    with progress(not as_json) as show:
        results = families.reproduce(settings, out, jobs=jobs, progress=show)
    if as_json:
        print_json(results)
        return
    for name, family in results["families"].items():
        console.print(name, style="bold")
        print_methods(family)
    print_path(out / "report.html", "results.json beside it")


@reproduce_app.command("baselines")
def baselines_command(
    out: Out,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_EPISODES, help="Per run; each benchmark's own number by default.")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Per benchmark and method; its authors' number by default.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help=f"Comma-separated, out of {', '.join(BASELINES)}.")] = None,
    benchmarks: Annotated[str | None, typer.Option(help=f"Comma-separated, out of {', '.join(BENCHMARKS)}.")] = None,
    seed: Seed = BaselinesSettings.seed,
    quick: Annotated[bool, typer.Option("--quick", help="2 runs of 4000 episodes unless given.")] = False,
    jobs: Jobs = 2,
    as_json: Json = False,
) -> None:
    """Every baseline on its authors' own benchmark: regret, its growth, and safety."""
    base = QUICK_BASELINES if quick else BaselinesSettings()
    settings = replace(
        base,
        episodes=base.episodes if episodes is None else episodes,
        runs=base.runs if runs is None else runs,
        methods=base.methods if methods is None else _names(methods),
        benchmarks=base.benchmarks if benchmarks is None else _names(benchmarks),
        seed=seed,
    )
    with progress(not as_json) as show:
        results = baselines.reproduce(settings, out, jobs=jobs, progress=show)
    if as_json:
        print_json(results)
        return
    for name, benchmark in results["benchmarks"].items():
        console.print(name, style="bold")
        _print_baselines(benchmark)
    print_path(out / "report.html", "results.json and a figure per benchmark beside it")


def _print_baselines(benchmark: dict[str, Any]) -> None:
    headers = ("method", "certified", "regret", "95 % interval", "exponent", "unsafe episodes", "least margin", "s/run")
    table = plain_table(*headers, numbers=(2, 3, 4, 5, 6, 7))
    for name, summary in benchmark["methods"].items():
        interval, exponent = summary["regret_interval"], benchmark["growth"][name]["exponent"]
        table.add_row(
            name,
            "yes" if summary["certified"] else "uncertified",
            f"{summary['regret_mean']:,.0f}",
            "-" if interval is None else f"{interval[0]:,.0f} - {interval[1]:,.0f}",
            "-" if exponent is None else f"{exponent:.2f}",
            f"{summary['unsafe_episodes']:,}",
            f"{summary['min_margin']:.4f}",
            f"{benchmark['seconds_per_run'][name]:.1f}",
        )
    console.print(table)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _print_plan_sentence(results: dict[str, Any]) -> None:
    for line in results["plan"]:
        leaves = line["episodes"] is not None and line["episodes"] < results["settings"]["episodes"]
        if line["method"] == "paper" and "paper" in results["methods"] and not leaves:
            console.print(f"paper equals safe-only: {line['reason']}", highlight=False, soft_wrap=True)

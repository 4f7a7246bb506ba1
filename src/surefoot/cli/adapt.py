"""`surefoot plan`, `surefoot adapt` and `surefoot methods`: parsing and printing only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from surefoot.arrays import check_unit_interval
from surefoot.cli.journals import read_key
from surefoot.cli.terminal import (
    SENTENCES,
    Json,
    Seed,
    SetPath,
    drop_none,
    numbers,
    print_json,
    print_lines,
    print_path,
    progress,
    show,
    show_all,
    show_sentences,
)
from surefoot.cli.train import rebuild_family
from surefoot.deploy.calibration_files import read_calibration
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.analysis.complexities import (
    Problem,
    complexity_table,
    largest_useful_cover,
    problem,
    sample_complexities,
)
from surefoot.lab.experiments.adapt import Adaptation, adapt_one, page, tables
from surefoot.lab.experiments.frame import check_folder, write_report
from surefoot.methods import METHODS, MOST_EPISODES, check_terms, plan, spec_of, specs
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.table import Table, plain_plan, plan_table

MARGIN = 10  # columns of the words before a sentence
PROMISE = "nothing unsafe is ever deployed, with probability at least 1 - risk"
TOLD = {
    "sums": "sums",
    "first-state": "first state, sums",
    "signals": "signals, sums",
    "transitions": "transitions",
    "steps": "every step",
}

app = typer.Typer(rich_markup_mode=None)


@app.command("adapt")
def adapt_command(
    path: SetPath,
    task: Annotated[str, typer.Option("--task", help="Parameter of the test task, e.g. 0.31.")],
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = Adaptation.method,
    episodes: Annotated[int, typer.Option(min=1, max=MOST_EPISODES, help="Number of episodes.")] = Adaptation.episodes,
    risk: Annotated[
        float | None, typer.Option(help="Probability with which any deployed policy may break a budget; 0.05.")
    ] = None,
    seed: Seed = Adaptation.seed,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.json and report.html.")] = None,
    as_json: Json = False,
) -> None:
    """Algorithm 2 and its relatives on one simulated task, with the values deployed.

    Regret and margins are exact where the task can be read, and otherwise estimated.
    """
    if out is not None:
        check_folder(out)
    policies = PolicyValueSet.load(path)
    tasks = rebuild_family(policies.recipe)
    if tasks.digest() != policies.task_digest:
        raise ArtifactError(f"{path}: was trained on other tasks than {dict(policies.recipe)} makes; train it again")
    check_terms(method, [] if risk is None else ["risk"])
    settings = Adaptation(numbers("task", task), method, episodes, Adaptation.risk if risk is None else risk, seed)
    if method == "certified" and not as_json:
        print_lines(advice(policies).lines)
    with progress(not as_json) as report:
        results = adapt_one(policies, tasks, settings, report)
    if out is not None:
        write_report(out, results, page(results))
    if as_json:
        print_json(results)
        return
    print_lines([f"margins: budget minus {policies.units.kind}"])
    show_all(tables(results), results["seconds"])
    if out is not None:
        print_path(out / "report.html", "curves.png and results.json beside it")


@app.command("plan")
def plan_command(
    path: Annotated[Path | None, typer.Argument(metavar="[SET]", help="Policy set saved by train.")] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=10**18, help="Episodes you could afford; 40,000 by default.")
    ] = None,
    risk: Annotated[
        float | None, typer.Option(help="Probability with which any deployed policy may break a budget; 0.05.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="The paper's Table 1 instead, for SET or these numbers:")
    ] = False,
    states: Annotated[int | None, typer.Option(min=1, help="With --table: |S|.")] = None,
    actions: Annotated[int | None, typer.Option(min=1, help="With --table: |A|.")] = None,
    discount: Annotated[float | None, typer.Option(help="With --table: γ.")] = None,
    xi: Annotated[float | None, typer.Option(help="With --table: margin of the safe policy, unit scale.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="With --table: accuracy, unit scale.")] = None,
    cover: Annotated[int | None, typer.Option(min=1, help="With --table: tasks that cover the distribution.")] = None,
    as_json: Json = False,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="What surefoot calibrate wrote, for a line of its method."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="File with the key that sealed the calibration.")
    ] = None,
) -> None:
    """How many episodes each method needs before it may leave the safe policy.

    With a calibration its method is tried at the setting that it allows, too; without the key of its seal it is only
    claimed.
    """
    if risk is not None:
        check_unit_interval("risk", risk)
    policies = None if path is None else PolicyValueSet.load(path)
    given = drop_none(states=states, actions=actions, discount=discount, xi=xi, epsilon=epsilon, cover=cover)
    asked = drop_none(episodes=episodes, risk=risk, calibration=calibration)
    if table:
        if asked:
            raise InvalidInput(
                f"{', '.join(asked)} must be left out with --table, which has no such number, got {asked}"
            )
        _show_table(problem(policies, given), as_json)
        return
    if given:
        raise InvalidInput(f"{', '.join(given)} must be left out without --table, got {given}")
    if policies is None:
        raise InvalidInput("SET must be given, or --table with numbers, got neither")
    budget = ", ".join(f"{value:g}" for value in policies.units.budget)
    if key is not None and calibration is None:
        raise InvalidInput("key must come with a calibration that it sealed, got none")
    counted = None if calibration is None else read_calibration(calibration, read_key(key))
    chosen = 0.05 if risk is None else risk
    with progress(not as_json) as report:
        found = plan(policies, episodes=episodes or 40_000, risk=chosen, calibration=counted, progress=report)
    lines = plain_plan(found)
    if as_json:
        print_json(lines)
    else:
        print_lines([*advice(policies).lines, f"budget {budget} on the {policies.units.kind}"])
        show_sentences(plan_table(lines))


def _show_table(problem: Problem, as_json: bool) -> None:
    rows, useful = sample_complexities(problem), largest_useful_cover(problem)
    if as_json:
        print_json({**asdict(problem), "rows": [asdict(row) for row in rows], "largest_useful_cover": useful})
        return
    print_lines([", ".join(f"{name} {value:g}" for name, value in asdict(problem).items())])
    show(complexity_table(rows))
    print_lines([f"by this table training pays as long as {useful:.3g} tasks or fewer cover the distribution"])


@app.command("methods")
def methods_command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One method, in detail.")] = None,
    as_json: Json = False,
) -> None:
    """Every method: what it needs, what it promises or that it is uncertified, and what it costs."""
    if name is not None:
        found = spec_of(name).described()
        if as_json:
            print_json(found)
        else:
            print_lines(_detail(found))
        return
    rows = [spec.described() for spec in specs()]
    if as_json:
        print_json(rows)
        return
    show_sentences(_table(rows))
    print_lines(["", "surefoot methods NAME says it in detail; docs/guarantees.md has the theorems"])


def _table(rows: list[dict[str, Any]]) -> Table:
    cells = tuple(
        (
            row["method"],
            "certified" if row["certified"] else "uncertified",
            TOLD[row["observes"]],
            f"{row['promises']}. Needs {', '.join(row['needs'])}. Costs: {row['costs']}.",
        )
        for row in rows
    )
    return Table(("method", "promise", "told of an episode", "why, needs and costs"), cells)


def _detail(row: Mapping[str, Any]) -> list[str]:
    sentences = {
        "needs": "; ".join(row["needs"]),
        "told": f"{TOLD[row['observes']]} of every episode",
        "promises": f"{PROMISE if row['certified'] else 'uncertified'}: {row['promises']}",
        "proof": f"docs/guarantees.md, {', '.join(row['proof'])}" if row["proof"] else "none",
        "costs": row["costs"],
        "options": ", ".join(row["options"]) or "none",
    }
    lines = [row["method"]]
    for word, sentence in sentences.items():
        first, *rest = wrap(sentence, SENTENCES - MARGIN)
        lines += [f"{word:<{MARGIN}}{first}", *(" " * MARGIN + part for part in rest)]
    return lines

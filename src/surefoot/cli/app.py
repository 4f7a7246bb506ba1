"""The command line: parsing and printing only."""

from __future__ import annotations

import inspect
import reprlib
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from surefoot import __version__
from surefoot.arrays import fraction
from surefoot.bench.run import run as run_bench
from surefoot.cli.deployment import register, report_journal
from surefoot.cli.reproduce import reproduce_app
from surefoot.cli.terminal import (
    MOST_EPISODES,
    Json,
    Out,
    Risk,
    Seed,
    check_words,
    complain,
    console,
    plain_table,
    print_json,
    print_methods,
    print_path,
    progress,
    show_warning,
    usage_message,
)
from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError
from surefoot.experiments import single
from surefoot.experiments.baselines.page import baselines_page
from surefoot.experiments.families.page import families_page
from surefoot.experiments.gridworld.page import gridworld_page
from surefoot.experiments.promise.run import promise_page
from surefoot.experiments.results import Report, check_folder, redraw, write_report
from surefoot.experiments.shift.run import shift_page
from surefoot.files import check_folder as check_out
from surefoot.methods import METHODS
from surefoot.methods import plan as plan_methods
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.policyset.storage import check_target
from surefoot.tasks import factored, gridworld, inventory, maintenance, media, two_walls, windy_gridworld
from surefoot.tasks.family import TaskDistribution
from surefoot.training.preflight import preflight
from surefoot.training.training_phase import train as train_policies

app = typer.Typer(
    help="Constrained meta reinforcement learning with provable test-time safety.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce_app, name="reproduce")
register(app)

# Recent releases of typer carry a click of their own, so its usage errors are named through what typer exports.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
MOST_SAMPLES = 5 * 10**7

FAMILIES: Mapping[str, Callable[..., TaskDistribution]] = {
    "gridworld": gridworld,
    "windy": windy_gridworld,
    "maintenance": maintenance,
    "factored": factored,
    "media": media,
    "inventory": inventory,
    "two-walls": two_walls,
}

SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]


def main() -> None:
    """Entry point: what the user can mend is one sentence on standard error and exit code 2."""
    warnings.showwarning = show_warning
    try:
        check_words(sys.argv[1:])
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except SurefootError as error:
        code = complain(str(error))
    except UsageError as error:
        code = complain(usage_message(error))
    except MemoryError as error:
        code = complain(f"this takes more memory than there is ({error}); use smaller numbers or a larger machine")
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"surefoot {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Constrained meta reinforcement learning with provable test-time safety."""


@app.command("train")
def train_command(
    family: Annotated[str, typer.Argument(help=f"Task family: {', '.join(FAMILIES)}.")],
    out: Out,
    epsilon: Annotated[float, typer.Option(help="Radius of the cover in the paper's distance.")] = 0.005,
    delta: Annotated[float, typer.Option(help="The paper's δ.")] = 0.05,
    xi: Annotated[float | None, typer.Option(help="Margin of the safe policy, unit scale.")] = None,
    kernel: Annotated[str, typer.Option(help="Gridworld: published or text.")] = "published",
    std: Annotated[float, typer.Option(help="Gridworld: standard deviation of the noise.")] = 0.03,
    safe_noise: Annotated[float, typer.Option(help="Gridworld: noise whose optimal policy is the safe policy.")] = 0.4,
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a policy set that is at --out already.")] = False,
    as_json: Json = False,
) -> None:
    """Algorithm 1: a policy-value set for a family of tasks, saved to --out."""
    check_out(out)
    check_target(out, force=force, argument="out")
    grid = {"family": family, "kernel": kernel, "std": std, "safe_noise": safe_noise}
    tasks = _family(FAMILIES[family]().recipe if family in FAMILIES and family != "gridworld" else grid)
    guard = preflight(tasks, epsilon=epsilon, delta=delta, xi=xi)
    if guard.samples is not None and guard.samples > MOST_SAMPLES:
        raise InvalidInput(
            f"epsilon and delta must be larger, got {epsilon:g} and {delta:g}: a cover as fine as that takes about "
            f"{guard.samples:.2g} sampled tasks, and {MOST_SAMPLES:.2g} is the most that the command line samples"
        )
    if not as_json:
        for line in guard.lines:
            console.print(line, highlight=False, soft_wrap=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the guard has just been printed
        try:
            policies = train_policies(tasks, epsilon=epsilon, delta=delta, xi=xi, seed=seed)
        except Infeasible as error:
            asked = f"safe_noise {safe_noise:g}, xi {xi}" if family == "gridworld" else f"xi {xi}"
            raise Infeasible(f"{asked}: {error}", error.least_cost) from None
    policies.save(out, force=force)
    facts = {
        "policies": len(policies),
        "xi": policies.xi,
        "safe_risk": policies.safe_risk,
        **policies.training,
        "path": str(out),
    }
    if as_json:
        print_json(facts)
    else:
        console.print(
            f"{len(policies)} policies from {facts['samples']:,} tasks, safe margin ξ = {policies.xi:.4g}, infeasible "
            f"safe policy on a fresh task with probability at most {policies.safe_risk:.2g} → {out}",
            highlight=False,
            soft_wrap=True,
        )


@app.command("adapt")
def adapt_command(
    path: SetPath,
    task: Annotated[str, typer.Option("--task", help="Parameter of the test task, e.g. 0.31.")],
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "certified",
    episodes: Annotated[int, typer.Option(min=1, max=MOST_EPISODES, help="Number of episodes.")] = 40_000,
    risk: Risk = 0.05,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.json and report.html.")] = None,
    as_json: Json = False,
) -> None:
    """Algorithm 2 and its relatives on one simulated task, with exact regret and margins."""
    if out is not None:
        check_folder(out)
    policies = PolicyValueSet.load(path)
    tasks = _family(policies.recipe)
    if tasks.digest() != policies.task_digest:
        raise ArtifactError(f"{path}: was trained on other tasks than {dict(policies.recipe)} makes; train it again")
    with progress(not as_json) as show:
        results = single.adapt_one(
            policies, tasks, _parameter(task), method=method, episodes=episodes, risk=risk, seed=seed, progress=show
        )
    if out is not None:
        write_report(out, results, single.single_page(results))
    if as_json:
        print_json(results)
    else:
        print_methods(results)
        if out is not None:
            print_path(out / "report.html", "curves.png and results.json beside it")


@app.command("plan")
def plan_command(
    path: SetPath,
    episodes: Annotated[int, typer.Option(min=1, max=10**18, help="Episodes you could afford.")] = 40_000,
    risk: Risk = 0.05,
    as_json: Json = False,
) -> None:
    """How many episodes each method needs before it may leave the safe policy."""
    fraction("risk", risk)
    lines = plan_methods(PolicyValueSet.load(path), episodes=episodes, risk=risk)
    if as_json:
        never = float("inf")
        print_json(
            [
                {
                    "method": line.method,
                    "certified": line.certified,
                    "episodes": None if line.episodes == never else line.episodes,
                    "reason": line.reason,
                }
                for line in lines
            ]
        )
        return
    table = plain_table("method", "certified", "episodes on the safe policy", "why", numbers=(2,))
    for line in lines:
        count = "all" if line.episodes == float("inf") else f"{line.episodes:,.0f}"
        table.add_row(line.method, "yes" if line.certified else "no", count, line.reason)
    console.print(table)


@app.command("report")
def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier run, or journal of a deployment.")],
    as_json: Json = False,
) -> None:
    """Draw the figures and the HTML page of an earlier run, or of a deployment, again."""
    if run.is_file():
        page = report_journal(run)
    else:
        redraw(run, _page)
        page = run / "report.html"
    if as_json:
        print_json({"report": str(page)})
    else:
        print_path(page)


@app.command("bench")
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look.")] = False,
    as_json: Json = False,
) -> None:
    """Speed against the plain way of doing the same, as ratios measured in this one run."""
    with progress(not as_json) as show:
        rows = run_bench(quick=quick, progress=show)
    if as_json:
        print_json([row.as_dict() for row in rows])
        return
    table = plain_table("what", "ours", "plain way", "ratio", "note", numbers=(3,))
    for row in rows:
        table.add_row(row.what, row.ours, row.plain, row.ratio_text, row.note)
    console.print(table)


def _family(recipe: Mapping[str, Any]) -> TaskDistribution:
    """A task family from its recipe: its name, and the arguments of the function of that name."""
    name, arguments = recipe.get("family"), {key: value for key, value in recipe.items() if key != "family"}
    if isinstance(name, str) and name not in FAMILIES:
        raise InvalidInput(f"family must be one of {', '.join(FAMILIES)}, got {name!r}"[:400])
    if not isinstance(name, str) or arguments.keys() != inspect.signature(FAMILIES[name]).parameters.keys():
        raise InvalidInput(
            f"SET must carry the recipe of a family that the command line can build ({', '.join(FAMILIES)}), "
            f"got {reprlib.repr(dict(recipe)) if recipe else 'none'}; run this set with surefoot.adapt from Python"
        )
    try:
        return FAMILIES[name](**arguments)
    except (TypeError, ArithmeticError) as error:
        raise InvalidInput(f"SET must carry a recipe with arguments of {name}, got {arguments} ({error})") from None


def _page(results: Mapping[str, Any]) -> Report:
    pages: Mapping[str, Callable[[Any], Report]] = {
        "gridworld": gridworld_page,
        "promise": promise_page,
        "shift": shift_page,
        "families": families_page,
        "baselines": baselines_page,
        "adapt": single.single_page,
    }
    return pages[results["experiment"]](results)


def _parameter(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"task must be numbers separated by commas, such as 0.31, got {text!r}") from None

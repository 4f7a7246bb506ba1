"""The command line: parsing and printing only."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from surefoot import __version__
from surefoot.adapt.plan import plan as plan_methods
from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError
from surefoot.experiments import single
from surefoot.experiments.bench import run as run_bench
from surefoot.experiments.gridworld.page import gridworld_page
from surefoot.experiments.gridworld.run import reproduce as reproduce_gridworld
from surefoot.experiments.gridworld.settings import QUICK, Settings
from surefoot.experiments.results import Report, check_folder, redraw, write_report
from surefoot.methods import METHODS
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.family import TaskDistribution
from surefoot.tasks.gridworld import gridworld
from surefoot.train.preflight import preflight
from surefoot.train.training_phase import train as train_policies

app = typer.Typer(
    help="Constrained meta reinforcement learning with provable test-time safety.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
reproduce_app = typer.Typer(help="Reproduce an experiment of the paper.")
app.add_typer(reproduce_app, name="reproduce")

# A pipe or a file has no width to wrap tables to.
console = Console(width=None if sys.stdout.isatty() else 400)
errors = Console(stderr=True)

# Recent releases of typer carry a click of their own, so its usage errors are named through what typer exports.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
LARGEST_SEED = 2**32 - 1
MOST_SAMPLES = 5 * 10**7
MOST_EPISODES = 10**8  # a run keeps three numbers per episode in memory

Out = Annotated[Path, typer.Option("--out", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Same seed, same result.")]
Risk = Annotated[float, typer.Option("--risk", help="Probability with which any deployed policy may break a budget.")]
SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]


def main() -> None:
    """Entry point: what the user can mend is one sentence on standard error and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except SurefootError as error:
        code = _complain(str(error))
    except UsageError as error:
        code = _complain(_usage_message(error))
    sys.exit(code)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Constrained meta reinforcement learning with provable test-time safety."""


@reproduce_app.command("gridworld")
def gridworld_command(
    out: Out,
    episodes: Annotated[
        int | None, typer.Option(min=1, max=MOST_EPISODES, help="Episodes per task; 40000 by default.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Test tasks, the first ten the published ones; 10 by default.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help=f"Comma-separated, out of {', '.join(METHODS)}.")] = None,
    risk: Risk = Settings.risk,
    seed: Seed = Settings.seed,
    quick: Annotated[bool, typer.Option("--quick", help="3 tasks and 4000 episodes unless given.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
) -> None:
    """Figures 1 and 2 of the paper, with the constraint value of every deployed policy computed exactly."""
    base = QUICK if quick else Settings()
    settings = Settings(
        episodes=base.episodes if episodes is None else episodes,
        tasks=base.tasks if tasks is None else tasks,
        methods=base.methods if methods is None else tuple(name.strip() for name in methods.split(",")),
        risk=risk,
        seed=seed,
    )
    with _progress(not as_json) as show:
        results = reproduce_gridworld(settings, out, jobs=jobs, progress=show)
    if as_json:
        _print_json(results)
        return
    _print_methods(results)
    _print_plan_sentence(results)
    _print_path(out / "report.html", "figure1.png, figure2.png, results.json and gridworld.policyset beside it")


@app.command("train")
def train_command(
    family: Annotated[str, typer.Argument(help="Task family: gridworld.")],
    out: Out,
    epsilon: Annotated[float, typer.Option(help="Radius of the cover in the paper's distance.")] = 0.005,
    delta: Annotated[float, typer.Option(help="The paper's δ.")] = 0.05,
    xi: Annotated[float | None, typer.Option(help="Margin of the safe policy, unit scale.")] = None,
    kernel: Annotated[str, typer.Option(help="published or text.")] = "published",
    std: Annotated[float, typer.Option(help="Standard deviation of the noise.")] = 0.03,
    safe_noise: Annotated[float, typer.Option(help="Noise whose optimal policy is the safe policy.")] = 0.4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Algorithm 1: a policy-value set for a family of tasks, saved to --out."""
    check_folder(out)
    tasks = _family({"family": family, "kernel": kernel, "std": std, "safe_noise": safe_noise})
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
            raise Infeasible(f"safe_noise {safe_noise:g}, xi {xi}: {error}", error.least_cost) from None
    policies.save(out)
    facts = {"policies": len(policies), "xi": policies.xi, **policies.training, "path": str(out)}
    if as_json:
        _print_json(facts)
    else:
        console.print(
            f"{len(policies)} policies from {facts['samples']:,} tasks, safe margin ξ = {policies.xi:.4g} → {out}",
            highlight=False,
            soft_wrap=True,
        )


@app.command("adapt")
def adapt_command(
    path: SetPath,
    task: Annotated[str, typer.Option("--task", help="Parameter of the test task, e.g. 0.31.")],
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "published",
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
    with _progress(not as_json) as show:
        results = single.adapt_one(
            policies, tasks, _parameter(task), method=method, episodes=episodes, risk=risk, seed=seed, progress=show
        )
    if out is not None:
        write_report(out, results, single.single_page(results))
    if as_json:
        _print_json(results)
    else:
        _print_methods(results)
        if out is not None:
            _print_path(out / "report.html", "curves.png and results.json beside it")


@app.command("plan")
def plan_command(
    path: SetPath,
    episodes: Annotated[int, typer.Option(min=1, max=10**18, help="Episodes you could afford.")] = 40_000,
    risk: Risk = 0.05,
    as_json: Json = False,
) -> None:
    """How many episodes each method needs before it may leave the safe policy."""
    if not 0 < risk < 1:
        raise InvalidInput(f"risk must lie strictly between 0 and 1, got {risk}")
    lines = plan_methods(PolicyValueSet.load(path), episodes=episodes, risk=risk)
    if as_json:
        never = float("inf")
        _print_json(
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
    table = Table("method", "certified", "episodes on the safe policy", "why", box=None, pad_edge=False)
    for line in lines:
        count = "all" if line.episodes == float("inf") else f"{line.episodes:,.0f}"
        table.add_row(line.method, "yes" if line.certified else "no", count, line.reason)
    console.print(table)


@app.command("report")
def report_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder with the results.json of an earlier run.")],
    as_json: Json = False,
) -> None:
    """Draw the figures and the HTML page of an earlier run again."""
    redraw(folder, _page)
    if as_json:
        _print_json({"report": str(folder / "report.html")})
    else:
        _print_path(folder / "report.html")


@app.command("bench")
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look.")] = False,
    as_json: Json = False,
) -> None:
    """Speed against the plain way of doing the same, as ratios measured in this one run."""
    with _progress(not as_json) as show:
        rows = run_bench(quick=quick, progress=show)
    if as_json:
        _print_json([row.as_dict() for row in rows])
        return
    table = Table("what", "ours", "plain way", "ratio", "note", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row.what, row.ours, row.plain, row.ratio_text, row.note)
    console.print(table)


def _family(recipe: Any) -> TaskDistribution:
    """A task family from its recipe."""
    match dict(recipe):
        case {"family": "gridworld", "kernel": kernel, "std": std, "safe_noise": safe_noise}:
            return gridworld(kernel=kernel, std=std, safe_noise=safe_noise)
        case {"family": name} if name != "gridworld":
            raise InvalidInput(f"family must be gridworld, got {name!r}")
        case other:
            raise InvalidInput(
                "SET must carry the recipe of a family that the command line can build (gridworld), "
                f"got {other or 'none'}; run this set with surefoot.adapt from Python"
            )


def _page(results: Mapping[str, Any]) -> Report:
    return gridworld_page(results) if results["experiment"] == "gridworld" else single.single_page(results)


def _parameter(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"task must be numbers separated by commas, such as 0.31, got {text!r}") from None


@contextmanager
def _progress(enabled: bool) -> Iterator[Any]:
    """A bar on a terminal, one plain line per stage elsewhere, nothing when disabled."""
    if not enabled:
        yield lambda what, done, total: None
        return
    if not errors.is_terminal:
        shown: set[str] = set()

        def line(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown.add(what)
                errors.print(f"{what} ...", highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _print_methods(results: dict[str, Any]) -> None:
    table = Table(
        "method", "certified", "regret", "unsafe tasks", "unsafe episodes", "least margin", box=None, pad_edge=False
    )
    for column in table.columns[2:]:
        column.justify = "right"
    for name, summary in results["methods"].items():
        table.add_row(
            name,
            "yes" if summary["certified"] else "uncertified",
            f"{summary['regret_mean']:,.0f}",
            f"{summary['unsafe_tasks']} of {len(summary['regret'])}",
            f"{summary['unsafe_episodes']:,}",
            f"{summary['min_margin']:.4f}",
        )
    console.print(table)
    console.print(
        f"regret: mean over the tasks; margin: budget - expected cost; {results['seconds']:.1f} s", style="dim"
    )


def _print_plan_sentence(results: dict[str, Any]) -> None:
    for line in results["plan"]:
        leaves = line["episodes"] is not None and line["episodes"] < results["settings"]["episodes"]
        if line["method"] == "paper" and "paper" in results["methods"] and not leaves:
            console.print(f"paper equals safe-only: {line['reason']}", highlight=False, soft_wrap=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"surefoot {__version__}", highlight=False)
        raise typer.Exit


def _usage_message(error: Any) -> str:
    """What typer found wrong with the arguments, the value given, and where to read what would be right."""
    command = error.ctx.command_path if error.ctx else "surefoot"
    message = error.format_message().rstrip(".")
    given = _given(getattr(getattr(error, "param", None), "opts", ()))
    if given is not None and repr(given) not in message:
        message += f", got {given!r}"
    return f"{message} (help: {command} --help)"


def _given(names: Sequence[str]) -> str | None:
    """What the user wrote for an option, which typer's messages leave out."""
    words = sys.argv[1:]
    for name, word in zip(words, [*words[1:], None], strict=True):
        if name in names:
            return word
        option, equals, value = name.partition("=")
        if equals and option in names:
            return value
    return None


def _complain(message: str) -> int:
    """One line on standard error; returns the exit code."""
    line = " ".join(message.split())
    errors.print(f"error: {line}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 2


def _print_path(path: Path, beside: str = "") -> None:
    console.print(str(path), style="bold", markup=False, highlight=False, soft_wrap=True)
    if beside:
        console.print(f"({beside})", style="dim", highlight=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    errors.print(f"note: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)

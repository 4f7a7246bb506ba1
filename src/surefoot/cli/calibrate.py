"""`surefoot calibrate`, and what counts runs of a calibration again: parsing and printing only."""

from __future__ import annotations

import math
import pkgutil
import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.bounded_json import parse_strictly
from surefoot.calibration import JUDGED_ON, RUNS, calibrate, choose_path
from surefoot.calibration import recount as count_runs
from surefoot.calibration_runs import TaskOutcomes
from surefoot.cli.journals import read_key
from surefoot.cli.terminal import (
    Json,
    Risk,
    Seed,
    SetPath,
    drop_none,
    numbers,
    optional,
    print_json,
    print_lines,
    print_path,
    progress,
    with_options,
)
from surefoot.cli.train import rebuild_family
from surefoot.cmdp.wording import number, setting_in_words
from surefoot.deploy.calibration_files import LIMITS, write_calibration
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import check_file, read_file, write_file
from surefoot.learning.calibrated import Calibration
from surefoot.methods import CALIBRATED, MOST_EPISODES
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.task_distribution import TaskDistribution

Attempt = Annotated[
    int,
    typer.Option(
        min=0, help="1, one more each time that one calibrates again; 0 if there will be no other, come what may."
    ),
]
SealingKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with a key to seal it, for deploy with the same.")
]

app = typer.Typer(rich_markup_mode=None)


def calibrate_command(
    set_path: SetPath,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSON file for deploy --calibration.")],
    episodes: Annotated[int, typer.Option(min=1, max=MOST_EPISODES, help="The most that will be deployed.")],
    method: Annotated[
        str, typer.Option(help=f"One of {', '.join(CALIBRATED)}, or certified for the strongest.")
    ] = "certified",
    risk: Risk = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="Simulated tasks at each setting.")] = RUNS,
    attempt: Attempt = 1,
    seed: Seed = 0,
    key: SealingKey = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
    tasks: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="A function that makes other tasks than in training.")
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Levels to try, comma-separated; by default the settings of the method.")
    ] = None,
    **options: Any,
) -> None:
    """How bold simulated tasks let a method be, before it is deployed.

    Settings are tried from cautious to bold, on tables by their values, on simulators by fresh episodes. What is
    promised then is joint over the calibration, the task and at most so many episodes. Where one calibration is to
    serve for many deployments, set a part of the risk aside with --error: what is promised then holds for each.
    Whoever calibrates again after seeing the result makes another --attempt, for which less may be unsafe.
    """
    page, file, pilot, record, minutes = (options.pop(name) for name in ("page", "path", "pilot", "record", "minutes"))
    places = [out] if page is None else [out, page]
    for place in places:
        check_file(place)
    sealing, settings, rows = read_key(key), _read_settings(file, pilot), list[TaskOutcomes]()
    policies = PolicyValueSet.load(set_path)
    family = rebuild_family(policies.recipe) if tasks is None else _tasks_of(tasks)
    shared: dict[str, Any] = {"method": method, "episodes": episodes, "risk": risk, "seed": seed, "jobs": jobs}
    shared |= drop_none(**{name: options.pop(name) for name in ("judged_on", "abandoned", "reserve")})
    with progress(not as_json) as report:
        if pilot is not None:
            settings = choose_path(policies, family, settings, runs=pilot, progress=report, **shared)
        found = calibrate(
            policies, family, runs=runs, minutes=minutes, attempt=attempt, path=settings,
            levels=None if levels is None else numbers("levels", levels), progress=report,
            record=record or (rows if page else None), **shared, **drop_none(**options),
        )  # fmt: skip
    content = write_calibration(out, found, sealing)
    if page is not None:
        _write_page(page, found, record or rows)
    if as_json:
        print_json(content)
        return
    print_lines(_calibration_lines(found))
    for place in places:
        print_path(place)


CALIBRATION_OPTIONS = {
    "error": optional(float, help="Part of the risk for a calibration that goes wrong; 0, the joint promise alone."),
    "judged_on": optional(int, min=1, help=f"The most episodes to judge a policy on a simulator; {JUDGED_ON:,}."),
    "minutes": optional(float, help="About how long it may take on a simulator, instead of --runs and --judged-on."),
    "abandoned": optional(float, help="Share of the episodes that have no outcome; 0."),
    "reserve": optional(float, help="Part of the risk for the method as it is proved, after the last episode; 0."),
    "record": optional(str, metavar="FILE", help="Runs as they come; with it an interrupted calibration goes on."),
    "path": Annotated[
        Path | None,
        typer.Option("--path", metavar="FILE", help="JSON list of settings to try, from cautious to bold."),
    ],
    "pilot": optional(
        int, min=1, metavar="N", help="The file of --path lists several; so many other tasks choose one."
    ),
    "page": Annotated[Path | None, typer.Option("--page", metavar="FILE", help="HTML page of what was counted.")],
}
app.command("calibrate")(with_options(calibrate_command, CALIBRATION_OPTIONS))


def _read_settings(file: Path | None, pilot: int | None) -> Any:
    """A list of settings, or of lists of such if there is a pilot."""
    if file is None:
        if pilot is not None:
            raise InvalidInput("pilot must come with --path FILE, a list of paths to choose from, got none")
        return None
    try:
        found = parse_strictly(read_file(file, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"path: {file} is not JSON: {error}") from None
    if not isinstance(found, list):
        raise ArtifactError(f"path: {file} must hold a list, got {found!r:.80}")
    return found


def _write_page(page: Path, found: Calibration, record: str | list[TaskOutcomes]) -> None:
    from surefoot.report.calibration import calibration_page  # draws figures, which other commands do without

    write_file(page, calibration_page(found, record).encode())


def _tasks_of(name: str) -> TaskDistribution:
    """What the function MODULE:NAME returns; modules are also looked for in the folder that one is in, last of all."""
    sys.path.append(str(Path.cwd()))
    try:
        made = pkgutil.resolve_name(name)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"tasks must be MODULE:NAME of a function without arguments, got {name!r} ({error})"
        ) from None
    if not isinstance(made, TaskDistribution):
        raise InvalidInput(f"tasks must be MODULE:NAME of a function that returns tasks, got {type(made).__name__}")
    return made


def _calibration_lines(found: Calibration) -> list[str]:
    which = f"attempt {found.attempt}" if found.attempt else "the only attempt"
    tried = []
    for (setting, unsafe), gain in zip(found.counts, found.gains or (), strict=True):
        or_more, verdict = ("", "passed") if found.passes(unsafe) else (" or more", "failed")
        tried.append(
            f"{setting_in_words(setting)}: {unsafe:,}{or_more} of {found.runs:,} simulated tasks unsafe, {verdict}; "
            f"{number(gain)} an episode more than the safe policy earns"
        )
    tried.append(f"{which}: up to {found.allowed:,} of {found.runs:,} may be unsafe")
    if found.level is None:
        return [*tried, *_without_a_level(found)]
    return [
        *tried,
        f"{found.method} at {setting_in_words(found.level)}, risk {found.risk:g}, at most {found.episodes:,} episodes",
    ]


def _without_a_level(found: Calibration) -> tuple[str, ...]:
    """What is left to do, and what it costs."""
    again = "" if found.attempt == 0 else f"; calibrating again is attempt {found.attempt + 1}"
    return (
        f"no setting passed: use {found.method} as it is proved, without a calibration{again}",
        f"falling back like this has a joint risk of at most {found.fallback_risk:.3f} instead of {found.risk:g}, "
        "if the method alone keeps to it on this policy set, as is proved for tables of affine and finite families; "
        "elsewhere its risk is joint over the training",
    )


def count_again(found: Calibration, policies: PolicyValueSet, runs: int, tasks: str | None) -> tuple[Calibration, str]:
    """A calibration some of whose runs were computed again, drawn with a seed that nobody could know; and in words."""
    seed, drawn_from = secrets.randbits(63), _tasks_of_calibration(found, policies, tasks)
    with progress(True) as report:
        found = count_runs(found, policies, drawn_from, runs=runs, seed=seed, progress=report)
    share = 1 - math.exp(math.log(found.risk) / runs)
    return found, (
        f"{runs:,} of {found.runs:,} runs computed again, drawn with seed {seed}: all are as the calibration says; if "
        f"{100 * share:.2g} % of them were not, this would have had a probability of at most {found.risk:g}"
    )


def _tasks_of_calibration(found: Calibration, policies: PolicyValueSet, name: str | None) -> TaskDistribution:
    """Those of MODULE:NAME, or of the recipe of the policy set, if the calibration was made on them."""
    made = rebuild_family(policies.recipe) if name is None else _tasks_of(name)
    if found.tasks is not None and not found.tasks.endswith(made.digest()):
        others = "SET was trained on others" if name is None else f"{name} makes others"
        raise InvalidInput(
            f"tasks must be those that the calibration was made on, {found.tasks}, but {others}, digest "
            f"{made.digest()}: name the function that made them, --tasks MODULE:NAME"
        )
    return made

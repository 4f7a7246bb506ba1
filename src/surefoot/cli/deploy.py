"""The commands that prepare, run and check deployments: parsing and printing only."""

from __future__ import annotations

import json
import math
import pkgutil
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from surefoot.bounded_json import parse_strictly
from surefoot.calibration import JUDGED_ON, calibrate, choose_path
from surefoot.calibration import recount as count_runs
from surefoot.calibration_runs import TaskOutcomes
from surefoot.cli.journals import JournalPath, KeyFile, count_rows, read_key, reading
from surefoot.cli.terminal import (
    Json,
    Risk,
    Seed,
    drop_none,
    input_stream,
    numbers,
    optional,
    print_json,
    print_lines,
    print_path,
    printable,
    progress,
    show_warning,
    with_options,
)
from surefoot.cli.train import rebuild_family
from surefoot.cmdp.wording import number, setting_in_words
from surefoot.deploy.calibration_files import LIMITS, read_calibration, write_calibration
from surefoot.deploy.chain import STRANGE
from surefoot.deploy.protocol import LONGEST_LINE, failure, serve
from surefoot.deploy.replay import header_settings
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import certificate_in_words, order_in_words
from surefoot.deploy.verify import Verification, read_header, verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.files import check_file, read_file, write_file
from surefoot.interrupts import defer_sigint
from surefoot.learning.calibrated import CLAIMED, Calibration, parse_calibration
from surefoot.learning.learner import Learner
from surefoot.methods import CALIBRATED, METHODS, MOST_EPISODES, check_terms, learner
from surefoot.policyset.export import write_policy
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.task_distribution import TaskDistribution

SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]
Policies = Annotated[Path, typer.Option("--policies", metavar="SET", help="The policy set that was deployed.")]
Attempt = Annotated[
    int,
    typer.Option(
        min=0, help="1, one more each time that one calibrates again; 0 if there will be no other, come what may."
    ),
]
SealingKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with a key to seal it, for deploy with the same.")
]
Recount = Annotated[
    int | None,
    typer.Option(
        "--recount", min=1, metavar="N", help="Compute so many runs of the calibration again, drawn at random."
    ),
]
RecountTasks = Annotated[
    str | None,
    typer.Option(
        "--tasks", metavar="MODULE:NAME", help="With --recount: a function that makes the tasks of the calibration."
    ),
]


PIECE = 2**16  # bytes of a line that are read at once

DEFAULTS: dict[str, Any] = {"method": "certified", "risk": 0.05, "episodes": None, "seed": 0}

MOST_ALARMS = 20  # that are printed

app = typer.Typer(rich_markup_mode=None)


def calibrate_command(
    set_path: SetPath,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSON file for deploy --calibration.")],
    episodes: Annotated[int, typer.Option(min=1, max=MOST_EPISODES, help="The most that will be deployed.")],
    method: Annotated[
        str, typer.Option(help=f"One of {', '.join(CALIBRATED)}, or certified for the strongest.")
    ] = "certified",
    risk: Risk = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="Simulated tasks at each setting.")] = 600,
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
    page, file, pilot, record = (options.pop(name) for name in ("page", "path", "pilot", "record"))
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
            policies, family, runs=runs, attempt=attempt, path=settings,
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


def deploy_command(
    path: SetPath,
    journal: Annotated[Path, typer.Option("--journal", help="Journal to begin or to go on with.")],
    **options: Any,
) -> None:
    """Ask and tell in JSON lines on standard input and output, for controllers in any language.

    With a calibration it is certified if the file has the seal of --key, or if --recount finds its runs as it says.
    """
    calibration, recount, tasks, key = (options.pop(name) for name in ("calibration", "recount", "tasks", "key"))
    try:
        input_stream()
        policies = PolicyValueSet.load(path)
        options["calibration"] = _calibration(calibration, policies, recount, tasks, key)
        with reading(journal) as observer:
            deployment = Deployment.open(
                journal,
                lambda header: _learner(policies, journal, header, options),
                key=read_key(key),
                observer=observer,
            )
    except SurefootError as error:
        _send(json.dumps(failure(error)))
        raise
    with deployment:
        try:
            for line in _lines():
                with defer_sigint():  # what was asked is answered
                    serve(deployment, [line], _send)
        except BrokenPipeError:
            sys.stderr.close()  # the controller is gone, and so is whoever would read a complaint


# Those of the learner, under the names of `methods.learner`, and after them what certifies a calibration.
OPTIONS: dict[str, Any] = {
    "method": optional(str, help=f"One of {', '.join(METHODS)}; certified by default."),
    "risk": optional(float, help="Probability of ever breaking a budget; 0.05."),
    "episodes": optional(int, min=1, help="Episodes in all, for methods that must know."),
    "seed": optional(int, min=0, help="Of the draws; 0."),
    "horizon": optional(int, min=1, help="Steps of an episode that does not end by itself."),
    "observes": optional(str, help="For certified: transitions, signals, first-state or sums."),
    "assume_safe": optional(bool, "--assume-safe", help="The safe policy is known to be feasible on this very system."),
    "shift": optional(float, help="Distance at which the system may lie from those trained for; 0."),
    "calibration": Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="What surefoot calibrate wrote for this method."),
    ],
    "recount": Recount,
    "tasks": RecountTasks,
    "key": KeyFile,
}
app.command("deploy")(with_options(deploy_command, OPTIONS))


@app.command("verify")
def verify_command(
    path: JournalPath,
    policies: Policies,
    head: Annotated[str | None, typer.Option("--head", help="A hash published earlier; it must occur.")] = None,
    key: KeyFile = None,
    recount: Recount = None,
    tasks: RecountTasks = None,
    as_json: Json = False,
) -> None:
    """Recompute every row from the policy set and name the first that does not follow; exit code 1 if there is one.

    Whether the outcomes in it are what happened, it cannot tell. With --recount runs of the calibration that it rests
    on are computed again, too, and must be as it says.
    """
    _check_recount(recount, tasks)
    known = PolicyValueSet.load(policies)
    made = learner_of(known, read_header(path))
    with progress(not as_json) as report:
        rows = count_rows(path)
        verdict = verify(
            path, made, head=head, key=read_key(key), observer=lambda done: report("checking rows", done, rows)
        )
    again = "" if recount is None or not verdict.holds else _recount(made, known, recount, tasks)
    if as_json:
        print_json({**verdict.as_dict(), **({"recount": again} if again else {})})
    else:
        for line in (*_verdict_lines(path, made, verdict), *([again] if again else [])):
            typer.echo(printable(line))
    if not verdict.holds:
        raise typer.Exit(1)


def _verdict_lines(path: Path, made: Learner, verdict: Verification) -> Iterator[str]:
    if not verdict.holds:
        yield f"{path}: first bad row {verdict.first_bad}: {verdict.reason}"
        return
    yield f"{path}: all {verdict.rows:,} rows of {verdict.episodes:,} episodes follow; head {verdict.head}"
    risk = "no risk stated" if verdict.risk is None else f"risk {verdict.risk:g}"
    certificate = certificate_in_words(made.method.certified, verdict.certified)
    yield f"method {verdict.method} ({certificate}), {risk}"
    for name, sentence in verdict.assumptions:
        yield f"{name}: {sentence}"
    counts = ("abandoned", verdict.abandoned), ("outside declared ranges", verdict.breaches)
    yield ", ".join(f"{name} {count:,}" for name, count in (*counts, ("alarms", len(verdict.alarms))))
    for alarm in verdict.alarms[-MOST_ALARMS:]:
        yield f"alarm: {alarm}"
    yield f"next order: {order_in_words(verdict.next_order)}"
    computed = "weights, margins and signals" if made.method.observes == "signals" else "weights and margins"
    yield f"{computed} agree to {verdict.rounding:.1g}; whether the outcomes are true cannot be seen from here"


def _check_recount(recount: int | None, tasks: str | None) -> None:
    if tasks is not None and recount is None:
        raise InvalidInput(f"tasks must come with recount, whose runs are on them, got {tasks!r} alone")


def _recount(made: Learner, policies: PolicyValueSet, runs: int, tasks: str | None) -> str:
    found = made.settings.get("calibration")
    if found is None:
        raise InvalidInput("recount must be left out for a journal without a calibration")
    return count_again(parse_calibration(found), policies, runs, tasks)[1]


@app.command("export-policy")
def export_policy_command(
    path: SetPath,
    policy: Annotated[int, typer.Argument(min=0, help="Number of the policy, as in an order; 0 is the safe one.")],
    out: Annotated[Path, typer.Option("--out", help="File ending in .safetensors or .onnx.")],
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Needed for policies that were planned during a deployment.")
    ] = None,
    as_json: Json = False,
) -> None:
    """One policy as a file of its own."""
    policies = PolicyValueSet.load(path)
    known: Any = policies.policies
    if journal is not None:
        chosen = learner_of(policies, read_header(journal))
        verdict = verify(journal, chosen)
        if not verdict.holds:
            raise ArtifactError(f"{journal}: {verdict.reason}")
        try:
            write_policy(chosen.policy(policy), out)
        except IndexError:
            raise InvalidInput(f"policy must have been ordered or be in the set, got {policy}") from None
    elif policy >= len(known):
        raise InvalidInput(
            f"policy must be at most {len(known) - 1} for this set, got {policy}; "
            "a policy planned during a deployment needs its --journal"
        )
    else:
        write_policy(known[policy], out)
    if as_json:
        print_json({"file": str(out), "policy": policy})
    else:
        typer.echo(printable(str(out)))


def _calibration(
    file: Path | None, policies: PolicyValueSet, recount: int | None, tasks: str | None, key: Path | None
) -> Calibration | None:
    """What is in the file, and how it is known; notes go to standard error, where no controller reads."""
    _check_recount(recount, tasks)
    if file is None:
        if recount is not None:
            raise InvalidInput("recount must come with a calibration of which to recount runs, got none")
        return None
    found = read_calibration(file, read_key(key))
    if recount is not None:
        found, said = count_again(found, policies, recount, tasks)
        show_warning(said)
    elif found.standing == "claimed":
        show_warning(CLAIMED)
    return found


def _learner(
    policies: PolicyValueSet, journal: Path, header: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Learner:
    """As the journal records, if there is one; options that say otherwise are refused."""
    given = drop_none(**options)
    if header is None:
        settings = {**DEFAULTS, **given}
        check_terms(settings["method"], given)
        return _make_learner(policies, settings)
    recorded = _settings_of_header(header)
    for name, value in given.items():
        if not _same(recorded.get(name), value):
            raise InvalidInput(f"{name} must be {recorded.get(name)!r} as when {journal} was begun, got {value!r}")
    return _make_learner(policies, recorded)


def _same(recorded: Any, given: Any) -> bool:
    """A calibration keeps the standing that the deployment was begun with."""
    if isinstance(given, Calibration) and isinstance(recorded, Calibration):
        return replace(given, standing=recorded.standing) == recorded
    return bool(recorded == given)


def learner_of(policies: PolicyValueSet, header: Mapping[str, Any]) -> Learner:
    """A fresh learner, made as row 0 of a journal says."""
    return _make_learner(policies, _settings_of_header(header))


def _settings_of_header(header: Mapping[str, Any]) -> dict[str, Any]:
    settings = header_settings(header)
    if settings.get("method") not in METHODS:
        raise ArtifactError(
            f"the journal was written by a method of the user's own, {header['method']!r}: make its learner again in "
            "Python and pass it to surefoot.deploy.verify.verify"
        )
    return settings


def _make_learner(policies: PolicyValueSet, settings: Mapping[str, Any]) -> Learner:
    try:
        return learner(policies, **settings)
    except SurefootError:
        raise
    except (*STRANGE, MemoryError) as error:
        raise ArtifactError(f"row 0 of the journal has settings that make no learner: {error}") from None


def _lines() -> Iterator[bytes | MemoryError]:
    """Lines of standard input; of one that is too long only as much as shows that it is."""
    stream = input_stream()
    while piece := stream.readline(PIECE):
        yield _line(stream, piece)


def _line(stream: BinaryIO, first: bytes) -> bytes | MemoryError:
    """The line that begins with `first`, read to its end whatever happens: the rest of it is no request."""
    pieces, piece, length, short = [first], first, len(first), None
    while not piece.endswith(b"\n"):
        try:
            piece = stream.readline(PIECE)
            if not piece:
                break
            if length <= LONGEST_LINE:
                pieces.append(piece)
            length += len(piece)
        except MemoryError as error:
            if not pieces:
                raise
            short, length = error, LONGEST_LINE + 1
            pieces.clear()
    try:
        return short or b"".join(pieces)
    except MemoryError as error:
        return error


def _send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

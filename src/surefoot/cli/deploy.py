"""The commands that run and check deployments: parsing and printing only."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from surefoot.cli.calibrate import count_again
from surefoot.cli.journals import JournalPath, KeyFile, count_rows, read_key, reading
from surefoot.cli.terminal import (
    Json,
    SetPath,
    drop_none,
    input_stream,
    optional,
    print_json,
    printable,
    progress,
    show_warning,
    with_options,
)
from surefoot.deploy.calibration_files import read_calibration
from surefoot.deploy.chain import STRANGE
from surefoot.deploy.protocol import LONGEST_LINE, failure, serve
from surefoot.deploy.replay import header_settings
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import certificate_in_words, order_in_words
from surefoot.deploy.verify import Verification, read_header, verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.interrupts import defer_sigint
from surefoot.learning.calibrated import CLAIMED, Calibration, parse_calibration
from surefoot.learning.learner import Learner
from surefoot.methods import METHODS, check_terms, learner
from surefoot.policyset.export import write_policy
from surefoot.policyset.policy_value_set import PolicyValueSet

Policies = Annotated[Path, typer.Option("--policies", metavar="SET", help="The policy set that was deployed.")]
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


def deploy_command(
    path: SetPath,
    journal: Annotated[Path, typer.Option("--journal", help="Journal to begin or to go on with.")],
    **options: Any,
) -> None:
    """Ask and tell in JSON lines on standard input and output, for controllers in any language.

    With a calibration it is certified if the file has the seal of --key, or if --recount finds its runs as it says.
    """
    names = ("calibration", "recount", "tasks", "key", "history")
    calibration, recount, tasks, key, history = (options.pop(name) for name in names)
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
                history=history,
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
    "history": Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="Earlier episodes of the safe policy on this very system, .csv or .jsonl, as evidence.",
        ),
    ],
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
    names = None if made.method.policies is None else made.method.policies.names
    yield f"next order: {order_in_words(verdict.next_order, names)}"
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

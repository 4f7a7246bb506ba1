"""The commands for deployments: parsing and printing only. `register` adds them to the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.deploy.backup import backup
from surefoot.deploy.chain import STRANGE, read, understood
from surefoot.deploy.page import deployment_page
from surefoot.deploy.policy_files import write_policy
from surefoot.deploy.protocol import LONGEST_LINE, failure, serve
from surefoot.deploy.replay import recorded_settings
from surefoot.deploy.seals import LONGEST
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import Status, read_status
from surefoot.deploy.verify import Verdict, read_header, verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.files import check_file, write_file
from surefoot.learning.learner import Learner
from surefoot.methods import METHODS, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.page import render

SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]
JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="Journal of a deployment.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with the key that seals the journal.")
]
Policies = Annotated[Path, typer.Option("--policies", metavar="SET", help="The policy set that was deployed.")]

DEFAULTS: dict[str, Any] = {"method": "certified", "risk": 0.05, "episodes": None, "seed": 0}


def register(app: typer.Typer) -> None:
    """Add the commands; `report` is for the command line's own command to call, as `report_journal`."""
    app.command("deploy")(deploy_command)
    app.command("status")(status_command)
    app.command("export")(export_command)
    app.command("verify")(verify_command)
    app.command("backup")(backup_command)
    app.command("export-policy")(export_policy_command)


def deploy_command(
    path: SetPath,
    journal: Annotated[Path, typer.Option("--journal", help="Journal to begin or to go on with.")],
    method: Annotated[str | None, typer.Option(help=f"One of {', '.join(METHODS)}; certified by default.")] = None,
    risk: Annotated[float | None, typer.Option(help="Probability of ever breaking a budget; 0.05.")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes in all, for methods that must know.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the draws; 0.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode that does not end by itself.")] = None,
    observes: Annotated[str | None, typer.Option(help="For certified: transitions, first-state or sums.")] = None,
    assume_safe: Annotated[
        bool | None, typer.Option("--assume-safe", help="The safe policy is known to be feasible on this very system.")
    ] = None,
    key: KeyFile = None,
) -> None:
    """Ask and tell in JSON lines on standard input and output, for controllers in any language."""
    given = {
        "method": method,
        "risk": risk,
        "episodes": episodes,
        "seed": seed,
        "horizon": horizon,
        "observes": observes,
        "assume_safe": assume_safe,
    }
    try:
        policies = PolicyValueSet.load(path)
        deployment = Deployment.open(journal, lambda header: _learner(policies, journal, header, given), key=_key(key))
    except SurefootError as error:
        _send(json.dumps(failure(error)))
        raise
    with deployment:
        try:
            serve(deployment, _lines(), _send)
        except BrokenPipeError:
            sys.stderr.close()  # the controller is gone, and so is whoever would read a complaint


def status_command(path: JournalPath, as_json: Json = False) -> None:
    """Where a deployment stands, while it runs or afterwards."""
    status = read_status(path)
    if as_json:
        _print_json(status.as_dict())
        return
    for name, value in _status_lines(status):
        typer.echo(printable(f"{name:<18} {value}"))


def export_command(
    path: JournalPath,
    out: Annotated[Path | None, typer.Option("--out", help="File to write to instead of standard output.")] = None,
) -> None:
    """The rows of a journal as JSON lines."""
    if out is None:
        for line in export_lines(path):
            sys.stdout.write(line)
        return
    check_file(out)
    write_file(out, (line.encode() for line in export_lines(path)))


def export_lines(path: Path) -> Iterator[str]:
    for row in read(path):
        line = {"n": row.n, "kind": row.kind, "payload": row.data, "hash": row.hash.hex()}
        with understood(path, row.n):
            text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
            text.encode()  # JSON can name half characters, which no file can hold
        yield text


def verify_command(
    path: JournalPath,
    policies: Policies,
    head: Annotated[str | None, typer.Option("--head", help="A hash published earlier; it must occur.")] = None,
    key: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Recompute every row from the policy set and name the first that does not follow; exit code 1 if there is one.

    Whether the outcomes in it are what happened, it cannot tell.
    """
    made = _made(PolicyValueSet.load(policies), _recorded(read_header(path)))
    verdict = verify(path, made, head=head, key=_key(key))
    if as_json:
        _print_json(verdict.as_dict())
    else:
        for line in _verdict_lines(path, made, verdict):
            typer.echo(printable(line))
    if not verdict.holds:
        raise typer.Exit(1)


def _verdict_lines(path: Path, made: Learner, verdict: Verdict) -> Iterator[str]:
    if not verdict.holds:
        yield f"{path}: first bad row {verdict.first_bad}: {verdict.reason}"
        return
    yield f"{path}: all {verdict.rows:,} rows of {verdict.episodes:,} episodes follow; head {verdict.head}"
    risk = "no risk stated" if verdict.risk is None else f"risk {verdict.risk:g}"
    yield f"method {verdict.method} ({'certified' if made.method.certified else 'no certificate'}), {risk}"
    yield f"weights and margins agree to {verdict.rounding:.1g}; whether the outcomes are true cannot be seen from here"
    if verdict.sealed:
        yield "sealed with this key"


def backup_command(
    path: JournalPath,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the copy.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also if rows that had been acknowledged are missing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """A copy of a journal as one file, also while a deployment writes to it."""
    rows, head = backup(path, file, accept_loss=accept_loss)
    if as_json:
        _print_json({"file": str(file), "rows": rows, "head": head.hex()})
    else:
        typer.echo(printable(f"{file}: {rows:,} rows; head {head.hex()}"))


def export_policy_command(
    path: SetPath,
    policy: Annotated[int, typer.Argument(min=0, help="Number of the policy, as in an order; 0 is the safe one.")],
    out: Annotated[Path, typer.Option("--out", help="File ending in .safetensors or .onnx.")],
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Needed for policies that were planned during a deployment.")
    ] = None,
) -> None:
    """One policy as a file of its own."""
    policies = PolicyValueSet.load(path)
    known: Any = policies.policies
    if journal is not None:
        chosen = _made(policies, _recorded(read_header(journal)))
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
    typer.echo(printable(str(out)))


def report_journal(path: Path, out: Path | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    target = out if out is not None else path.with_name(path.name + ".html")
    check_file(target)
    write_file(target, render(deployment_page(path)).encode())
    return target


def printable(text: str) -> str:
    """Without what would steer a terminal: a journal may hold anything."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _learner(
    policies: PolicyValueSet, journal: Path, header: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Learner:
    """As the journal records, if there is one; options that say otherwise are refused."""
    given = {name: value for name, value in options.items() if value is not None}
    if header is None:
        return _made(policies, {**DEFAULTS, **given})
    recorded = _recorded(header)
    for name, value in given.items():
        if recorded.get(name) != value:
            raise InvalidInput(f"{name} must be {recorded.get(name)!r} as when {journal} was begun, got {value!r}")
    return _made(policies, recorded)


def _key(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            return stream.read(LONGEST + 1)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"key: cannot read {file} ({getattr(error, 'strerror', None) or error})") from None


def _recorded(header: Mapping[str, Any]) -> dict[str, Any]:
    settings = recorded_settings(header)
    if settings.get("method") not in METHODS:
        raise ArtifactError(
            f"the journal was written by a method of the user's own, {header['method']!r}: make its learner again in "
            "Python and pass it to surefoot.deploy.verify.verify"
        )
    return settings


def _made(policies: PolicyValueSet, settings: Mapping[str, Any]) -> Learner:
    try:
        return learner(policies, **settings)
    except SurefootError:
        raise
    except (*STRANGE, MemoryError) as error:
        raise ArtifactError(f"row 0 of the journal has settings that make no learner: {error}") from None


def _lines() -> Iterator[bytes]:
    """Lines of standard input; of one that is too long only as much as shows that it is."""
    stream = sys.stdin.buffer
    while line := stream.readline(LONGEST_LINE + 1):
        yield line
        while not line.endswith(b"\n") and (line := stream.readline(LONGEST_LINE)):
            pass  # the rest of it is no request


def _send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _status_lines(status: Status) -> Iterator[tuple[str, str]]:
    yield "state", f"{status.state}: {status.why}"
    yield "method", f"{status.method} ({'certified' if status.certified else 'no certificate'})"
    yield "episodes", f"{status.episodes:,} (abandoned {status.abandoned:,})"
    yield "outstanding", "none" if status.outstanding is None else f"episode {status.outstanding}"
    yield "weight", f"{status.weight:.6g}"
    yield "surviving", f"{status.surviving} of {status.total}"
    yield "claimed margin", "none" if status.margin is None else ", ".join(f"{value:.6g}" for value in status.margin)
    for alarm in status.alarms:
        yield "alarm", alarm
    yield "head", f"{status.head} ({status.rows:,} rows)"


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=1))

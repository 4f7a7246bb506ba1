"""The commands for deployments: parsing and printing only. `register` adds them to the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.adapt.learner import Learner
from surefoot.deploy.chain import read
from surefoot.deploy.policy_files import write_policy
from surefoot.deploy.protocol import LONGEST_LINE, failure, serve
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import Status, read_status
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.methods import METHODS, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.deployment_page import deployment_page
from surefoot.report.page import render

SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]
JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="Journal of a deployment.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Policies = Annotated[Path, typer.Option("--policies", metavar="SET", help="The policy set that was deployed.")]

DEFAULTS: dict[str, Any] = {"method": "certified", "risk": 0.05, "episodes": None, "seed": 0}


def register(app: typer.Typer) -> None:
    """Add the commands; `report` is for the command line's own command to call, as `report_journal`."""
    app.command("deploy")(deploy_command)
    app.command("status")(status_command)
    app.command("export")(export_command)
    app.command("verify")(verify_command)
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
) -> None:
    """Ask and tell in JSON lines on standard input and output, for controllers in any language."""
    given = {
        "method": method,
        "risk": risk,
        "episodes": episodes,
        "seed": seed,
        "horizon": horizon,
        "observes": observes,
    }
    try:
        policies = PolicyValueSet.load(path)
        chosen = _learner(policies, journal, {name: value for name, value in given.items() if value is not None})
        deployment = Deployment.open(journal, chosen)
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
        typer.echo(f"{name:<18} {value}")


def export_command(
    path: JournalPath,
    out: Annotated[Path | None, typer.Option("--out", help="File to write to instead of standard output.")] = None,
) -> None:
    """The rows of a journal as JSON lines."""
    lines = export_lines(path)
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    try:
        with out.open("w", encoding="utf-8") as stream:
            stream.writelines(lines)
    except OSError as error:
        raise ArtifactError(f"out: cannot write to {out}: {error.strerror or error}") from None


def export_lines(path: Path) -> Iterator[str]:
    for row in read(path):
        line = {"n": row.n, "kind": row.kind, "payload": row.data, "hash": row.hash.hex()}
        yield json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def verify_command(
    path: JournalPath,
    policies: Policies,
    head: Annotated[str | None, typer.Option("--head", help="A hash published earlier; it must occur.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute every row from the policy set and name the first that does not follow; exit code 1 if there is one."""
    recorded = _recorded(read_header(path))
    verdict = verify(path, _made(PolicyValueSet.load(policies), recorded), head=head)
    if as_json:
        _print_json(verdict.as_dict())
    elif verdict.holds:
        typer.echo(f"{path}: all {verdict.rows:,} rows of {verdict.episodes:,} episodes follow; head {verdict.head}")
    else:
        typer.echo(f"{path}: first bad row {verdict.first_bad}: {verdict.reason}")
    if not verdict.holds:
        raise typer.Exit(1)


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
    typer.echo(str(out))


def report_journal(path: Path, out: Path | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    target = out if out is not None else path.with_name(path.name + ".html")
    page = render(deployment_page(path))
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"out: cannot write to {target}: {error.strerror or error}") from None
    return target


def _learner(policies: PolicyValueSet, journal: Path, given: Mapping[str, Any]) -> Learner:
    """As the journal records, if there is one; options that say otherwise are refused."""
    if not journal.exists():
        return _made(policies, {**DEFAULTS, **given})
    recorded = _recorded(read_header(journal))
    for name, value in given.items():
        if recorded.get(name) != value:
            raise InvalidInput(f"{name} must be {recorded.get(name)!r} as when {journal} was begun, got {value!r}")
    return _made(policies, recorded)


def _recorded(header: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(header["settings"])
    if "method" not in settings:
        raise ArtifactError("the journal was written by a learner of the user's own making; check it from Python")
    return settings


def _made(policies: PolicyValueSet, settings: Mapping[str, Any]) -> Learner:
    try:
        return learner(policies, **settings)
    except TypeError as error:
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

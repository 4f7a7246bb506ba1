"""The commands that read journals, or draw pages of them and of earlier runs: parsing and printing only.

What tells how a deployment stands loads neither arrays nor methods; what draws imports them when it is called.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.terminal import Json, print_json, print_lines, print_path, printable, progress
from surefoot.deploy.backup import backup
from surefoot.deploy.chain import Observer, located, read, understood
from surefoot.deploy.marks import read_mark
from surefoot.deploy.seals import LONGEST
from surefoot.deploy.status import facts, read_status
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import check_file, read_file, write_file

if TYPE_CHECKING:
    from surefoot.deploy.follow import Maker

JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="Journal of a deployment.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with the key that seals the journal.")
]
Policies = Annotated[
    Path | None,
    typer.Option(
        "--policies",
        metavar="SET",
        help="The policy set that was deployed: shows what is still possible in the parameters of its tasks.",
    ),
]

LONG = 100_000  # rows of a journal, from which on it takes a while to read them

app = typer.Typer(rich_markup_mode=None)


@app.command("status")
def status_command(path: JournalPath, key: KeyFile = None, as_json: Json = False) -> None:
    """Where a deployment stands, while it runs or afterwards."""
    with reading(path) as observer:
        status = read_status(path, observer, read_key(key))
    if as_json:
        print_json(status.as_dict())
        return
    for name, value in facts(status):
        typer.echo(printable(f"{name:<18} {value}"))


@app.command("export")
def export_command(
    path: JournalPath,
    out: Annotated[Path | None, typer.Option("--out", help="File to write to instead of standard output.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document: all rows as an array, or with --out the file written.")
    ] = False,
) -> None:
    """The rows of a journal as JSON lines."""
    if out is not None:
        check_file(out)
        write_file(out, (line.encode() for line in export_lines(path)))
        if as_json:
            print_json({"file": str(out)})
        return
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the terminal speaks: it is JSON
    before = "["
    for line in export_lines(path):
        sys.stdout.write(f"{before}{line}" if as_json else line)
        before = ","
    if as_json:
        sys.stdout.write("]\n")


@contextmanager
def reading(path: Path) -> Iterator[Observer]:
    """Shows how many rows have been read, of journals that take a while."""
    rows = acknowledged(path)
    with progress(rows > LONG) as report:
        yield lambda read: report("reading the journal", read, rows)


def acknowledged(path: Path) -> int:
    """Rows of a journal; 0 if nobody knows."""
    mark = read_mark(located(path))
    return 0 if mark is None else mark.rows


def export_lines(path: Path) -> Iterator[str]:
    for row in read(path):
        line = {"n": row.n, "kind": row.kind, "payload": row.data, "hash": row.hash.hex()}
        with understood(path, row.n):
            text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
            text.encode()  # JSON can name half characters, which no file can hold
        yield text


@app.command("backup")
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
        print_json({"file": str(file), "rows": rows, "head": head.hex()})
    else:
        typer.echo(printable(f"{file}: {rows:,} rows; head {head.hex()}"))


@app.command("watch")
def watch_command(
    path: JournalPath,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")] = 8787,
    policies: Policies = None,
    key: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Serve the page of a deployment to browsers on this machine, up to date as rows are written; Ctrl-C ends it."""
    from surefoot.deploy.follow import Follower
    from surefoot.deploy.watch import WatchServer

    follower = Follower(path, read_key(key), None if policies is None else _maker(policies))
    with WatchServer(follower, port) as server:
        if as_json:
            print_json({"url": server.url, "journal": str(follower.path)})
        else:
            print_lines([f"{server.url} shows {follower.path}, on this machine only; Ctrl-C ends it"])
        sys.stdout.flush()  # whoever reads a pipe waits for it
        server.serve_forever()


@app.command("report")
def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier run, or journal of a deployment.")],
    policies: Policies = None,
    key: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Draw the figures and the HTML page of an earlier run, or of a deployment, again."""
    if run.is_file():
        page = report_journal(run, policies=policies, key=read_key(key))
    elif policies is not None or key is not None:
        given = "--policies" if policies is not None else "--key"
        raise InvalidInput(f"{given} must be left out unless RUN is the journal of a deployment, got {run}")
    else:
        from surefoot.lab.experiments import PAGES
        from surefoot.lab.experiments.frame import redraw

        redraw(run, lambda results: PAGES[results["experiment"]](results))
        page = run / "report.html"
    if as_json:
        print_json({"report": str(page)})
    else:
        print_path(page)


def report_journal(path: Path, out: Path | None = None, policies: Path | None = None, key: bytes | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    from surefoot.deploy.page import deployment_page
    from surefoot.deploy.verify import read_header

    target = out if out is not None else path.with_name(path.name + ".html")
    check_file(target)
    possible = None if policies is None else _maker(policies)(read_header(path))
    with reading(path) as observer:
        page = deployment_page(path, possible, observer, key)
    write_file(target, page.encode())
    return target


def _maker(policies: Path) -> Maker:
    from surefoot.cli.deploy import learner_of  # all methods: not needed to look at a journal
    from surefoot.deploy.possible import Possible
    from surefoot.policyset.policy_value_set import PolicyValueSet

    known = PolicyValueSet.load(policies)
    return lambda header: Possible(learner_of(known, header))


def read_key(file: Path | None) -> bytes | None:
    """The key in a plain file, which nobody else should be able to read."""
    if file is None:
        return None
    try:
        content = read_file(file, LONGEST)
    except ArtifactError as error:
        raise ArtifactError(f"key: {error}") from None
    if os.name == "posix" and file.stat().st_mode & 0o077:
        warnings.warn(f"key: other users can read or change {file}; make it private with chmod 600", stacklevel=2)
    return content

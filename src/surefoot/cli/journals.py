"""The commands that read journals alone, without what runs a deployment: parsing and printing only."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.terminal import Json, print_json, printable, progress
from surefoot.deploy.backup import backup
from surefoot.deploy.chain import LONGEST_KEY, Observer, raise_as_damaged, read, resolve_journal_path
from surefoot.deploy.marks import read_mark
from surefoot.deploy.status import facts, read_status
from surefoot.errors import ArtifactError
from surefoot.files import check_file, read_file, write_file

JournalPath = Annotated[Path, typer.Argument(metavar="JOURNAL", help="Journal of a deployment.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with the key that seals the journal.")
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
    rows = count_rows(path)
    with progress(rows > LONG) as report:
        yield lambda read: report("reading the journal", read, rows)


def count_rows(path: Path) -> int:
    """Rows of a journal; 0 if nobody knows."""
    mark = read_mark(resolve_journal_path(path))
    return 0 if mark is None else mark.rows


def export_lines(path: Path) -> Iterator[str]:
    for row in read(path):
        line = {"n": row.n, "kind": row.kind, "payload": row.data, "hash": row.hash.hex()}
        with raise_as_damaged(path, row.n):
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


def read_key(file: Path | None) -> bytes | None:
    """The key in a plain file, which nobody else should be able to read."""
    if file is None:
        return None
    try:
        content = read_file(file, LONGEST_KEY)
    except ArtifactError as error:
        raise ArtifactError(f"key: {error}") from None
    if os.name == "posix" and file.stat().st_mode & 0o077:
        warnings.warn(f"key: other users can read or change {file}; make it private with chmod 600", stacklevel=2)
    return content

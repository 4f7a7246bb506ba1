"""A copy of a journal as one file, taken at one moment, also while a deployment writes to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from surefoot.deploy import chain
from surefoot.deploy.chain import Damaged
from surefoot.deploy.marks import Mark, mark_path
from surefoot.errors import ArtifactError
from surefoot.files import check_file, staging_folder, sync_folder


def backup(journal: str | os.PathLike[str], file: str | os.PathLike[str], *, accept_loss: bool = False) -> Mark:
    """Copy `journal` to the new `file` and check every hash of the copy; returns its number of rows and last hash.

    With `accept_loss` also a journal that lost rows which had been acknowledged; what is left must be in order.
    """
    source, target = chain.resolve_journal_path(journal), Path(file)
    chain.identity(source)
    check_file(target, force=False, argument="FILE")
    for belonging in (mark_path(target), *(target.with_name(target.name + end) for end in ("-wal", "-journal"))):
        if os.path.lexists(belonging):
            raise ArtifactError(f"FILE must be new, got {target}, of which {belonging.name} is left; move that away")
    expected = Mark(0, chain.BEGINNING) if accept_loss else chain.read_required_mark(source)
    try:
        with staging_folder(target.parent) as (staging, let_through):
            copy = staging.resolve() / "journal"
            _copy(source, copy)
            last = _check_copy(copy, source, expected, let_through)
            copy.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise ArtifactError(f"FILE: cannot write to {target}: {error.strerror or error}") from None
    return last


def _copy(source: Path, copy: Path) -> None:
    try:
        with closing(chain.reader(source)) as origin, closing(sqlite3.connect(copy, isolation_level=None)) as made:
            origin.execute("BEGIN")
            chain.check_schema(origin, source)
            pages, each = (origin.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            if (pages - 1) * each > chain.size_on_disk(source):  # the log may claim any number; a page may be cut short
                raise Damaged(f"cannot be copied (it claims {pages * each} bytes, more than are there)", path=source)
            origin.backup(made)
            made.execute("PRAGMA journal_mode=DELETE")  # like one that was closed: this file is all there is
    except chain.STRANGE as error:
        raise Damaged(f"cannot be copied ({error})", path=source) from None
    except MemoryError:
        raise chain.too_large(source) from None
    with copy.open("rb+") as stream:
        os.fsync(stream.fileno())


def _check_copy(copy: Path, source: Path, expected: Mark | None, let_through: Callable[[], None]) -> Mark:
    last = Mark(0, chain.BEGINNING)
    try:
        for n, _, _, digest in chain.iter_checked_rows(copy, mark=expected):
            last = Mark(n + 1, digest)
            let_through()
    except Damaged as error:
        raise Damaged(error.sentence, error.row, source) from None
    return last

"""The form of a journal: an SQLite file whose rows each carry the hash of everything before them. Reading and checking.

rows       n, kind, payload, hash: SHA-256(hash of row n-1 ‖ kind ‖ space ‖ payload), with 32 zeros before row 0
head       the number of rows and the last hash, so that missing rows at the end show
snapshots  what a writer may use to save time; no part of the log, and no proof
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from surefoot.errors import ArtifactError

APPLICATION_ID = 0x53465F4A  # "SF_J", how file(1) tells the format
SCHEMA = {
    "rows": "CREATE TABLE rows (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, "
    "hash BLOB NOT NULL) STRICT",
    "head": "CREATE TABLE head (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, hash BLOB NOT NULL) STRICT",
    "snapshots": "CREATE TABLE snapshots (n INTEGER PRIMARY KEY, hash BLOB NOT NULL, state BLOB NOT NULL, "
    "digest BLOB NOT NULL) STRICT",
}
BEGINNING = bytes(32)
BUSY_SECONDS = 10.0  # a reader may hold the file for a moment


class Damaged(ArtifactError):
    """The journal is not what was written. `row` is the first one that is wrong, if there is a row to name."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class Row(NamedTuple):
    n: int
    kind: str
    payload: bytes
    hash: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.payload)


RawRow = tuple[int, bytes, bytes, bytes]


def canonical(payload: Any) -> bytes:
    """The one way to write a payload: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def chained(previous: bytes, kind: bytes, payload: bytes) -> bytes:
    return sha256(previous + kind + b" " + payload).digest()


def read(path: str | os.PathLike[str]) -> Iterator[Row]:
    """All rows of a journal, each checked against the one before, also while a deployment writes to it."""
    target = Path(path)
    identity(target)
    connection = _reader(target)
    try:
        check_schema(connection, target)
        for n, kind, payload, digest in checked_rows(connection, target):
            yield Row(n, kind.decode(), payload, digest)
    finally:
        connection.close()


def checked_rows(connection: sqlite3.Connection, path: Path) -> Iterator[RawRow]:
    """The rows in order; `Damaged` at the first one that is missing, altered, out of place or unreadable.

    There may be millions: they are passed on as SQLite returns them.
    """
    previous, n = BEGINNING, 0
    try:
        connection.execute("BEGIN")  # rows and head of one moment
        for row in connection.execute("SELECT n, kind, payload, hash FROM rows ORDER BY n"):
            found, kind, payload, digest = row
            if found != n:
                raise Damaged(f"{path}: row {n} is missing, the next one there is {found}", n)
            previous = sha256(previous + kind + b" " + payload).digest()  # `chained`, without the call
            if digest != previous:
                raise Damaged(f"{path}: row {n} or a row before it was altered: its hash does not follow", n)
            yield row
            n += 1
        heads = connection.execute("SELECT count, hash FROM head").fetchall()
    except (sqlite3.Error, UnicodeDecodeError, TypeError) as error:
        raise Damaged(f"{path}: row {n} cannot be read ({error})", n) from None
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if n == 0:
        raise Damaged(f"{path}: row 0 is missing", 0)
    if heads != [(n, previous)]:
        counted = heads[0][0] if heads else "nothing"
        raise Damaged(f"{path}: row {n} is missing: the journal ends there, but its head says {counted} rows", n)


def connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode={mode}"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        connection.text_factory = bytes
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
    except sqlite3.Error as error:
        refuse_file(path, error)
    return connection


def _reader(path: Path) -> sqlite3.Connection:
    """A closed journal can also be read where nothing may be written, not even SQLite's shared memory file."""
    left = path.with_name(path.name + "-wal")
    if os.access(path.parent, os.W_OK) or (left.exists() and left.stat().st_size):
        return connect(path, "ro")
    return connect(path, "ro&immutable=1")


def identity(path: Path) -> tuple[int, int]:
    """Which file this is; refuses what cannot be a journal."""
    try:
        found = path.stat()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}), must be a journal") from None
    if not path.is_file() or not found.st_size:
        raise ArtifactError(f"{path}: is {'empty' if path.is_file() else 'not a file'}, must be a journal")
    return found.st_dev, found.st_ino


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Exactly our tables: no trigger, view or index that would act on its own."""
    try:
        identity = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        refuse_file(path, error)
    expected = sorted((b"table", name.encode(), sql.encode()) for name, sql in SCHEMA.items())
    if identity != APPLICATION_ID or sorted(found, key=str) != sorted(expected, key=str):
        raise Damaged(f"{path}: is not a journal of a deployment, or its tables were altered")


def refuse_file(path: Path, error: sqlite3.Error) -> NoReturn:
    raise Damaged(f"{path}: cannot be opened as a journal ({error})") from None

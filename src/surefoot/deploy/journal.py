"""A durable, append-only log in one SQLite file. It knows nothing of policies: rows have a kind and a JSON payload.

A write is on the disk when `append` returns (write-ahead log, synchronous=FULL), or it is not there at all. The file
appears under its name only when its first row is in it. One writer at a time; readers do not disturb it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from surefoot.deploy.chain import (
    APPLICATION_ID,
    BEGINNING,
    SCHEMA,
    RawRow,
    Row,
    canonical,
    chained,
    check_schema,
    checked_rows,
    connect,
    identity,
    refuse_file,
)
from surefoot.deploy.locks import WriterLock
from surefoot.errors import ArtifactError
from surefoot.files import sync_folder

Entry = tuple[str, Any]  # kind and payload

KEPT_SNAPSHOTS = 2


class JournalError(ArtifactError):
    """The journal cannot be written at the moment (disk full, read-only, lock lost); it is as it was before."""


class Journal:
    """The writer's end. `count` rows, the last with hash `hash`."""

    def __init__(self, path: str | os.PathLike[str], lock: WriterLock) -> None:
        self.path, self._lock = Path(path), lock
        self.count, self.hash = 0, BEGINNING
        self._file: tuple[int, int] | None = None
        self._ahead = False  # whether the write-ahead log is in use
        self._connection: sqlite3.Connection | None = None
        self._connect()

    @classmethod
    def open(cls, path: str | os.PathLike[str], first: Entry) -> Journal:
        """The journal at `path`, made with the one row `first` if there is none. The rows are yet to be read."""
        target = Path(path).absolute()
        lock = WriterLock(target.with_name(target.name + ".lock"))
        try:
            if not target.exists():
                _create(target, first)
            return cls(target, lock)
        except BaseException:
            lock.release()
            raise

    def rows(self) -> Iterator[RawRow]:
        """All rows, each checked against the one before; takes note of the last one when all are read."""
        yield from checked_rows(self._connected(), self.path)
        self.count, self.hash = self._run("SELECT count, hash FROM head").fetchone()

    def rows_after(self, n: int) -> Iterator[Row]:
        """The rows behind number n, which were checked before: nobody else can write."""
        query = "SELECT n, kind, payload, hash FROM rows WHERE n > ? ORDER BY n"
        try:
            for number, kind, payload, digest in self._run(query, (n,)):
                yield Row(number, kind.decode(), payload, digest)
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be read ({error})") from None

    def append(self, entries: Sequence[Entry]) -> list[Row]:
        """Add rows, all or none."""
        rows = self._following(entries)
        count, head = self.count + len(rows), rows[-1].hash if rows else self.hash
        try:
            self._check_ownership()
            self._write(rows, count, head)
        except (sqlite3.Error, OSError, ArtifactError) as error:
            self._disconnect()
            raise JournalError(f"{self.path}: cannot be written ({error}); nothing was recorded") from None
        self.count, self.hash = count, head
        return rows

    def find(self, kinds: Sequence[str], episode: int) -> Row | None:
        """The row of one of these kinds whose payload has this `episode`; reads the whole table."""
        marks = ",".join("?" * len(kinds))
        query = f"SELECT n, kind, payload, hash FROM rows WHERE kind IN ({marks})"
        try:
            found = self._run(query + " AND json_extract(payload, '$.episode') = ?", (*kinds, episode)).fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be read ({error})") from None
        return None if found is None else Row(found[0], found[1].decode(), *found[2:])

    def save_snapshot(self, state: bytes) -> None:
        """Keep `state` for the row written last. Failing to is no loss."""
        digest = hashlib.sha256(self.hash + state).digest()
        try:
            self._run("BEGIN IMMEDIATE")
            self._run(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (self.count - 1, self.hash, state, digest)
            )
            self._run(
                "DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM snapshots ORDER BY n DESC LIMIT ?)",
                (KEPT_SNAPSHOTS,),
            )
            self._run("COMMIT")
        except sqlite3.Error:
            self._disconnect()

    def snapshots(self) -> list[tuple[int, bytes, bytes]]:
        """(row, its hash, state) of the snapshots that are whole, the latest first."""
        try:
            found = self._run("SELECT n, hash, state, digest FROM snapshots ORDER BY n DESC").fetchall()
        except sqlite3.Error:
            return []
        return [(n, at, state) for n, at, state, digest in found if hashlib.sha256(at + state).digest() == digest]

    def close(self) -> None:
        try:
            if self._connection is not None:
                try:
                    if self._ahead:  # back to one file, which can be read where nothing may be written
                        self._run("PRAGMA journal_mode=DELETE")
                finally:
                    self._connection.close()
        except sqlite3.Error:
            pass  # somebody is reading; what was acknowledged is in the write-ahead log
        finally:
            self._connection = None
            self._lock.release()

    def _following(self, entries: Sequence[Entry]) -> list[Row]:
        rows, previous = [], self.hash
        for n, (kind, payload) in enumerate(entries, start=self.count):
            text = canonical(payload)
            previous = chained(previous, kind.encode(), text)
            rows.append(Row(n, kind, text, previous))
        return rows

    def _write(self, rows: list[Row], count: int, head: bytes) -> None:
        self._connected()
        if not self._ahead:  # not before the first write: a journal that is only looked at stays as it is
            self._ahead = self._run("PRAGMA journal_mode=WAL").fetchone()[0] == b"wal"
        self._run("BEGIN IMMEDIATE")
        stored = self._run("SELECT count, hash FROM head").fetchone()
        if rows and stored == (count, head):
            self._run("ROLLBACK")  # an earlier attempt that was reported as failed did reach the disk
            return
        if stored != (self.count, self.hash):
            raise sqlite3.OperationalError("it has rows that this deployment did not write; open it again")
        for row in rows:
            values = (row.n, row.kind, row.payload.decode(), row.hash)
            self._run("INSERT INTO rows VALUES (?, ?, ?, ?)", values)
        self._run("UPDATE head SET count = ?, hash = ?", (count, head))
        self._run("COMMIT")

    def _check_ownership(self) -> None:
        if not self._lock.held():
            raise OSError("the lock was lost: its file was removed or replaced; open the journal again")
        if not self.path.exists() or self._file != identity(self.path):
            raise OSError("the file was removed or replaced; open the journal again")

    def _connect(self) -> None:
        if self._file is None:
            self._file = identity(self.path)
        connection = connect(self.path, "rw")
        try:
            check_schema(connection, self.path)
            connection.execute("PRAGMA synchronous=FULL")
            self._ahead = connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"
        except sqlite3.DatabaseError as error:
            connection.close()
            refuse_file(self.path, error)
        except ArtifactError:
            connection.close()
            raise
        self._connection = connection

    def _disconnect(self) -> None:
        """After a failed write: the next one starts from what is on the disk."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connect()
            except ArtifactError as error:
                raise sqlite3.OperationalError(str(error)) from None
        if self._connection is None:
            raise sqlite3.OperationalError("not connected")
        return self._connection

    def _run(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Every statement of a writer goes through here."""
        return self._connected().execute(statement, values)


# ------------------------------------------------------------------------------------------------------------- creating


def _create(path: Path, first: Entry) -> None:
    """Complete under another name, then renamed: a journal without its first row never exists."""
    leftover = path.with_name(path.name + "-wal")
    if leftover.exists() and leftover.stat().st_size:
        raise ArtifactError(f"{leftover}: is there without its journal {path.name}; put that back, or move both away")
    fresh = path.with_name(path.name + ".new")
    text = canonical(first[1])
    digest = chained(BEGINNING, first[0].encode(), text)
    try:
        for stale in (fresh, fresh.with_name(fresh.name + "-journal")):
            stale.unlink(missing_ok=True)
        connection = sqlite3.connect(fresh, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute("BEGIN")
            for statement in SCHEMA.values():
                connection.execute(statement)
            connection.execute("INSERT INTO rows VALUES (0, ?, ?, ?)", (first[0], text.decode(), digest))
            connection.execute("INSERT INTO head VALUES (0, 1, ?)", (digest,))
            connection.execute("COMMIT")
        finally:
            connection.close()
        fresh.rename(path)
        sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path}: cannot be created ({error}); choose a place that can be written to") from None

"""A durable, append-only log in one SQLite file. It knows nothing of policies: rows have a kind and a JSON payload.

A write is on the disk when `append` returns (write-ahead log, synchronous=FULL, then the mark), or it is not there at
all. The file appears under its name only when its first row is in it. One writer at a time; readers do not disturb it.

A journal that was closed is this one file. While it is in use SQLite's mode, which the file itself records, is "wal":
then `-wal` belongs to it, and `.mark` says what both together must contain. See `marks` for the order of writes.
If one of the three is removed or replaced meanwhile, nothing more is acknowledged. Whatever was is still in what SQLite
has open, and is back in the journal once that is closed.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from surefoot.deploy import chain
from surefoot.deploy.chain import JournalRow
from surefoot.deploy.marks import Mark, MarkFile, mark_path, read_mark
from surefoot.errors import ArtifactError
from surefoot.files import remove_leftovers, staging_folder, sync_folder

Entry = tuple[str, Any]  # kind and payload

KEPT_SNAPSHOTS = 2
LONGEST_SNAPSHOT = 64 * 2**20  # bytes; one that is longer is not kept, and all rows are replayed instead


class JournalError(ArtifactError):
    """The journal cannot be written at the moment (disk full, read-only, lock lost); it is as it was before."""


class Journal:
    """The writer's end. `count` rows, the last with hash `hash`; nothing is there before `begin`."""

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None) -> None:
        """Takes the lock. The rows are yet to be read, by `rows`."""
        self.path, self._key = chain.resolve_journal_path(path), key
        self._place = str(self.path)
        self.count, self.hash = 0, chain.BEGINNING
        self._ready = False  # whether the mark and the write-ahead log are in use
        self._mark: MarkFile | None = None
        self._in_use: dict[str, chain.FileId] = {}  # which files these are
        self._connection: sqlite3.Connection | None = None
        _only_name(self.path)  # no lock beside what cannot be a journal
        self._lock = WriterLock(self.path.with_name(self.path.name + ".lock"))
        try:
            self._file = _only_name(self.path)
            remove_leftovers(self.path.parent)
        except BaseException:
            self._lock.release(discard=True)
            raise

    @property
    def exists(self) -> bool:
        return self._file is not None

    def begin(self, first: Entry) -> None:
        """Make the journal, with the one row `first`."""
        _create(self.path, first, self._key)
        self._file = _only_name(self.path)

    def rows(self) -> Iterator[chain.RawRow]:
        """All rows, each checked against the one before; takes note of the last one when all are read."""
        for row in chain.iter_checked_rows(self.path, key=self._key):
            self.count, self.hash = row[0] + 1, row[3]
            yield row

    def append(self, entries: Sequence[Entry]) -> list[JournalRow]:
        """Add rows, all or none."""
        rows = self._following(entries)
        head = Mark(self.count + len(rows), rows[-1].hash if rows else self.hash)
        try:
            self._check_ownership()
            mark = self._make_ready()
            self._write(rows, head)
            mark.write(head)
            self._check_ownership()  # what was written into files that are gone is not acknowledged
        except (sqlite3.Error, OSError, ArtifactError, MemoryError) as error:
            self._disconnect()
            what = str(error) or type(error).__name__
            raise JournalError(f"{self.path}: cannot be written ({what}); nothing was recorded") from None
        self.count, self.hash = head
        return rows

    def find(self, kinds: Sequence[str], episode: int) -> JournalRow | None:
        """The row of one of these kinds whose payload has this `episode`, by bisection: each episode has at most one,
        and they come in order."""
        marks = ",".join("?" * len(kinds))
        query = (
            "SELECT json_extract(payload, '$.episode'), n, kind, payload, hash FROM rows "
            f"WHERE n >= ? AND kind IN ({marks}) ORDER BY n LIMIT 1"
        )

        def first_from(n: int) -> Any:
            return self._run(query, (n, *kinds)).fetchone()

        def behind(n: int) -> bool:
            found = first_from(n)
            return found is None or found[0] >= episode

        try:
            found = first_from(bisect_left(range(self.count), True, key=behind))
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be read ({error})") from None
        return None if found is None or found[0] != episode else JournalRow(found[1], found[2].decode(), *found[3:])

    def save_snapshot(self, state: bytes) -> None:
        """Keep `state` for the row written last, sealed; without a key nobody could trust it. Failing to is no loss."""
        if self._key is None or len(state) > LONGEST_SNAPSHOT:
            return
        seal = chain.snapshot_seal(self._key, self.count - 1, self.hash, state)
        try:
            self._run("BEGIN IMMEDIATE")
            self._run("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (self.count - 1, self.hash, state, seal))
            self._run(
                "DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM snapshots ORDER BY n DESC LIMIT ?)",
                (KEPT_SNAPSHOTS,),
            )
            self._run("COMMIT")
        except sqlite3.Error:
            self._disconnect()

    def snapshots(self) -> list[tuple[int, bytes]]:
        """(row, state) of the snapshots of this history that the key sealed, the latest first."""
        if self._key is None:
            return []
        kept = []
        try:
            with closing(chain.reader(self.path, LONGEST_SNAPSHOT)) as connection:
                query = "SELECT n, hash, state, digest FROM snapshots ORDER BY n DESC LIMIT ?"
                for n, at, state, seal in connection.execute(query, (KEPT_SNAPSHOTS,)):
                    there = connection.execute("SELECT hash FROM rows WHERE n = ?", (n,)).fetchone()
                    if there == (at,) and chain.same(chain.snapshot_seal(self._key, n, at, state), seal):
                        kept.append((n, state))
        except (*chain.STRANGE, MemoryError):
            return []
        return kept

    def close(self) -> None:
        """Any number of times."""
        used = self._connection is not None
        try:
            if self._connection is not None:
                try:
                    # Back to one file, which can be read where nothing may be written.
                    self._connection.execute("PRAGMA journal_mode=DELETE")
                finally:
                    self._connection.close()
        except sqlite3.Error:
            pass  # somebody is reading; what was acknowledged is in the write-ahead log
        finally:
            self._connection = None
            self._close_mark()
            self._lock.release(discard=not used)

    def _following(self, entries: Sequence[Entry]) -> list[JournalRow]:
        rows, previous = [], self.hash
        for n, (kind, payload) in enumerate(entries, start=self.count):
            text = chain.canonical(payload)
            previous = chain.chain_hash(previous, kind.encode(), text)
            rows.append(JournalRow(n, kind, text, previous))
        return rows

    def _check_ownership(self) -> None:
        if not self._lock.is_held():
            raise OSError("the lock was lost: its file was removed or replaced; open the journal again")
        if self._file is None or self._file != chain.file_id(self._place):
            raise OSError("the file was removed or replaced; open the journal again")
        for path, known in self._in_use.items():
            if chain.file_id(path) != known:
                raise OSError(f"{Path(path).name} was removed or replaced while it was in use")

    def _make_ready(self) -> MarkFile:
        """Before the first write, not earlier: a journal that is only looked at stays as it is.

        The file itself must record that a mark belongs to it before a row is anywhere else than in this file.
        """
        if self._mark is not None and self._ready:
            return self._mark
        self._close_mark()
        self._mark = mark = MarkFile(self.path)
        mark.write(Mark(self.count, self.hash))
        if self._run("PRAGMA user_version").fetchone()[0] < chain.MARKED:  # begun by an early version
            self._run(f"PRAGMA user_version={chain.MARKED}")
            if self._run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise sqlite3.OperationalError("somebody is reading it; try again")
        self._ready = self._run("PRAGMA journal_mode=WAL").fetchone()[0] == b"wal"
        self._run("SELECT count FROM head").fetchone()  # opens the log, which stays the same file from now on
        log = self.path.with_name(self.path.name + "-wal")
        for path, found in ((log, chain.file_id(log)), (mark_path(self.path), mark.id)):
            if self._ready and found is not None:
                self._in_use[str(path)] = found
        return mark

    def _write(self, rows: list[JournalRow], head: Mark) -> None:
        self._run("BEGIN IMMEDIATE")
        moved = self._run(
            "UPDATE head SET count = ?, hash = ? WHERE count = ? AND hash = ?", (*head, self.count, self.hash)
        )
        if moved.rowcount != 1:
            if rows and self._run("SELECT count, hash FROM head").fetchone() == head:
                self._run("ROLLBACK")  # an earlier attempt that was reported as failed did reach the disk
                return
            raise sqlite3.OperationalError("it has rows that this deployment did not write; open it again")
        for row in rows:
            values = (row.n, row.kind, row.payload.decode(), row.hash)
            self._run("INSERT INTO rows VALUES (?, ?, ?, ?)", values)
        if self._key is not None:
            self._run("UPDATE seals SET seal = ?", (chain.head_seal(self._key, *head),))
        self._run("COMMIT")

    def connect(self) -> None:
        """Open the file for writing, when its rows were read and found right: SQLite tidies up on closing, and nothing
        of a journal that is refused may be lost."""
        connection = chain.connect(self.path, "rw", LONGEST_SNAPSHOT)
        try:
            chain.check_schema(connection, self.path)
            connection.execute("PRAGMA synchronous=FULL")
        except chain.STRANGE as error:
            connection.close()
            chain.refuse_file(self.path, error)
        except ArtifactError:
            connection.close()
            raise
        self._connection = connection

    def _disconnect(self) -> None:
        """After a failed write: the next one starts from what is on the disk. First the log is put into the journal:
        its name may be gone, and while somebody reads, closing alone would not do it."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.rollback()
                self._connection.execute("PRAGMA wal_checkpoint(FULL)")
            self._connection.close()
        self._connection, self._ready = None, False
        self._in_use.clear()
        self._close_mark()

    def _close_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Every statement of a writer goes through here."""
        if self._connection is None:
            try:
                self.connect()
            except ArtifactError as error:
                raise sqlite3.OperationalError(str(error)) from None
        if self._connection is None:
            raise sqlite3.OperationalError("not connected")
        return self._connection.execute(statement, values)


def _only_name(path: Path) -> chain.FileId | None:
    """Which file this is, if there is one. Lock, log and mark are named after it: by another name they are others."""
    if not os.path.lexists(path):
        return None
    found, names = chain.identity(path), path.stat().st_nlink
    if names > 1:
        raise ArtifactError(
            f"{path}: must have one name, has {names} (hard links); remove the others, or copy the file"
        )
    return found


# ------------------------------------------------------------------------------------------------------------- creating


def _create(path: Path, first: Entry, key: bytes | None) -> None:
    """Complete in a folder of its own, then renamed: a journal without its first row never exists."""
    leftover = path.with_name(path.name + "-wal")
    if leftover.exists() and leftover.stat().st_size:
        raise ArtifactError(f"{leftover}: is there without its journal {path.name}; put that back, or move both away")
    lost = read_mark(path)
    if lost is not None:
        raise ArtifactError(
            f"{mark_path(path)}: records {lost.rows} rows of {path.name}, which is gone; put that back, or move the "
            "mark away too"
        )
    text = chain.canonical(first[1])
    digest = chain.chain_hash(chain.BEGINNING, first[0].encode(), text)
    try:
        with staging_folder(path.parent) as (staging, _):
            fresh = staging / "journal"
            connection = sqlite3.connect(fresh, isolation_level=None)
            try:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute(f"PRAGMA application_id={chain.APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={chain.MARKED}")
                connection.execute("BEGIN")
                for statement in (chain.SCHEMA if key is None else {**chain.SCHEMA, **chain.SEALS}).values():
                    connection.execute(statement)
                connection.execute("INSERT INTO rows VALUES (0, ?, ?, ?)", (first[0], text.decode(), digest))
                connection.execute("INSERT INTO head VALUES (0, 1, ?)", (digest,))
                if key is not None:
                    connection.execute("INSERT INTO seals VALUES (0, ?)", (chain.head_seal(key, 1, digest),))
                connection.execute("COMMIT")
            finally:
                connection.close()
            fresh.rename(path)
        sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path}: cannot be created ({error}); choose a place that can be written to") from None


# ------------------------------------------------------------------------------------------------------------- the lock


class WriterLock:
    """An exclusive lock on a file beside the journal, freed by the system when its holder dies.

    Held from construction to `release`; also refuses a second writer within the same process.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._place = path, str(path)
        self._handle: int | None = None
        while not self.is_held():  # whoever held it before may have removed the file
            self.release()
            self._handle, self._made = self._acquire()
        _held.add(self)

    def _acquire(self) -> tuple[int, bool]:
        """The file, and whether it was made here. A link in its place is not followed."""
        made = not os.path.lexists(self.path)
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise ArtifactError(
                f"{self.path}: cannot be opened for locking ({error.strerror}), must be a file that can be written"
            ) from None
        try:
            _lock(handle)
        except OSError:
            os.close(handle)
            raise ArtifactError(
                f"{self.path}: is held by another deployment that writes to the same journal; close that one first"
            ) from None
        return handle, made

    def is_held(self) -> bool:
        """Whether the file that others would lock is still the one that is locked here."""
        if self._handle is None:
            return False
        try:
            found, own = os.stat(self._place), os.fstat(self._handle)  # noqa: PTH116 - faster, and twice per write
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def release(self, *, discard: bool = False) -> None:
        """The file stays, unless it was made here and is of no use: who locks it next then finds it gone, and makes it
        anew."""
        if discard and self.is_held() and self._made:
            with suppress(OSError):  # on Windows an open file cannot be removed
                self.path.unlink()
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """A forked child shares its parent's lock, and would keep it when the parent dies."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

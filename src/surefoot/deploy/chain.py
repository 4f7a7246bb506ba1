"""The form of a journal: an SQLite file whose rows each carry the hash of everything before them. Reading and checking.

rows       n, kind, payload, hash: SHA-256(hash of row n-1 ‖ kind ‖ space ‖ payload), with 32 zeros before row 0
head       the number of rows and the last hash, so that missing rows at the end show
snapshots  what a writer with a key may use to save time; no part of the log, and no proof
seals      only in a journal with a key: the seal of the head

Rows are only ever added, and each vouches for those before it. So readers fetch them piece by piece and hold no lock
while they work: a reader that stalls stops nobody.

A file from elsewhere may be made by hand, so that SQLite finds in it far more than it holds: pages that are their own
children, rows that share what they overflow to. So each row is checked while it is fetched, none is longer than a
deployment writes, together they are no longer than the file, and no statement takes more steps than it needs.
"""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import chain as flat
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from surefoot.bounded_json import MAX_DEPTH, Limits, parse
from surefoot.deploy.marks import Mark, mark_path, read_mark
from surefoot.errors import ArtifactError, InvalidInput, SurefootError

APPLICATION_ID = 0x53465F4A  # "SF_J", how file(1) tells the format
MARKED = 1  # user_version of a journal that keeps a mark while it is in use; the first versions kept none
SCHEMA = {
    "rows": "CREATE TABLE rows (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, "
    "hash BLOB NOT NULL) STRICT",
    "head": "CREATE TABLE head (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, hash BLOB NOT NULL) STRICT",
    "snapshots": "CREATE TABLE snapshots (n INTEGER PRIMARY KEY, hash BLOB NOT NULL, state BLOB NOT NULL, "
    "digest BLOB NOT NULL) STRICT",
}
SEALS = {"seals": "CREATE TABLE seals (id INTEGER PRIMARY KEY, seal BLOB NOT NULL) STRICT"}
BEGINNING = bytes(32)
BUSY_SECONDS = 10.0  # another connection may hold the file for a moment
PIECE = 8 * 2**20  # bytes of memory that a reader fetches at once, if no row alone takes more
ROW_OVERHEAD = 200  # bytes of it that a row takes beside what it holds
LOWEST = -(2**63)

# Of a payload: what the protocol takes, written in full (1e9 becomes 1000000000.0, and a cost a list of one).
LIMITS = Limits(size=16 * 2**20, values=2_000_000, depth=MAX_DEPTH + 4)
LONGEST_STATEMENT = 10_000  # characters, also of those in the file that make its tables
MOST_STEPS = 2_000_000  # of SQLite's machine in a statement of a reader: a piece takes some 200,000

# What can go wrong in Python when a file holds anything whatever.
STRANGE = (sqlite3.Error, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)

Observer = Callable[[int], None]  # of how many rows have been read
NOW_AND_THEN = 1000  # rows between two calls of it


class Damaged(ArtifactError):
    """The journal is not what was written.

    Attributes:
        row: the first one that is wrong, if there is a row to name.
        path: the journal, where it is known; its name begins the message.
    """

    def __init__(self, message: str, row: int | None = None, path: Path | str | None = None) -> None:
        super().__init__(message if path is None else f"{path}: {message}")
        self.sentence, self.row, self.path = message, row, path


class JournalRow(NamedTuple):
    n: int
    kind: str
    payload: bytes
    hash: bytes

    @property
    def data(self) -> Any:
        try:
            return parse(self.payload, LIMITS)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"row {self.n} must hold JSON: {error}", self.n) from None


RawRow = tuple[int, bytes, bytes, bytes]


def canonical(payload: Any) -> bytes:
    """The one way to write a payload: sorted keys, no spaces, UTF-8, no NaN."""
    return WRITTEN.encode(payload).encode("utf-8")


WRITTEN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def chain_hash(previous: bytes, kind: bytes, payload: bytes) -> bytes:
    return sha256(previous + kind + b" " + payload).digest()


def read(
    path: str | os.PathLike[str], *, key: bytes | None = None, observer: Observer | None = None
) -> Iterator[JournalRow]:
    """All rows of a journal, each checked against the one before, also while a deployment writes to it.

    `Damaged` if fewer are there than the mark records, or if a `key` is given and its seal is missing or wrong.
    """
    target = resolve_journal_path(path)
    for row in track_rows(iter_checked_rows(target, key=key), observer):
        yield decode_row(row, target)


def track_rows(rows: Iterator[RawRow], observer: Observer | None) -> Iterator[RawRow]:
    """The same rows; `observer` hears now and then of how many."""
    for row in rows:
        yield row
        if observer is not None and not (row[0] + 1) % NOW_AND_THEN:
            observer(row[0] + 1)


def decode_row(row: RawRow, path: Path) -> JournalRow:
    n, kind, payload, digest = row
    try:
        return JournalRow(n, kind.decode(), payload, digest)
    except UnicodeDecodeError:
        raise Damaged(f"row {n} must be of a kind that is text, found {kind[:20]!r}", n, path) from None


def iter_checked_rows(
    path: Path, *, key: bytes | None = None, mark: Mark | None = None, after: Mark | None = None
) -> Iterator[RawRow]:
    """The rows in order; `Damaged` at the first one that is missing, altered, out of place or unreadable.

    There may be millions: they are passed on as SQLite returns them. `mark` is by default the journal's own. Who has
    read and checked the rows up to `after` gets those that follow; that the former are as they were is not looked at.
    """
    return flat.from_iterable(iter_checked_blocks(path, key=key, mark=mark, after=after))


def iter_checked_blocks(
    path: Path,
    most: int = 4096,
    *,
    key: bytes | None = None,
    mark: Mark | None = None,
    after: Mark | None = None,
) -> Iterator[list[RawRow]]:
    """The same in lists of at most `most` rows, for who takes in many at once. Those before one that is damaged come
    before the error."""
    expected = mark or read_required_mark(path) or Mark(0, BEGINNING)
    last, taken, end = after or Mark(0, BEGINNING), 0, None
    while end is None:
        rows, last, taken, end, fault = _piece(path, last, taken, expected)
        for first in range(0, len(rows), most):
            yield rows[first : first + most]
        if fault is not None:
            raise fault
    _check_end(path, last, end, key)
    if last.rows < expected.rows:
        raise Damaged(
            f"ends before row {last.rows}, but {mark_path(path).name} records that {expected.rows} rows were "
            "acknowledged: the -wal file beside it was lost or damaged, or an older copy was put in its place. "
            f"{WAY_OUT}",
            last.rows,
            path,
        )


WAY_OUT = (
    "Put back all files that belong to it; to go on without what was lost, make a copy with surefoot backup "
    "--accept-loss and read in the documentation what that means"
)


class _End(NamedTuple):
    """What stands behind the last row; two of each show that there is more than one."""

    heads: list[Any]
    seals: list[Any] | None


class _Piece(NamedTuple):
    """Attributes:
    rows: that follow, each checked.
    last: number and hash of all rows so far.
    taken: bytes that they hold.
    end: of the same moment, with the last rows.
    fault: what is wrong behind these rows, if anything is.
    """

    rows: list[RawRow]
    last: Mark
    taken: int
    end: _End | None
    fault: Damaged | None


def _piece(path: Path, last: Mark, taken: int, expected: Mark) -> _Piece:
    """Some rows after the `last` one."""
    (n, previous), (count, marked) = last, expected
    rows: list[RawRow] = []
    size, end, fault = 0, None, None
    try:
        with closing(reader(path)) as connection:
            sealed = check_schema(connection, path)
            connection.execute("BEGIN")
            for row in connection.execute(FOLLOWING, (n or LOWEST,)):
                found, kind, payload, digest = row
                if found != n:
                    raise Damaged(f"row {n} is missing, the next one there is {found}", n, path)
                previous = sha256(previous + kind + b" " + payload).digest()  # `chain_hash`, without the call
                if digest != previous:
                    raise Damaged(f"row {n} or a row before it was altered: its hash does not follow", n, path)
                n += 1
                if n == count and previous != marked:
                    raise Damaged(f"row {n - 1} is not the one that {mark_path(path).name} records", n - 1, path)
                rows.append(row)
                size += len(kind) + len(payload) + ROW_OVERHEAD
                if size > PIECE:
                    break
            else:
                end = _end(connection, sealed)
            taken += size - ROW_OVERHEAD * len(rows)
            if taken > size_on_disk(path):
                raise Damaged(f"the rows up to row {n - 1} hold more bytes than the file", n - 1, path)
    except Damaged as error:
        fault = error
    except STRANGE as error:
        fault = Damaged(f"row {n} cannot be read ({error})", n, path)
    except MemoryError:
        raise too_large(path) from None
    return _Piece(rows, Mark(n, previous), taken, end, fault)


FOLLOWING = "SELECT n, kind, payload, hash FROM rows WHERE n >= ? ORDER BY n"


def _end(connection: sqlite3.Connection, sealed: bool) -> _End:
    seals = connection.execute("SELECT seal FROM seals LIMIT 2").fetchall() if sealed else None
    return _End(connection.execute("SELECT count, hash FROM head LIMIT 2").fetchall(), seals)


def size_on_disk(path: Path) -> int:
    """Of the journal and its log; while somebody reads them they do not shrink."""
    return path.stat().st_size + _size(path, "-wal")


def _check_end(path: Path, last: Mark, end: _End, key: bytes | None) -> None:
    n = last.rows
    if n == 0:
        raise Damaged("row 0 is missing", 0, path)
    if end.heads != [last]:
        counted = end.heads[0][0] if end.heads else "nothing"
        raise Damaged(f"row {n} is missing: the journal ends there, but its head says {counted} rows", n, path)
    if key is not None and not (end.seals and same(head_seal(key, *last), end.seals[0][0])):
        raise Damaged(f"its {n} rows are not sealed with this key: who wrote them did not hold it", n, path)


def read_required_mark(path: Path) -> Mark | None:
    """What `path` must contain. A journal that is in use must have a mark; one that was closed need not.

    The mark is read after the mode, and before any rows: so it is there if the mode demands it, and the rows that are
    read later are not fewer.
    """
    identity(path)
    with closing(reader(path)) as connection:
        check_schema(connection, path)
        demanded = _in_use(connection, path)
    found = read_mark(path)
    if found is None and demanded:
        raise Damaged(
            f"is in use or was not closed, and {mark_path(path).name}, which records what it must contain, is missing "
            f"or damaged: rows may have been lost. {WAY_OUT}",
            path=path,
        )
    return found


def _in_use(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether rows may be in the write-ahead log, so that this file is not all there is."""
    with raise_as_damaged(path):
        if connection.execute("PRAGMA user_version").fetchone()[0] < MARKED:
            return False
        if _unwritable(path):  # SQLite leaves the log alone then; nobody can hold locks that reading would drop
            with path.open("rb") as stream:
                return stream.read(20)[18:19] == b"\x02"
        return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal")


def head_count(path: Path) -> int:
    """How many rows the journal says it has; nothing is checked yet."""
    with closing(reader(path)) as connection, raise_as_damaged(path):
        check_schema(connection, path)
        found = connection.execute("SELECT count FROM head").fetchone()
    return found[0] if found else 0


def resolve_journal_path(path: str | os.PathLike[str]) -> Path:
    """The file itself, whatever links lead to it: lock, mark and log are named after it."""
    try:
        found = Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # the latter two: circular links, NUL in the path
        raise ArtifactError(f"{os.fspath(path)!a}: cannot be the path of a journal ({error})") from None
    if not found.name:
        raise ArtifactError(f"{found}: cannot be the path of a journal (it is a folder)")
    return found


FileId = tuple[int, int]  # device and number


def identity(path: Path) -> FileId:
    """Which file this is; refuses what cannot be a journal."""
    try:
        found = path.stat()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror}), must be a journal") from None
    if not path.is_file() or not found.st_size:
        raise ArtifactError(f"{path}: is {'empty' if path.is_file() else 'not a file'}, must be a journal")
    return found.st_dev, found.st_ino


def file_id(path: Path | str) -> FileId | None:
    """Which file is there now; None if none is."""
    try:
        found = os.stat(path)  # noqa: PTH116 - before and after every write, and faster than the path's own
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, mode: str, longest: int = LIMITS.size) -> sqlite3.Connection:
    """Used by one thread at a time, which is for the caller to see to. No value may have more than `longest` bytes."""
    place = quote(os.fsencode(path.as_posix()))
    uri = f"file://{'' if place.startswith('/') else '/'}{place}?mode={mode}"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest + 1024)  # of a whole row
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_STATEMENT)
        connection.text_factory = bytes
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
    except STRANGE as error:
        refuse_file(path, error)
    return connection


def reader(path: Path, longest: int = LIMITS.size) -> sqlite3.Connection:
    """A closed journal can also be read where nothing may be written, not even SQLite's shared memory file."""
    if _unwritable(path):
        mode = "ro&immutable=1"
    else:  # a kill while the journal changed its mode leaves what only a connection that may write can put right
        mode = "rw" if _size(path, "-journal") and os.access(path, os.W_OK) else "ro"
    connection = connect(path, mode, longest)
    connection.set_progress_handler(lambda: 1, MOST_STEPS)  # which ends the statement
    return connection


def _unwritable(path: Path) -> bool:
    return not os.access(path.parent, os.W_OK) and not _size(path, "-wal")


def _size(path: Path, suffix: str) -> int:
    """Of a file that belongs to the journal; 0 if there is none."""
    try:
        return path.with_name(path.name + suffix).stat().st_size
    except OSError:
        return 0


def check_schema(connection: sqlite3.Connection, path: Path) -> bool:
    """Exactly our tables: no trigger, view or index that would act on its own. Whether there is one for seals."""
    try:
        identity = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("SELECT type, name, sql FROM sqlite_master LIMIT 9").fetchall()
    except STRANGE as error:
        refuse_file(path, error)
    plain, sealed = (
        sorted((b"table", name.encode(), sql.encode()) for name, sql in tables.items())
        for tables in (SCHEMA, {**SCHEMA, **SEALS})
    )
    found.sort(key=str)
    if identity != APPLICATION_ID or found not in (plain, sealed):
        raise Damaged("is not a journal of a deployment, or its tables were altered", path=path)
    return found == sealed


def refuse_file(path: Path, error: Exception) -> NoReturn:
    advice = "; it was interrupted in the midst of a write: open it once where it may be written to"
    hint = advice if _size(path, "-journal") else ""
    raise Damaged(f"cannot be opened as a journal ({error}){hint}", path=path) from None


@contextmanager
def raise_as_damaged(path: Path | str, row: int | None = None) -> Iterator[None]:
    """Whatever cannot be made sense of inside is the file's fault, since anything may be in it."""
    try:
        yield
    except Damaged as error:
        if error.row is None or error.path is not None:
            raise
        raise Damaged(error.sentence, error.row, path) from None
    except SurefootError:
        raise
    except STRANGE as error:
        said = f"is not what a deployment writes ({type(error).__name__}: {error})"
        raise (Damaged(f"{path} {said}") if row is None else Damaged(f"row {row} {said}", row, path)) from None
    except MemoryError:
        raise too_large(path) from None


def too_large(path: Path | str) -> ArtifactError:
    return ArtifactError(f"{path}: takes more memory than there is")


# ---------------------------------------------------------------------------------------------------------------- seals

# HMAC-SHA256 with a key that is kept outside the journal: who does not hold it cannot write what it covers. The seal of
# the head covers the number of rows and the last hash, hence every row. There is one at a time, written with the rows
# in one transaction, so that cutting rows off leaves none that fits.

SHORTEST_KEY, LONGEST_KEY = 16, 4096  # bytes of a key


def check_key(key: Any) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes) or not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InvalidInput(f"key must be {SHORTEST_KEY} to {LONGEST_KEY} random bytes, got {found}")
    return key


def key_name(key: bytes | None) -> str | None:
    """Tells keys apart in row 0, and gives nothing of the key away."""
    return None if key is None else _hmac_sha256(key, b"name").hex()[:16]


def head_seal(key: bytes, count: int, digest: bytes) -> bytes:
    return _hmac_sha256(key, b"head %d " % count + digest)


def snapshot_seal(key: bytes, row: int, digest: bytes, state: bytes) -> bytes:
    return _hmac_sha256(key, b"snapshot %d " % row + digest + state)


def calibration_seal(key: bytes, content: bytes) -> bytes:
    return _hmac_sha256(key, b"calibration " + content)


def same(one: bytes, other: Any) -> bool:
    return isinstance(other, bytes) and hmac.compare_digest(one, other)


def _hmac_sha256(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, b"surefoot " + message, "sha256")

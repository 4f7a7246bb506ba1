"""The mark: a synced note beside the journal of what was acknowledged, so that lost rows show.

Whatever is inside the database can be lost together with it: one bad bit in SQLite's write-ahead log, and all that
comes after is dropped without a word. `JOURNAL.mark` says from outside that so many `rows`, the last of them with hash
`head`, were acknowledged.

Why no crash makes an honest journal unreadable. Each append does, in this order,

    1. COMMIT, synced       2. write the mark, synced       3. acknowledge

so at every moment mark <= database, and a kill between 1 and 2 leaves rows behind the mark, which nobody was promised.
The mark has two slots of one disk sector each and overwrites the older one, so a torn write leaves the other, which
is a smaller mark. The first mark is written before the write-ahead log is in use, and a journal that was closed needs
none: so a mark without a readable slot counts as none there, and as lost where the log is in use.
"""

from __future__ import annotations

import os
import re
import stat
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from surefoot.errors import ArtifactError
from surefoot.files import sync_folder

SLOT = 512  # bytes: what a disk writes as one piece
FORM = re.compile(rb"surefoot-mark ([0-9]{1,18}) ([0-9a-f]{64}) ([0-9a-f]{16}) *\n")
sync_data = getattr(os, "fdatasync", os.fsync)
OPEN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Mark(NamedTuple):
    rows: int
    head: bytes  # hash of the last of them


def mark_path(journal: Path) -> Path:
    return journal.with_name(journal.name + ".mark")


def read_mark(journal: Path) -> Mark | None:
    """The mark of `journal`; None if there is none that can be read."""
    path = mark_path(journal)
    try:
        handle = os.open(path, os.O_RDONLY | OPEN)
        try:
            return max(filter(None, _slots(handle)), default=None)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or error
        raise ArtifactError(f"{path}: cannot be read ({why}), must be the mark of {journal.name}") from None


class MarkFile:
    """The mark as its writer keeps it open; made if it is not there. It is read once, to know which slot is older.

    Whether the file still has its name is for the writer to see to, who compares its `id`.
    """

    def __init__(self, journal: Path) -> None:
        self._path = mark_path(journal)
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | OPEN, 0o644)
        try:
            first, second = _slots(self._handle)
            found = os.fstat(self._handle)
        except BaseException:
            self.close()
            raise
        self.id = found.st_dev, found.st_ino
        self._empty = first is None and second is None
        self._older = 0 if first is None or (second is not None and first < second) else 1

    def write(self, mark: Mark) -> None:
        """On the disk when this returns; OSError if it could not be put there."""
        if self._empty:
            _write(self._handle, 0, 2 * _slot(mark))
            os.fsync(self._handle)
            sync_folder(self._path.parent)
        else:
            _write(self._handle, self._older * SLOT, _slot(mark))
            sync_data(self._handle)  # the file does not grow
            self._older = 1 - self._older
        self._empty = False

    def close(self) -> None:
        os.close(self._handle)


def _slots(handle: int) -> tuple[Mark | None, Mark | None]:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError("not a file")
    content = os.read(handle, 2 * SLOT)
    return _parse_slot(content[:SLOT]), _parse_slot(content[SLOT:])


def _parse_slot(slot: bytes) -> Mark | None:
    found = FORM.fullmatch(slot)
    if found is None:
        return None
    mark = Mark(int(found[1]), bytes.fromhex(found[2].decode()))
    return mark if _slot(mark) == slot else None


def _slot(mark: Mark) -> bytes:
    text = b"surefoot-mark %d %s" % (mark.rows, mark.head.hex().encode())
    check = sha256(text).hexdigest()[:16].encode()
    return (text + b" " + check).ljust(SLOT - 1) + b"\n"


def _write(handle: int, place: int, content: bytes) -> None:
    os.lseek(handle, place, os.SEEK_SET)
    if os.write(handle, content) != len(content):
        raise OSError("the mark could not be written whole")

"""Following a journal that grows, without disturbing who writes it: each row is read, checked and taken in once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.deploy.chain import BEGINNING, Damaged, RawRow, checked_rows, located, named, understood
from surefoot.deploy.forms import check_seals, opening
from surefoot.deploy.history import History
from surefoot.deploy.marks import Mark, mark_path
from surefoot.deploy.page import View, view
from surefoot.deploy.seals import checked_key
from surefoot.errors import SurefootError

if TYPE_CHECKING:
    from surefoot.deploy.possible import Possible

SETTLED = 2.0  # seconds after which a file that looks the same is taken to be the same

Stamp = tuple[tuple[int, int, int, int] | None, ...]
Maker = Callable[[Mapping[str, Any]], "Possible"]


class Follower:
    """The latest view of the journal at `path`, which need not exist yet.

    It opens the file to read, for moments only, and takes no lock. Rows are checked against each other as by every
    reader, and with a `key` against their seal; those read earlier are not looked at again. If the file was replaced
    or is not what it was, everything is read anew.

    Args:
        maker: makes of row 0 what replays the journal, where the policy set is at hand; it follows too.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None, maker: Maker | None = None) -> None:
        self.path, self._key, self._maker = located(path), checked_key(key), maker
        self.view = self._waiting()
        self.changes = 0  # of the view
        self.written = 0.0  # when the journal was written to last, in seconds since 1970
        self._stamp: Stamp = ()
        self._possible: Possible | None = None
        self._rows: Iterator[RawRow] | None = None  # those that are being read
        self._first = 0  # of these
        self._restart()

    def advance(self, seconds: float) -> None:
        """Take in what is new, for about so long at most; what is left then is taken in at the next call."""
        if self._rows is None:
            stamp = stamped(self.path)
            if stamp == self._stamp and time.time() - self.written > SETTLED:
                return
            if self._replaced(stamp):
                self._restart()
            self._stamp, self.written = stamp, max((each[3] / 1e9 for each in stamp if each), default=0.0)
            if stamp[0] is None:
                self._restart()
                return self._show(self._waiting())
            self._first, self._rows = self._end.rows, checked_rows(self.path, key=self._key, after=self._end)
        try:
            with understood(self.path):
                self._show(self._read(self._rows, time.monotonic() + seconds))
        except (SurefootError, OSError) as error:
            if self._first:  # not what it was: read it anew, once
                self._stamp = ()
            self._restart()
            word = "Damaged" if isinstance(error, Damaged) else "Unreadable"
            self._show(View(self.path.name, word, "bad", f"{error}."))

    def _read(self, rows: Iterator[RawRow], deadline: float) -> View:
        for raw in rows:
            self._take(raw)
            if time.monotonic() > deadline:  # what an earlier row says may no longer be so
                text = f"Reading the journal: {self._end.rows:,} rows so far. What it says comes when all are read."
                return View(self.path.name, "Reading", "", text)
        self._rows = None
        if self._possible is not None:
            self._possible.finish()
        return view(self.path.name, self._history, self._possible)

    def _take(self, raw: RawRow) -> None:
        row = named(raw, self.path)
        if row.n == 0:
            opened = opening(row, str(self.path))
            check_seals(opened, self.path)
            self._possible = None if self._maker is None else self._maker(opened)
        self._history.add(row)
        if self._possible is not None:
            self._possible.add(row)
        self._end = Mark(row.n + 1, row.hash)

    def _show(self, shown: View) -> None:
        if shown != self.view:
            self.view = shown
            self.changes += 1

    def _replaced(self, stamp: Stamp) -> bool:
        old, new = (each[0] if each else None for each in (self._stamp, stamp))
        return old is not None and new is not None and old[:2] != new[:2]

    def _restart(self) -> None:
        self._history = History(sealed=self._key is not None)
        self._possible, self._rows = None, None
        self._end = Mark(0, BEGINNING)

    def _waiting(self) -> View:
        text = f"There is no journal at {self.path} yet. This page fills when a deployment begins it."
        return View(self.path.name, "Waiting", "", text)


def stamped(path: Path) -> Stamp:
    """What changes with every write: device, file, size and time of the journal, its log and its mark."""
    return tuple(_stamp(each) for each in (path, path.with_name(path.name + "-wal"), mark_path(path)))


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

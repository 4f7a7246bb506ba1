"""Following a journal that grows, without disturbing who writes it: each row is read, checked and taken in once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.deploy.chain import (
    BEGINNING,
    Damaged,
    RawRow,
    checked_blocks,
    head_count,
    located,
    named,
    understood,
)
from surefoot.deploy.forms import check_seals, opening
from surefoot.deploy.history import History
from surefoot.deploy.marks import Mark, mark_path
from surefoot.deploy.page import View, view
from surefoot.deploy.seals import checked_key
from surefoot.errors import SurefootError

if TYPE_CHECKING:
    from surefoot.deploy.possible import Possible

SETTLED = 2.0  # seconds after which a file that looks the same is taken to be the same
BLOCK, REPLAYED = 4096, 64  # rows that are taken in at once, by themselves and where each is computed again

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
        self._blocks: Iterator[list[RawRow]] | None = None  # those that are being read
        self._first = self._announced = 0  # number of the first of these, and how many rows there are said to be
        self._restart()

    @property
    def reading(self) -> bool:
        """Whether rows are left that the next call of `advance` will take in."""
        return self._blocks is not None

    def advance(self, seconds: float) -> None:
        """Take in what is new, for about so long at most; what is left then is taken in at the next call."""
        try:
            self._advance(seconds)
        except BaseException:
            self._restart()  # half of the rows are no history
            self._stamp = ()
            raise

    def _advance(self, seconds: float) -> None:
        if self._blocks is None:
            stamp = stamped(self.path)
            if stamp == self._stamp and time.time() - self.written > SETTLED:
                return
            if self._replaced(stamp):
                self._restart()
            self._stamp, self.written = stamp, max((each[3] / 1e9 for each in stamp if each), default=0.0)
            if stamp[0] is None:
                self._restart()
                return self._show(self._waiting())
            most = BLOCK if self._maker is None else REPLAYED
            self._blocks = checked_blocks(self.path, most, key=self._key, after=self._end)
            self._first, self._announced = self._end.rows, 0
        try:
            with understood(self.path):
                self._show(self._read(self._blocks, time.monotonic() + seconds))
        except (SurefootError, OSError) as error:
            if self._first:  # not what it was: read it anew, once
                self._stamp = ()
            self._restart()
            word = "Damaged" if isinstance(error, Damaged) else "Unreadable"
            self._show(View(self.path.name, word, "bad", f"{error}."))

    def _read(self, found: Iterator[list[RawRow]], deadline: float) -> View:
        for rows in found:
            self._take(rows)
            if time.monotonic() > deadline:  # what an earlier row says may no longer be so
                return self._progress()
        self._blocks = None
        if self._possible is not None:
            self._possible.finish()
        return view(self.path.name, self._history, self._possible)

    def _take(self, rows: list[RawRow]) -> None:
        if rows[0][0] == 0:
            opened = opening(named(rows[0], self.path), str(self.path))
            check_seals(opened, self.path)
            self._possible = None if self._maker is None else self._maker(opened)
        self._history.extend(rows, self.path)
        if self._possible is not None:
            for row in rows:
                self._possible.add(named(row, self.path))
        n, _, _, digest = rows[-1]
        self._end = Mark(n + 1, digest)

    def _progress(self) -> View:
        """Rows may be added meanwhile: how many there are is asked once, and again if there turn out to be more."""
        if self._announced < self._end.rows:
            self._announced = max(head_count(self.path), self._end.rows)
        text = f"Reading the journal: {self._end.rows:,} of {self._announced:,} rows so far, each of them checked."
        return View(self.path.name, "Reading", "", f"{text} What it says comes when all are read.")

    def _show(self, shown: View) -> None:
        if shown != self.view:
            self.view = shown
            self.changes += 1

    def _replaced(self, stamp: Stamp) -> bool:
        old, new = (each[0] if each else None for each in (self._stamp, stamp))
        return old is not None and new is not None and old[:2] != new[:2]

    def _restart(self) -> None:
        self._history = History(sealed=self._key is not None)
        self._possible, self._blocks = None, None
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

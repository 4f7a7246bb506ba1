"""One writer at a time: an exclusive lock on a file beside the journal, freed by the system when its holder dies."""

from __future__ import annotations

import os
import sys
import weakref
from contextlib import suppress
from pathlib import Path

from surefoot.errors import ArtifactError


class WriterLock:
    """Held from construction to `release`; also refuses a second writer within the same process."""

    def __init__(self, path: Path) -> None:
        self.path, self._place = path, str(path)
        self._handle: int | None = None
        while not self.held():  # whoever held it before may have removed the file
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

    def held(self) -> bool:
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
        if discard and self.held() and self._made:
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

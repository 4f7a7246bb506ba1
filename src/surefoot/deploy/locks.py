"""One writer at a time: an exclusive lock on a file beside the journal, freed by the system when its holder dies."""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path

from surefoot.errors import ArtifactError


class WriterLock:
    """Held from construction to `release`; also refuses a second writer within the same process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be opened for locking ({error.strerror}), must be writable") from None
        try:
            _lock(handle)
        except OSError:
            os.close(handle)
            raise ArtifactError(
                f"{path}: is held by another deployment that writes to the same journal; close that one first"
            ) from None
        self._handle = handle
        _held.add(self)

    def held(self) -> bool:
        """Whether the file that others would lock is still the one that is locked here."""
        if self._handle is None:
            return False
        try:
            found, own = self.path.stat(), os.fstat(self._handle)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def release(self) -> None:
        """The file stays: removing it would let two writers lock two different files of the same name."""
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

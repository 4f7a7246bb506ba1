"""The one way to write output files: whole or not at all, on the disk before it counts, and never through a link.

Contents are completed and flushed in a hidden folder beside their place, and then renamed into it. Whoever looks sees
the old file or the new one. A link at that place is replaced; what it points to stays as it was.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from surefoot.errors import ArtifactError
from surefoot.interrupts import defer_sigint

try:
    import fcntl
except ImportError:  # Windows, where folders cannot be locked
    fcntl = None  # type: ignore[assignment]

HIDDEN = ".surefoot-"  # begins the names of folders in which files are completed
Content: TypeAlias = bytes | Iterable[bytes]  # in one piece or in several


def write_file(path: str | PathLike[str], content: Content, *, argument: str = "out") -> None:
    """`content` as the file `path`; `argument` is what errors call it."""
    target = Path(path)
    write_files(target.parent, {target.name: content}, argument=argument)


def write_files(folder: str | PathLike[str], contents: Mapping[str, Content], *, argument: str = "out") -> None:
    """All of `contents` into `folder`, by name; none of them if one cannot be written."""
    place = Path(folder)
    for name in contents:
        check_file(place / name, argument=argument)
    try:
        made = [each for each in (place, *place.parents) if not each.exists()]
        place.mkdir(parents=True, exist_ok=True)
        with staging_folder(place) as (staging, let_through):
            for name, content in contents.items():
                let_through()
                write_new(
                    staging / name,
                    content if isinstance(content, bytes) else _interruptible_pieces(content, let_through),
                )
            # Only renames are left, which do not fail halfway for lack of space.
            for name in contents:
                (staging / name).replace(place / name)
        for each in (place, *(new.parent for new in made)):
            sync_folder(each)
    except OSError as error:
        raise ArtifactError(f"{argument}: cannot write to {place}: {error.strerror or error}") from None


@contextmanager
def staging_folder(place: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A hidden folder in `place` for a while. Ctrl-C waits for its end, or for a call of the function beside it."""
    remove_leftovers(place)
    with defer_sigint() as let_through, _make_locked_folder(place) as staging:
        yield staging, let_through


@contextmanager
def _make_locked_folder(place: Path) -> Iterator[Path]:
    """The system frees the lock when its holder dies: a folder that nobody locks is a leftover."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=place, prefix=HIDDEN))
        handle = _folder_lock(folder, wait=True)
        if folder.exists():  # not taken for a leftover before it was locked
            break
        _unlock(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(handle)


def remove_leftovers(place: Path) -> None:
    """The hidden folders in `place` of processes that were killed."""
    for folder in place.glob(f"{HIDDEN}????????"):
        handle = _folder_lock(folder, wait=False)
        if handle is not None:
            shutil.rmtree(folder, ignore_errors=True)
        _unlock(handle)


def _folder_lock(folder: Path, *, wait: bool) -> int | None:
    """None where it is locked, is not ours or cannot be locked."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _interruptible_pieces(content: Iterable[bytes], let_through: Callable[[], None]) -> Iterator[bytes]:
    for piece in content:
        let_through()
        yield piece


def check_file(path: str | PathLike[str], *, force: bool = True, argument: str = "out") -> None:
    """Refuse, before any work is done, a place that cannot hold a file; without `force` also one that holds one."""
    target = Path(path)
    found = _stat_or_none(target, f"{argument} must be a file")
    if not target.name or (found is not None and not stat.S_ISREG(found.st_mode)):
        raise ArtifactError(f"{argument} must be a file, got {target}, which is a folder, a device or a pipe")
    if not force and os.path.lexists(target):
        raise ArtifactError(f"{argument} must be a new file, got {target}, which exists")
    check_folder(target.parent, argument=argument)


def check_folder(path: str | PathLike[str], *, argument: str = "out") -> None:
    """Refuse, before any work is done, a place that cannot hold files; it need not exist yet."""
    folder = Path(path)
    _stat_or_none(folder, f"{argument} must be a folder")
    place = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not place.is_dir():
        raise ArtifactError(f"{argument} must be a folder, got {folder}, but {place} is a file")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ArtifactError(f"{argument} must be a folder that can be written to, got {folder}, but {place} is not")


def _stat_or_none(path: Path, rule: str) -> os.stat_result | None:
    """What is at `path`, behind links; None if nothing is. A path that no system accepts breaks the `rule`."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):  # of the latter `check_folder` names the parent that is a file
        return None
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        raise ArtifactError(f"{rule}, got {str(path)!r}: {getattr(error, 'strerror', None) or error}") from None


def write_new(path: Path, content: Content) -> None:
    """A file that was not there before, flushed to the disk."""
    with path.open("xb") as stream:
        stream.writelines([content] if isinstance(content, bytes) else content)
        stream.flush()
        os.fsync(stream.fileno())


def read_file(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes; a pipe or a device, which may never end, is not read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactError(f"{path}: must be a file, found a folder, a device or a pipe")
        if found.st_size > most:
            raise ArtifactError(f"{path}: has {found.st_size} bytes, must have at most {most}")
        with path.open("rb") as stream:
            return stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on the disk: a renamed file is safe only after this."""
    if os.name == "nt":  # folders cannot be flushed there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

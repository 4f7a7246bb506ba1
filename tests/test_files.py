"""Output files: whole or not at all, never through a link, and a place that cannot hold them is refused at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import files
from surefoot.errors import ArtifactError


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_is_written_with_its_parents_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "deep/er/file"
    files.write_file(target, b"whole")
    assert target.read_bytes() == b"whole"
    files.write_file(target, (piece for piece in (b"in ", b"pieces")))
    assert target.read_bytes() == b"in pieces"
    assert names(target.parent) == ["file"]
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to("victim")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("link", "dangling"):
        files.write_file(tmp_path / name, b"new")
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_bytes() == b"new"
    assert (tmp_path / "victim").read_text() == "mine"
    assert names(tmp_path) == ["dangling", "link", "victim"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ArtifactError("torn")])
def test_a_failure_leaves_everything_as_it_was(error: BaseException, tmp_path: Path) -> None:
    (tmp_path / "second").write_text("old")

    def breaking() -> Iterator[bytes]:
        yield b"half"
        raise error

    with pytest.raises(ArtifactError if isinstance(error, OSError) else type(error)) as raised:
        files.write_files(tmp_path, {"first": b"new", "second": breaking()})
    if isinstance(error, OSError):
        assert str(raised.value) == f"out: cannot write to {tmp_path}: No space left on device"
    assert names(tmp_path) == ["second"]
    assert (tmp_path / "second").read_text() == "old"


def test_everything_is_on_the_disk_before_it_is_renamed_and_the_names_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(handle: int) -> None:
        folder = os.path.isdir(f"/proc/self/fd/{handle}")  # noqa: PTH112
        events.append("sync folder" if folder else "sync file")
        sync(handle)

    def renamed(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    files.write_files(tmp_path / "new", {"a": b"1", "b": b"2"})
    assert events == ["sync file", "sync file", "rename", "rename", "sync folder", "sync folder"]


def prepared(tmp_path: Path, kind: str) -> Path:
    """A place of that kind."""
    target = tmp_path / "target"
    match kind:
        case "folder":
            target.mkdir()
        case "pipe":
            os.mkfifo(target)
        case "link to a folder":
            (tmp_path / "real").mkdir()
            target.symlink_to("real")
        case "circle":
            target.symlink_to("target")
        case "below a file":
            target.write_text("mine")
            return target / "below" / "file"
        case "below a dangling link":
            target.symlink_to("nowhere")
            return target / "file"
        case "NUL":
            return tmp_path / "a\0b"
        case "too long":
            return tmp_path / ("x" * 300)
    return target


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("folder", "figure must be a file, got .*target, which is a folder"),
        ("pipe", "figure must be a file, got .*target, which is a folder, a device or a pipe"),
        ("link to a folder", "figure must be a file, got .*target, which is a folder"),
        ("circle", "figure must be a file, got .*target.*: .*links"),
        ("below a file", "figure must be a folder, got .*below, but .*target is a file"),
        ("below a dangling link", "figure must be a folder, got .*target, but .*target is a file"),
        ("NUL", "figure must be a file, got .*null"),
        ("too long", "figure must be a file, got .*too long"),
    ],
)
def test_a_place_that_cannot_hold_a_file_is_refused(kind: str, message: str, tmp_path: Path) -> None:
    target = prepared(tmp_path, kind)
    before = names(tmp_path)
    for attempt in (files.check_file, lambda path, argument: files.write_file(path, b"new", argument=argument)):
        with pytest.raises(ArtifactError, match=message):
            attempt(target, argument="figure")
    assert names(tmp_path) == before


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may write anywhere
    with pytest.raises(ArtifactError, match=r"out must be a folder that can be written to, got .*new, but .* is not"):
        files.check_folder(tmp_path / "new")


def test_without_force_an_existing_file_is_refused(tmp_path: Path) -> None:
    files.check_file(tmp_path / "new", force=False)
    (tmp_path / "old").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("old", "link"):
        files.check_file(tmp_path / name)
        with pytest.raises(ArtifactError, match=f"out must be a new file, got .*{name}, which exists"):
            files.check_file(tmp_path / name, force=False)


# ------------------------------------------------------------------------------------------------------------ leftovers


@pytest.mark.forks
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_what_a_kill_leaves_is_removed_by_whoever_writes_next(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with files.staging_folder(tmp_path) as (staging, _):
            (staging / "half").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".surefoot-mine").mkdir()  # no such name was ever made here
    files.write_file(tmp_path / "new", b"content")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".surefoot-mine", "new"]


def test_what_somebody_is_writing_is_left_alone(tmp_path: Path) -> None:
    with files.staging_folder(tmp_path) as (staging, _):
        (staging / "half").write_bytes(b"x")
        files.write_file(tmp_path / "new", b"content")
        assert (staging / "half").read_bytes() == b"x"
    assert [each.name for each in tmp_path.iterdir()] == ["new"]


def test_a_folder_taken_for_a_leftover_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its locking."""
    lock, calls = files._folder_lock, []

    def late(folder: Path, *, wait: bool) -> int | None:
        if wait and not calls:
            files.remove_leftovers(tmp_path)
        calls.append(folder)
        return lock(folder, wait=wait)

    monkeypatch.setattr(files, "_folder_lock", late)
    files.write_file(tmp_path / "new", b"content")
    assert [each.name for each in tmp_path.iterdir()] == ["new"]

"""Rows that were acknowledged and are gone: the mark outside the database tells, and whoever opens or reads says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import deployments
import pytest
from deployments import fresh
from mutations import execute

from surefoot.cli.journals import export_lines
from surefoot.deploy.backup import backup
from surefoot.deploy.chain import Damaged, read
from surefoot.deploy.marks import SLOT, Mark, MarkFile, read_mark
from surefoot.deploy.page import deployment_page
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError

READERS = (read_status, lambda path: list(read(path)), lambda path: list(export_lines(path)), deployment_page)


def killed(folder: Path, episodes: int = 12) -> Path:
    """The files of a deployment as they are in the midst of it; its last outcome was beyond a declared range."""
    (folder / "running").mkdir()
    path = folder / "running" / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, episodes)
        deployment.tell(deployment.ask(), reward=99.0, cost=0.5, first_state=0, breach=True)
        assert deployment.ask().policy_index == 0
        (folder / "killed").mkdir()
        for file in path.parent.iterdir():
            shutil.copyfile(file, folder / "killed" / file.name)
    return folder / "killed" / "journal"


def check_refused(path: Path, message: str) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    for reader in READERS:
        with pytest.raises(ArtifactError, match=message):
            reader(path)
    with suppress(Damaged):
        assert not verify(path, fresh()).holds
    with pytest.raises(ArtifactError, match=message):
        Deployment.open(path, fresh())
    with pytest.raises(ArtifactError, match=message):
        backup(path, path.with_name("copy"))
    after = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert {name: after[name] for name in before} == before  # what may still be saved is not touched


def test_what_a_kill_leaves_is_whole(tmp_path: Path) -> None:
    path = killed(tmp_path)
    assert verify(path, fresh()).holds
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.status().state == "safe"
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal", "journal.lock", "journal.mark"]


@pytest.mark.parametrize("damage", ["one bit", "half", "emptied", "removed"])
def test_a_damaged_write_ahead_log_is_refused(tmp_path: Path, damage: str) -> None:
    """SQLite drops what comes after a bad checksum without a word: here a breach that voided the certificate."""
    path = killed(tmp_path)
    log = path.with_name("journal-wal")
    content = bytearray(log.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
    elif damage == "half":
        log.write_bytes(content[: len(content) // 2])
    elif damage == "emptied":
        log.write_bytes(b"")
    else:
        log.unlink()
    check_refused(path, "journal.mark records that .* rows were acknowledged")


def test_the_main_file_alone_of_a_deployment_that_runs_is_refused(tmp_path: Path) -> None:
    path = killed(tmp_path)
    alone = tmp_path / "alone" / "journal"
    alone.parent.mkdir()
    shutil.copyfile(path, alone)
    check_refused(alone, "journal.mark, which records what it must contain, is missing")


def test_a_journal_that_was_closed_is_one_file(tmp_path: Path) -> None:
    head = deployments.deployed(tmp_path / "journal", 9)
    shutil.copyfile(tmp_path / "journal", tmp_path / "copy")
    assert verify(tmp_path / "copy", fresh()).head == head
    with Deployment.open(tmp_path / "copy", fresh()) as deployment:
        assert deployment.ask().episode == 9


def test_an_older_copy_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 5)
    older = path.read_bytes()
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 9)
    path.write_bytes(older)
    check_refused(path, "an older copy was put in its place")
    path.unlink()
    with pytest.raises(ArtifactError, match=r"records .* rows of journal, which is gone"):
        Deployment.open(path, fresh())


def test_another_history_of_the_same_length_is_refused(tmp_path: Path) -> None:
    for name, cost in (("one", 0.5), ("other", 0.6)):
        with Deployment.open(tmp_path / name, fresh()) as deployment:
            deployment.tell(deployment.ask(), reward=1.0, cost=cost, first_state=0)
    (tmp_path / "one").write_bytes((tmp_path / "other").read_bytes())
    with pytest.raises(ArtifactError, match=r"is not the one that one\.mark records"):
        Deployment.open(tmp_path / "one", fresh())


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_mark_leaves_the_one_before(tmp_path: Path, slot: int) -> None:
    """Whichever slot was being written: the other one stands, and is not larger than the journal."""
    path = killed(tmp_path)
    mark = path.with_name("journal.mark")
    content = bytearray(mark.read_bytes())
    assert len(content) == 2 * SLOT
    content[slot * SLOT + 20] ^= 1
    mark.write_bytes(content)
    assert verify(path, fresh()).holds
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.status().state == "safe"
        assert deployment.ask().episode == 13


def test_the_mark_is_never_ahead_and_never_more_than_one_write_behind(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        assert read_mark(path) == (deployment.status().rows, bytes.fromhex(deployment.head()))
        for _ in range(5):
            order = deployment.ask()
            assert read_mark(path) == (deployment.status().rows, bytes.fromhex(deployment.head()))
            deployment.tell(order, **deployments.told(order))
            assert read_mark(path) == (deployment.status().rows, bytes.fromhex(deployment.head()))


def test_a_row_is_not_acknowledged_before_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed and then no mark: it counts as not recorded, and the next try finds it there."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        order, head = deployment.ask(), deployment.head()

        def full(*_: object) -> None:
            raise OSError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("surefoot.deploy.marks.MarkFile.write", full)
            with pytest.raises(ArtifactError, match="no space left"):
                deployment.tell(order, **deployments.told(order))
            assert deployment.head() == head
            assert deployment.ask().episode == -1
        assert deployment.ask().episode == 1
    assert verify(path, fresh()).holds


def test_marks_are_written_in_turn_and_survive_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    mark = tmp_path / "journal.mark"
    kept = None
    for before, rows in ((1, 1), (1, 2), (2, 5), (5, 6)):
        if rows != 5:  # kept open or opened again, it is all the same
            kept = MarkFile(path)
        kept.write(Mark(rows, bytes([rows] * 32)))
        assert read_mark(path) == (rows, bytes([rows] * 32))
        slots = mark.read_bytes()[:SLOT], mark.read_bytes()[SLOT:]
        assert sorted(int(slot.split()[1]) for slot in slots) == [before, rows]  # only the older one is overwritten
    for content in (b"", b"x" * 2000, bytes(2 * SLOT), mark.read_bytes()[:100]):
        mark.write_bytes(content)
        assert read_mark(path) is None
    mark.unlink()
    mark.mkdir()
    with pytest.raises(ArtifactError):
        Deployment.open(path, fresh()).ask()


# --------------------------------------------------------------------------------------------------------------- copies


def test_a_backup_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 7)
        rows, head = backup(path, tmp_path / "copy")
        assert (rows, head.hex()) == (deployment.status().rows, deployment.head())
        deployments.drive(deployment, 9)
    assert verify(tmp_path / "copy", fresh()).head == head.hex()
    assert sorted(file.name for file in tmp_path.iterdir() if "copy" in file.name) == ["copy"]
    with Deployment.open(tmp_path / "copy", fresh()) as deployment:
        assert deployment.ask().episode == 7


def test_a_backup_overwrites_nothing(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 3)
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "old.mark").write_text("mine")
    for name in ("there", "link", "journal", "old"):
        with pytest.raises(ArtifactError, match="FILE must be"):
            backup(tmp_path / "journal", tmp_path / name)
    assert (tmp_path / "there").read_text() == "mine"
    with pytest.raises(ArtifactError):
        backup(tmp_path / "nothing", tmp_path / "new")
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".surefoot")]


def test_going_on_without_what_was_lost_must_be_asked_for(tmp_path: Path) -> None:
    path = killed(tmp_path)
    path.with_name("journal-wal").unlink()
    with pytest.raises(Damaged):
        backup(path, tmp_path / "saved")
    rows, _ = backup(path, tmp_path / "saved", accept_loss=True)
    assert rows == 1
    with Deployment.open(tmp_path / "saved", fresh()) as deployment:
        assert deployment.ask().episode == 0
    execute(tmp_path / "saved", ("UPDATE rows SET payload = '{}' WHERE n = 1",))
    with pytest.raises(Damaged):  # not what is altered
        backup(tmp_path / "saved", tmp_path / "more", accept_loss=True)


@pytest.mark.forks
def test_a_kill_while_the_mode_changes_is_put_right_by_whoever_comes(tmp_path: Path) -> None:
    """A rollback journal that is left behind: readers undo the transaction that was cut short, too."""
    path = tmp_path / "journal"
    head = deployments.deployed(path, 5)
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size=1")
        connection.execute("BEGIN")
        connection.execute("UPDATE head SET count = 0")
        for n in range(200):  # spills to the file before it is committed
            connection.execute("INSERT INTO snapshots VALUES (?, x'00', zeroblob(5000), x'00')", (n,))
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert path.with_name("journal-journal").stat().st_size
    assert read_status(path).head == head
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.head() == head

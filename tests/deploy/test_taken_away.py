"""Files that are removed or replaced while a deployment runs: it says so before it acknowledges anything more."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import deployments
import pytest
from deployments import fresh, told

from surefoot.deploy.chain import read, reader
from surefoot.deploy.journal import JournalError
from surefoot.deploy.marks import Mark, MarkFile
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify

NAMES = ("journal-wal", "journal.mark", "journal", "journal.lock")


def take_away(file: Path, how: str) -> None:
    if how == "replaced":
        shutil.copyfile(file, file.with_name("copy"))
        file.with_name("copy").replace(file)
    else:
        file.unlink()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_is_acknowledged_after_a_file_was_taken_away(tmp_path: Path, name: str, how: str) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployments.drive(deployment, 4)
        order, rows = deployment.ask(), deployment.status().rows
        take_away(tmp_path / name, how)
        with pytest.raises(JournalError, match="was removed or replaced") as refused:
            deployment.tell(order, **told(order))
        assert "nothing was recorded" in str(refused.value)
        assert deployment.status().state == "fault"
        assert (deployment.status().rows, deployment.status().episodes) == (rows, 4)


@pytest.mark.parametrize("name", NAMES)
def test_no_order_is_given_after_a_file_was_taken_away(tmp_path: Path, name: str) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployments.drive(deployment, 4)
        take_away(tmp_path / name, "removed")
        assert deployment.ask().episode == FALLBACK
        assert "was removed or replaced" in deployment.status().why


@pytest.mark.parametrize("name", ["journal-wal", "journal.mark"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_it_goes_on_once_all_that_was_acknowledged_is_in_the_journal_again(tmp_path: Path, name: str, how: str) -> None:
    """What SQLite had open is put into the journal when it closes it; only then is a new log begun."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 4)
        order = deployment.ask()
        take_away(tmp_path / name, how)
        with pytest.raises(JournalError):
            deployment.tell(order, **told(order))
        if name == "journal-wal":
            assert len(list(read(path))) == deployment.status().rows
        deployments.drive(deployment, 9)
        assert deployment.status().state == "learning"
        assert read_status(path).head == deployment.head()
    assert verify(path, fresh()).holds
    deployments.deployed(tmp_path / "reference", 9)
    assert deployments.contents(path) == deployments.contents(tmp_path / "reference")


def test_nothing_is_lost_with_the_log_while_somebody_reads(tmp_path: Path) -> None:
    """Then SQLite would not put the log into the journal when it is closed."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 4)
        order = deployment.ask()
        with closing(reader(path)) as stalled:
            stalled.execute("BEGIN")
            assert stalled.execute("SELECT count FROM head").fetchone()[0] == deployment.status().rows
            path.with_name("journal-wal").unlink()
            with pytest.raises(JournalError, match="journal-wal was removed or replaced"):
                deployment.tell(order, **told(order))
        deployments.drive(deployment, 9)
    assert verify(path, fresh()).holds
    deployments.deployed(tmp_path / "reference", 9)
    assert deployments.contents(path) == deployments.contents(tmp_path / "reference")


def test_a_file_taken_away_in_the_midst_of_a_write_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look and before the acknowledgement."""
    path, write = tmp_path / "journal", MarkFile.write
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 4)
        order = deployment.ask()

        def remove_too(file: MarkFile, mark: Mark) -> None:
            write(file, mark)
            path.with_name("journal-wal").unlink()

        with monkeypatch.context() as patch:
            patch.setattr(MarkFile, "write", remove_too)
            with pytest.raises(JournalError, match="journal-wal was removed or replaced"):
                deployment.tell(order, **told(order))
        assert deployment.ask().episode == order.episode + 1  # the row is found where it was written
    assert verify(path, fresh()).holds


def test_a_log_that_sqlite_empties_or_begins_anew_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints, readers that come and go, and a disk that was full for a while take nothing away."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        for episodes in range(3, 30, 3):
            deployments.drive(deployment, episodes)
            read_status(path)
            deployment._journal._run("PRAGMA wal_checkpoint(TRUNCATE)")
        with monkeypatch.context() as patch:
            patch.setattr("surefoot.deploy.marks.MarkFile.write", full)
            assert deployment.ask().episode == FALLBACK
        deployments.drive(deployment, 40)
        assert deployment.status().state == "learning"
    assert verify(path, fresh()).holds


def full(*_: object) -> None:
    raise OSError("no space left on device")

"""Links, threads, forks, stalled readers, closing twice: one writer, a defined answer, and nothing that breaks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import deployments
import numpy as np
import pytest
from deployments import fresh, told

from surefoot.deploy import journal, session
from surefoot.deploy.chain import read
from surefoot.deploy.session import FALLBACK, Closed, Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.learning.method import SAFE
from surefoot.methods import learner

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def refused(work: Callable[[], object], kind: type[Exception] = SurefootError) -> bool:
    try:
        work()
    except kind:
        return True
    return False


# ---------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("way", ["file", "folder", "dots"])
def test_the_lock_follows_the_file_through_links(tmp_path: Path, way: str) -> None:
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "journal"
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    other = {
        "file": tmp_path / "link",
        "folder": tmp_path / "folder" / "journal",
        "dots": tmp_path / "folder" / ".." / "real" / "journal",
    }[way]
    with Deployment.open(path, fresh()) as deployment:
        deployment.ask()
        with pytest.raises(ArtifactError, match="held by another deployment"):
            Deployment.open(other, fresh())
        assert read_status(other).outstanding == 0
        deployments.drive(deployment, 3)
    with Deployment.open(other, fresh()) as deployment:
        assert deployment.ask().episode == 3
    assert verify(other, fresh()).holds


def test_a_second_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployment.ask()
        os.link(path, tmp_path / "other")
        with pytest.raises(ArtifactError, match="must have one name, has 2"):
            Deployment.open(tmp_path / "other", fresh())
        deployments.drive(deployment, 2)
    with pytest.raises(ArtifactError, match="must have one name"):
        Deployment.open(path, fresh())
    (tmp_path / "other").unlink()
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.ask().episode == 2


def test_odd_paths(tmp_path: Path) -> None:
    for name in (b"not-utf8-\xff", "größe".encode(), b"a?b#c%41 d", b"with'quote"):
        path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))  # noqa: PTH118
        head = deployments.deployed(path, 2)
        assert read_status(path).head == head
        assert verify(path, fresh()).holds
    doubled = Path("/" + str(tmp_path / "doubled"))
    assert str(doubled).startswith("//")
    assert deployments.deployed(doubled, 2) == read_status(tmp_path / "doubled").head
    for wrong in ("nul\0nul", str(tmp_path) + "/\0"):
        with pytest.raises(ArtifactError, match="cannot be the path of a journal"):
            Deployment.open(wrong, fresh())
        with pytest.raises(ArtifactError, match="cannot be the path of a journal"):
            read_status(wrong)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(ArtifactError):
        Deployment.open(tmp_path / "round", fresh())


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "journal.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="cannot be opened for locking"):
        Deployment.open(tmp_path / "journal", fresh())
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("what", ["folder", "pipe", "text", "empty", "another journal"])
def test_no_lock_is_left_beside_what_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal"
    match what:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "another journal":
            deployments.deployed(path, 2)
            (tmp_path / "journal.lock").unlink()
        case _:
            path.write_text("mine" if what == "text" else "")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ArtifactError):
        Deployment.open(path, fresh(seed=6))
    assert sorted(tmp_path.iterdir()) == before


def test_a_lock_that_was_removed_while_somebody_waited_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it: whoever held it before removed it."""
    path, lock, calls = tmp_path / "lock", journal._lock, []

    def late(handle: int) -> None:
        if not calls:
            path.unlink()
        calls.append(handle)
        lock(handle)

    monkeypatch.setattr(journal, "_lock", late)
    held = journal.WriterLock(path)
    assert held.is_held()
    assert len(calls) == 2
    with pytest.raises(ArtifactError, match="held by another deployment"):
        journal.WriterLock(path)
    held.release(discard=True)
    assert not path.exists()


@pytest.mark.forks
@needs_fork
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_kill_leaves_while_a_journal_is_begun_is_removed(tmp_path: Path, when: str) -> None:
    """Before or after the journal has its name: by whoever opens it next."""
    path, rename = tmp_path / "journal", Path.rename
    child = os.fork()
    if child == 0:

        def deadly(self: Path, target: Path) -> Path:
            if when == "after":
                rename(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
            return target

        Path.rename = deadly  # type: ignore[method-assign]
        Deployment.open(path, fresh())
    os.waitpid(child, 0)
    assert path.exists() == (when == "after")
    assert any(each.name.startswith(".surefoot-") for each in tmp_path.iterdir())
    deployments.deployed(path, 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["journal", "journal.lock", "journal.mark"]


def test_the_root_is_no_journal() -> None:
    for reads in (read_status, lambda path: Deployment.open(path, fresh())):
        with pytest.raises(ArtifactError, match="cannot be the path of a journal"):
            reads("/")


def test_files_of_similar_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("journal.new", "journal.new-journal", "journal.tmp"):
        (tmp_path / name).write_text("mine")
    deployments.deployed(tmp_path / "journal", 1)
    for name in ("journal.new", "journal.new-journal", "journal.tmp"):
        assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 6  # and the journal, its lock and its mark


# -------------------------------------------------------------------------------------------------------------- closing


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "one", fresh()) as first:
        order = first.ask()
        first.close()
        with Deployment.open(tmp_path / "other", fresh()) as second:  # whose lock may have the same number now
            first.close()
            with pytest.raises(ArtifactError, match="held by another"):
                Deployment.open(tmp_path / "other", fresh())
            deployments.drive(second, 2)
    for late in (
        first.ask,
        lambda: first.tell(order, **told(order)),
        lambda: first.abandon(order, "late"),
    ):
        with pytest.raises(Closed, match="closed; open the journal again"):
            late()
    assert first.status().episodes == 0
    with Deployment.open(tmp_path / "one", fresh()) as again:
        assert again.ask().episode == order.episode


# ------------------------------------------------------------------------------------------------ threads and processes


def test_threads_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    failures: list[BaseException] = []
    with Deployment.open(path, fresh()) as deployment:
        turn = threading.Lock()

        def work() -> None:
            try:
                for _ in range(10):
                    deployment.status()
                    with turn:  # whose order is told by whom is for the caller to see to
                        order = deployment.ask()
                        deployment.tell(order, **told(order))
                    assert deployment.ask().episode != FALLBACK
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert deployment.status().episodes == 40
    assert verify(path, fresh()).holds


@pytest.mark.forks
@needs_fork
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        order = deployment.ask()
        for late in (
            deployment.ask,
            lambda: deployment.tell(order, **told(order)),
            lambda: deployment.abandon(order, "no"),
        ):
            assert in_child(lambda late=late: refused(late, Closed))
        assert in_child(lambda: deployment.close() is None)
        with pytest.raises(ArtifactError, match="held by another"):
            Deployment.open(path, fresh())
        deployments.drive(deployment, 5)
    assert verify(path, fresh()).holds


@pytest.mark.forks
@needs_fork
def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    path, ready = tmp_path / "journal", tmp_path / "ready"
    parent = os.fork()
    if parent == 0:
        deployment = Deployment.open(path, fresh())
        deployments.drive(deployment, 2)
        child = os.fork()
        if child == 0:
            ready.write_text(str(os.getpid()))
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
        os._exit(0)
    deadline = time.monotonic() + 30
    while not (ready.exists() and ready.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        with Deployment.open(path, fresh()) as deployment:
            assert deployment.ask().episode == 2
    finally:
        os.kill(int(ready.read_text()), signal.SIGKILL)


# -------------------------------------------------------------------------------------------------------------- readers


@pytest.mark.parametrize("running", [False, True])
def test_a_stalled_reader_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool) -> None:
    """Rows come in pieces, and between them a reader holds nothing; what it reads is still one history."""
    monkeypatch.setattr("surefoot.deploy.chain.PIECE", 2000)
    path = tmp_path / "journal"
    deployments.deployed(path, 10)
    deployment = Deployment.open(path, fresh())
    if running:
        deployment.ask()
    rows = read(path)
    seen = [next(rows)]
    began = time.perf_counter()
    deployments.drive(deployment, 12)
    deployment.close()
    assert time.perf_counter() - began < 5
    assert path.with_name("journal-wal").exists() is False
    seen += rows
    assert [(row.kind, row.payload, row.hash) for row in seen] == deployments.contents(path)


# ------------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("error", [MemoryError(), FloatingPointError("no convergence"), RecursionError("too deep")])
def test_whatever_fails_inside_ask_gives_the_safe_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: object) -> None:
        raise error

    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 3)
        for place in ("surefoot.deploy.replay.Replay.next_rows", "surefoot.deploy.journal.Journal._write"):
            if "_write" in place and not isinstance(error, MemoryError):
                continue
            with monkeypatch.context() as patch:
                patch.setattr(place, failing)
                order = deployment.ask()
                assert (order.episode, order.policy_index) == (FALLBACK, SAFE)
                assert deployment.status().state == "fault"
        deployments.drive(deployment, 6)
        assert deployment.status().state == "learning"
    assert verify(path, fresh()).holds


def test_interrupted_between_the_disk_and_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is on the disk and the learner does not know: nothing is written any more until it is opened again."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 3)
        order = deployment.ask()
        with monkeypatch.context() as patch:
            patch.setattr("surefoot.deploy.replay.Replay.move", interrupted)
            with pytest.raises(KeyboardInterrupt):
                deployment.tell(order, **told(order))
        assert deployment.ask().episode == FALLBACK
        assert "interrupted in the midst of a write" in deployment.status().why
        with pytest.raises(ArtifactError, match="interrupted"):
            deployment.tell(order, **told(order))
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.ask().episode == 4
    assert verify(path, fresh()).holds


def test_a_learner_belongs_to_one_journal(tmp_path: Path) -> None:
    shared = fresh()
    with Deployment.open(tmp_path / "one", shared) as deployment:
        with pytest.raises(InvalidInput, match="belongs to another deployment"):
            Deployment.open(tmp_path / "other", shared)
        deployments.drive(deployment, 2)
    assert not (tmp_path / "other").exists()


def test_numbers_of_numpy_are_plain_in_a_journal(tmp_path: Path) -> None:
    made = [
        learner(
            deployments.tiny_set(), method="certified-returns", episodes=kind(3000), risk=number(0.25), seed=kind(5),
            horizon=kind(20),
        )
        for kind, number in ((np.int64, np.float64), (int, float))
    ]  # fmt: skip
    for k, each in enumerate(made):
        with Deployment.open(tmp_path / f"{k}", each) as deployment:
            deployments.drive(deployment, 2)
    assert deployments.contents(tmp_path / "0") == deployments.contents(tmp_path / "1")


def test_what_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    made = fresh()
    made.settings = {"method": object()}
    with pytest.raises(InvalidInput, match="settings must be plain data"):
        Deployment.open(tmp_path / "journal", made)
    assert not (tmp_path / "journal").exists()


def test_snapshots_need_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 5)
    deployments.deployed(tmp_path / "journal", 12)
    assert b"LearnerState" not in (tmp_path / "journal").read_bytes()

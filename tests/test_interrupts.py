"""Ctrl-C anywhere: no traceback, nothing half-written, exit code 130, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from surefoot.deploy.chain import iter_checked_rows
from surefoot.deploy.session import Deployment
from surefoot.files import write_file, write_files
from surefoot.interrupts import INTERRUPTED, defer_sigint
from surefoot.methods import learner
from surefoot.policyset import storage
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

# The process says through a pipe that it begins to import, which is when it has its handler; whoever starts it may have
# made it deaf.
SCRIPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
pipe = int(sys.argv.pop(1))
sys.addaudithook(lambda event, of: event == "import" and of[0] == "surefoot.cli.commands" and os.write(pipe, b"."))
from surefoot.cli import main
main()
"""
ENDS = 60  # seconds within which every process must be gone
QUIET = ("Traceback", "Error", "Exception", "leaked", "KeyboardInterrupt", "cancelled")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def interrupted(folder: Path, words: list[str | Path], after: float, alone: bool, workers: int = 0) -> Ended:
    """`surefoot` with these words, interrupted so many seconds after it begins to import and once it has so many
    workers; `alone` or with them."""
    hidden = folder / "hidden"  # for whatever is temporary
    hidden.mkdir(parents=True)
    says, told = os.pipe()
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(told), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            pass_fds=(told,),
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(hidden), "JOBLIB_TEMP_FOLDER": str(hidden)},
        )
        os.close(told)
        try:
            assert os.read(says, 1) == b"."
            while sum("loky" in each for each in _members(process.pid)) < workers and process.poll() is None:
                time.sleep(0.05)
            time.sleep(after)
            (os.kill if alone else os.killpg)(process.pid, signal.SIGINT)
            code = process.wait(ENDS)
        finally:
            os.close(says)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdin is not None:
                process.stdin.close()
    assert left_of(process.pid) == []
    assert [each.name for each in hidden.iterdir()] == []
    return Ended(code, (folder / "out").read_text(), (folder / "err").read_text())


def left_of(session: int) -> list[str]:
    """The command lines of processes of this session that go on; they have a moment to end."""
    until = time.monotonic() + ENDS
    while (left := list(_members(session))) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _members(session: int) -> Iterator[str]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                yield (place / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue


def check(ended: Ended) -> None:
    assert ended.code == INTERRUPTED, ended
    assert [word for word in QUIET if word in ended.err] == [], ended.err


def files_in(place: Path) -> set[str]:
    """But for locks, which are empty and stay."""
    return {str(each.relative_to(place)) for each in place.rglob("*") if not each.is_dir() and each.suffix != ".lock"}


# ------------------------------------------------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("interrupts") / "set"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(gridworld(), epsilon=0.02, delta=0.05, seed=0, progress=False).save(place)
    return place


def commands(policies: Path, place: Path) -> dict[str, tuple[list[str | Path], set[str]]]:
    """Words, and what is in `place` once they have done all their work."""
    names = ("manifest.json", "policies.safetensors", "cells.safetensors")
    short: list[str | Path] = ["--episodes", "4000", "--tasks", "2", "--methods", "safe-only,certified-likelihood"]
    page = {"report.html", "results.json"}
    return {
        "train": (
            ["train", "gridworld", "--out", place / "made", "--epsilon", "0.004"],
            {f"made/{name}" for name in names},
        ),
        "adapt": (["adapt", policies, "--task", "0.31", "--out", place], {*page, "curves.png"}),
        "reproduce": (
            ["reproduce", "gridworld", "--jobs", "2", *short, "--out", place],
            {*page, "figure1.png", "figure2.png", *(f"gridworld.policyset/{name}" for name in names)},
        ),
        "calibrate": (
            ["calibrate", policies, "--episodes", "500", "--runs", "400", "--jobs", "2", "--out", place / "level.json"],
            {"level.json"},
        ),
        "deploy": (["deploy", policies, "--journal", place / "journal"], {"journal", "journal.mark"}),
        "plan": (["plan", policies], set()),
        "report": (["report", place / "journal"], {"journal", "journal.mark", "journal.html"}),
        "watch": (["watch", place / "journal", "--port", "0"], {"journal", "journal.mark"}),
    }


def test_while_it_imports(tmp_path: Path) -> None:
    ended = interrupted(tmp_path, ["plan", "nowhere"], 0.0, alone=True)
    assert ended == Ended(INTERRUPTED, "", "")


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.long)], ids=["group", "alone"])
def test_with_its_workers(alone: bool, tmp_path: Path, policies: Path) -> None:
    words, _ = commands(policies, tmp_path / "place")["calibrate"]
    check(interrupted(tmp_path / "run", words, 0.1, alone, workers=2))
    assert not (tmp_path / "place").exists()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "group"])
@pytest.mark.parametrize("name", ["train", "adapt", "reproduce", "calibrate", "deploy", "plan", "report", "watch"])
def test_at_any_moment(name: str, alone: bool, seed: int, tmp_path: Path, policies: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    words, complete = commands(policies, place)[name]
    if name in ("report", "watch"):
        chosen = learner(PolicyValueSet.load(policies), method="safe-only")
        with Deployment.open(place / "journal", chosen) as deployment:
            for _ in range(300):
                deployment.tell(deployment.ask(), reward=1.0, cost=0.5)
    before = files_in(place)
    after = np.random.default_rng([seed, len(name), alone]).uniform(0.0, 12.0)
    ended = interrupted(tmp_path / "run", words, after, alone)
    if ended.code == 0:  # it was faster
        assert files_in(place) == complete
        return
    check(ended)
    if name == "deploy" and files_in(place) == {"journal"}:  # a mark comes with the second row
        assert len(list(iter_checked_rows(place / "journal"))) == 1
        return
    assert files_in(place) in (before, complete), f"after {after:.3f} s"


# ------------------------------------------------------------------------------------------------------ while it writes


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Whoever started the tests may have made them deaf."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_files_that_belong_together_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def interrupting(self: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", interrupting)
    with pytest.raises(KeyboardInterrupt):
        write_files(tmp_path, {"one": b"1", "two": b"2"})
    assert files_in(tmp_path) == {"one", "two"}


def test_a_policy_set_is_replaced_as_a_whole(tmp_path: Path, policies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, swap = PolicyValueSet.load(policies), storage._swap
    known.save(tmp_path / "set")

    def interrupting(fresh: Path, target: Path, replaced: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        swap(fresh, target, replaced)

    monkeypatch.setattr(storage, "_swap", interrupting)
    with pytest.raises(KeyboardInterrupt):
        known.save(tmp_path / "set")
    assert [each.name for each in tmp_path.iterdir()] == ["set"]
    assert PolicyValueSet.load(tmp_path / "set").digest() == known.digest()


def test_a_long_file_is_given_up_between_two_pieces(tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"row"
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", endless())
    assert list(tmp_path.iterdir()) == []


def test_what_is_held_back_comes_once_and_in_the_main_thread_only() -> None:
    done = []

    def elsewhere() -> None:
        with defer_sigint() as let_through:
            let_through()
            done.append("elsewhere")

    def here() -> None:
        with defer_sigint() as let_through:
            let_through()
            with defer_sigint():
                signal.raise_signal(signal.SIGINT)
                done.append("inside")
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            done.append("outside")
            let_through()
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        here()
    assert done == ["inside", "elsewhere", "outside"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

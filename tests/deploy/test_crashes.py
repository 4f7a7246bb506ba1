"""Killed at every write boundary and at random instants: nothing acknowledged is lost, and the run goes on exactly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployments
import numpy as np
import pytest
import syscalls

from surefoot.deploy.chain import read
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import read_header, verify
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
KILLED = signal.SIGKILL
ASSETS = Path(__file__).parents[1] / "assets"


class Driver:
    def __init__(self) -> None:
        paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crash_driver.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, path: Path, method: str, episodes: int, how: str = "python", **when: float) -> dict[str, Any]:
        """`when` it dies: before a `statement` or a system `call`, or after `seconds`."""
        never = {"statement": None, "seconds": None, "call": None}
        request = {"path": str(path), "method": method, "episodes": episodes, "how": how, **never, **when}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(30)


def check_acknowledged(path: Path, said: list[str]) -> None:
    """Every order that was handed out and every outcome that was accepted is in the journal, once."""
    if not path.exists():
        assert said == []
        return
    rows = [(row.kind, row.data) for row in read(path)]
    ordered = [data["episode"] for kind, data in rows if kind == "order"]
    done = [data["episode"] for kind, data in rows if kind in ("outcome", "abandoned")]
    assert ordered == list(range(len(ordered)))
    assert done == ordered[: len(done)]
    assert len(ordered) - len(done) in (0, 1)
    for line in said:
        what, number = line.split()
        if what != "statements":
            assert int(number) in (ordered if what == "order" else done)


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified-returns", pytest.param("paper", marks=pytest.mark.long)])
def test_killed_before_every_statement(driver: Driver, tmp_path: Path, method: str) -> None:
    """Making the journal, opening it, an order, an outcome, an abandonment, closing."""
    episodes = 2 if method == "certified-returns" else 9
    reference = tmp_path / "reference"
    complete = driver.run(reference, method, episodes)
    assert complete["status"] == 0
    statements = int(complete["said"][-1].split()[1])
    assert statements > 40
    whole = deployments.contents(reference)
    for statement in range(1, statements + 1):
        path = tmp_path / f"{statement}" / "journal"
        path.parent.mkdir()
        killed = driver.run(path, method, episodes, statement=statement)
        assert killed["status"] == KILLED
        check_acknowledged(path, killed["said"])
        assert driver.run(path, method, episodes)["status"] == 0
        assert deployments.contents(path) == whole, f"killed before statement {statement}"
    assert verify(reference, deployments.fresh(method)).holds


def acknowledged(said: list[str]) -> list[str]:
    """What the answers of the command line promise, in the words of the driver."""
    promised = []
    for line in said:
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # cut off by the kill
        assert answer["ok"], answer
        if "order" in answer:
            promised.append(f"order {answer['order']['episode']}")
        elif answer["episodes"]:
            promised.append(f"told {answer['episodes'] - 1}")
    return promised


def started(driver: Driver, folder: Path, stored: Path, how: str, start: str) -> Path:
    """A place for a journal that is new, was closed after two episodes, or killed in the third."""
    path = folder / "journal"
    folder.mkdir()
    (folder / "set").symlink_to(stored)
    if start != "new":
        assert driver.run(path, "certified-returns", 2, call=0, how=how)["status"] == 0
    if start == "killed":
        assert driver.run(path, "certified-returns", 3, call=34, how=how)["status"] == KILLED
        assert path.with_name("journal-wal").stat().st_size
    return path


@pytest.mark.parametrize(
    ("how", "start", "episodes", "every"),
    [
        ("lines", "new", 1, 29),
        pytest.param("python", "closed", 3, 2, marks=pytest.mark.long),
        *(
            pytest.param(how, start, 4, 1, marks=pytest.mark.long)
            for how in ("python", "lines")
            for start in ("new", "closed", "killed")
        ),
    ],
)
@pytest.mark.forks
def test_killed_before_every_system_call_that_writes(
    driver: Driver, tmp_path: Path, stored: Path, how: str, start: str, episodes: int, every: int
) -> None:
    """Whatever it was about to write, sync, rename or remove: nothing acknowledged is lost, and it goes on exactly."""
    if not syscalls.possible():
        pytest.skip("needs ptrace on Linux")
    method, prepared = "certified-returns", tmp_path / "prepared"
    before = started(driver, prepared, stored, how, start)
    earlier = deployments.contents(before) if before.exists() else []
    reference = Path(shutil.copytree(prepared, tmp_path / "reference", symlinks=True)) / "journal"
    complete = driver.run(reference, method, episodes, call=0, how=how)
    assert complete["status"] == 0
    assert complete["calls"] > 30
    whole = deployments.contents(reference)
    for call in range(1, complete["calls"] + 1, every):
        path = Path(shutil.copytree(prepared, tmp_path / f"{call}", symlinks=True)) / "journal"
        killed = driver.run(path, method, episodes, call=call, how=how)
        assert killed["status"] == KILLED
        check_acknowledged(path, killed["said"] if how == "python" else acknowledged(killed["said"]))
        if path.exists():
            assert deployments.contents(path)[: len(earlier)] == earlier
            assert read_status(path).rows >= len(earlier)
        again = driver.run(path, method, episodes, call=0, how=how)
        assert again["status"] == 0, f"killed before call {call}: {again}"
        rows = deployments.contents(path)
        assert rows[: len(whole)] == whole, f"killed before call {call}"
        assert all(kind != "outcome" for kind, _, _ in rows[len(whole) :])
        shutil.rmtree(path.parent)


@pytest.mark.forks
@pytest.mark.long
@pytest.mark.parametrize("asset", ["journal-1.0-returns.journal", "journal-1.0-paper.journal"])
def test_killed_while_an_early_journal_is_taken_over(tmp_path: Path, asset: str) -> None:
    """It has no mark; before every system call that writes until its first new row is there."""
    if not syscalls.possible():
        pytest.skip("needs ptrace on Linux")
    old = ASSETS / asset
    policies = PolicyValueSet.load(old.with_suffix(".policyset"))
    settings, earlier = read_header(old)["settings"], deployments.contents(old)

    def go_on() -> None:
        with Deployment.open(tmp_path / "journal", learner(policies, **settings)) as deployment:
            deployment.abandon(deployment.ask(), "operator pressed stop")

    shutil.copyfile(old, tmp_path / "journal")
    status, calls = syscalls.traced(go_on)
    assert status == 0
    whole = deployments.contents(tmp_path / "journal")
    assert len(whole) > len(earlier)
    for call in range(1, calls + 1):
        for left in tmp_path.iterdir():
            left.unlink()
        shutil.copyfile(old, tmp_path / "journal")
        assert syscalls.traced(go_on, call)[0] == KILLED
        assert deployments.contents(tmp_path / "journal")[: len(earlier)] == earlier
        go_on()
        assert deployments.contents(tmp_path / "journal")[: len(whole)] == whole


def killed_at_random(driver: Driver, folder: Path, method: str, episodes: int, kills: int, seed: int) -> None:
    """One deployment after the other, each killed again and again until it is done."""
    rng = np.random.default_rng(seed)
    reference = folder / "reference"
    assert driver.run(reference, method, episodes)["status"] == 0
    began = time.perf_counter()  # the first run also waited for the driver to start
    assert driver.run(folder / "timed", method, episodes)["status"] == 0
    seconds = time.perf_counter() - began
    whole, done = deployments.contents(reference), 0
    for deployment in range(10 * kills):
        path = folder / f"{deployment}"
        while True:
            told = driver.run(path, method, episodes, seconds=float(rng.uniform(0, 0.5 * seconds)))
            check_acknowledged(path, told["said"])
            if told["status"] == 0:
                break
            assert told["status"] == KILLED
            done += 1
            if done >= kills:
                assert driver.run(path, method, episodes)["status"] == 0
                break
        assert deployments.contents(path) == whole
        if done >= kills:
            return
    raise AssertionError("the deployments were too short to be killed")


@pytest.mark.long
def test_killed_at_random_instants(driver: Driver, tmp_path: Path) -> None:
    killed_at_random(driver, tmp_path, "certified-returns", 60, kills=20, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified-returns", "paper", "certified"])
def test_killed_at_many_random_instants(driver: Driver, tmp_path: Path, method: str) -> None:
    """More than five hundred in all."""
    killed_at_random(driver, tmp_path, method, 60, kills=170, seed=1)

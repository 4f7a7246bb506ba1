"""Killed at every write boundary and at random instants: nothing acknowledged is lost, and the run goes on exactly."""

from __future__ import annotations

import json
import os
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

from surefoot.deploy.chain import read
from surefoot.deploy.verify import verify

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
KILLED = signal.SIGKILL


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

    def run(
        self, path: Path, method: str, episodes: int, statement: int | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        request = {
            "path": str(path),
            "method": method,
            "episodes": episodes,
            "statement": statement,
            "seconds": seconds,
        }
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


def test_killed_at_random_instants(driver: Driver, tmp_path: Path) -> None:
    killed_at_random(driver, tmp_path, "certified-returns", 60, kills=20, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified-returns", "paper", "certified"])
def test_killed_at_many_random_instants(driver: Driver, tmp_path: Path, method: str) -> None:
    """More than five hundred in all."""
    killed_at_random(driver, tmp_path, method, 60, kills=170, seed=1)

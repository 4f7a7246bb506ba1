"""Deployments that die: run by test_crashes.py in a process of its own, which forks one child per attempt.

Reads one JSON request a line: {"path", "method", "episodes", "statement": k or null, "seconds": t or null}. The child
drives the deployment at `path` to `episodes` episodes and kills itself with SIGKILL before its k-th SQL statement, or
is killed after t seconds. Answers {"status": wait status, "statements": number run, "said": acknowledged lines}.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import deployments

from surefoot.deploy.session import Deployment

count, deadly = 0, None


def strike() -> None:
    """One more statement; the deadly one is never run."""
    global count
    count += 1
    if count == deadly:
        os.kill(os.getpid(), signal.SIGKILL)


class Watched(sqlite3.Connection):
    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        strike()
        return super().execute(*arguments)

    def close(self) -> None:
        strike()
        super().close()


def child(request: dict[str, Any], out: int) -> None:
    global deadly
    deadly = request["statement"]
    plain, rename = sqlite3.connect, Path.rename
    sqlite3.connect = lambda *arguments, **options: plain(*arguments, factory=Watched, **options)  # type: ignore

    def watched_rename(self: Path, target: Any) -> Path:
        strike()
        return rename(self, target)

    Path.rename = watched_rename  # type: ignore[method-assign]
    say = lambda line: os.write(out, line.encode() + b"\n")  # noqa: E731
    with Deployment.open(request["path"], deployments.fresh(request["method"])) as deployment:
        deployments.drive(deployment, request["episodes"], request["method"], say)
    say(f"statements {count}")


def attempt(request: dict[str, Any]) -> dict[str, Any]:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        try:
            child(request, send)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    os.close(send)
    if request["seconds"] is not None:
        time.sleep(request["seconds"])
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(receive) as stream:
        said = stream.read().splitlines()
    return {"status": os.waitpid(pid, 0)[1], "said": said}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # whatever takes long the first time is inherited by every child
        for method in ("paper", "certified-returns", "certified"):
            deployments.deployed(Path(folder) / method, 3, method)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(attempt(json.loads(line))) + "\n")
        sys.stdout.flush()

"""Deployments that die: run by test_crashes.py in a process of its own, which forks one child per attempt.

Reads one JSON request a line: {"path", "method", "episodes", and "statement": k, "seconds": t, "call": k or null}. The
child drives the deployment at `path` to `episodes` episodes and kills itself with SIGKILL before its k-th SQL
statement, or is killed after t seconds, or before its k-th system call that writes (k = 0: it is only watched). With
"how": "lines" it does so through the command line. Answers {"status": wait status, "said": acknowledged lines, "calls":
system calls that write, if they were counted}.
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
import syscalls

import surefoot.cli.deploy  # noqa: F401  # which every child would import for itself
from surefoot.cli.commands import run
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


def lines(request: dict[str, Any], out: int) -> None:
    """The same as a controller would: every request from the first episode on; what was told before changes nothing."""
    asked, answers = os.pipe(), os.dup(out)
    os.write(asked[1], deployments.requests(request["episodes"]).encode())
    os.close(asked[1])
    os.dup2(asked[0], 0)
    os.dup2(answers, 1)
    folder = Path(request["path"]).parent / "set"
    sys.argv = ["surefoot", "deploy", str(folder), "--journal", request["path"], *deployments.OPTIONS]
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    try:
        run()
    except SystemExit as stopped:
        if stopped.code:
            raise


def watched(request: dict[str, Any]) -> dict[str, Any]:
    receive, send = os.pipe()
    work = lines if request["how"] == "lines" else child
    status, calls = syscalls.traced(lambda: work(request, send), request["call"] or None)
    os.close(send)
    with os.fdopen(receive) as stream:
        return {"status": status, "said": stream.read().splitlines(), "calls": calls}


def attempt(request: dict[str, Any]) -> dict[str, Any]:
    if request["call"] is not None:
        return watched(request)
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

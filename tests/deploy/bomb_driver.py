"""Every command on files made by hand: run by test_bombs.py in a process of its own, which forks one child per attempt.

A child may have 2 GiB of addresses, 20 s of the processor and 60 s; what it held at most is what the system counted
(`ru_maxrss`, with all that Python and the libraries take). Seconds are those of the processor, for machines are shared.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bombs
import deployments
from mutations import forge

import surefoot.cli.deploy
import surefoot.deploy.page
import surefoot.deploy.watch
import surefoot.lab.experiments.frame  # noqa: F401  (inherited by every child)
from surefoot.cli.commands import run
from surefoot.deploy.chain import canonical, key_name
from surefoot.deploy.replay import header
from surefoot.deploy.watch import Follower
from surefoot.report.page import render  # noqa: F401

ADDRESSES = 2 * 2**30
KEY = bytes(range(32))
Attempts = Callable[[Path, Path], dict[str, Any]]  # in a folder of their own, beside what all share


def attempts(names: Sequence[str]) -> dict[str, Any]:
    """By file and command: seconds, MiB, exit code, and what was said."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        place = Path(name)
        deployments.tiny_set().save(place / "set")
        (place / "key").write_bytes(KEY)
        (place / "key").chmod(0o600)
        warm_up(place)
        found = {}
        for each in names:
            (place / each).mkdir()
            found[each] = FILES[each](place / each, place)
            shutil.rmtree(place / each)
        return found


def warm_up(place: Path) -> None:
    """Whatever is imported late is imported now."""
    deployments.deployed(place / "honest", 5)
    for words in commands(place / "honest", place).values():
        found = attempt(words, place)
        assert found["code"] == 0, found


def commands(journal: Path, place: Path) -> dict[str, list[str]]:
    deploy = ["deploy", str(place / "set"), "--journal", str(journal)]
    return {
        "status": ["status", str(journal)],
        "verify": ["verify", str(journal), "--policies", str(place / "set")],
        "report": ["report", str(journal)],
        "export": ["export", str(journal)],
        "backup": ["backup", str(journal), str(journal.with_name("copy"))],
        "watch": ["watch", str(journal)],
        "deploy": deploy,
        **({} if journal.name == "honest" else {"deploy with key": [*deploy, "--key", str(place / "key")]}),
    }


def attempt(words: list[str], place: Path) -> dict[str, Any]:
    said = place / "said"
    pid = os.fork()
    if pid == 0:
        child(words, said)
    _, status, used = os.wait4(pid, 0)
    text = said.read_text(errors="replace")
    return {
        "seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak": round(used.ru_maxrss / 1024),
        "code": os.waitstatus_to_exitcode(status),
        "said": text[-400:],
    }


def child(words: list[str], said: Path) -> None:
    """Never returns."""
    code: Any = 99
    try:
        signal.alarm(60)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out if words[0] != "export" else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(out, 2)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        if words[0] == "watch":
            code = watched(Path(words[1]))
        else:
            sys.argv = ["surefoot", *words]
            run()
    except SystemExit as stopped:
        code = stopped.code or 0
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def watched(journal: Path) -> int:
    """What the page says once all is read."""
    follower = Follower(journal)
    for _ in range(60):
        follower.advance(1.0)
        if "Reading the journal" not in str(follower.view):
            break
    sys.stderr.write(str(follower.view)[:1000])
    return 0


# ------------------------------------------------------------------------------------------------------------ the files


def journal(make: Callable[[Path, bytes], Path]) -> Attempts:
    def tried(folder: Path, place: Path) -> dict[str, Any]:
        make(folder / "journal", canonical(header(deployments.fresh(), key_name(KEY))))
        return {what: attempt(words, place) for what, words in commands(folder / "journal", place).items()}

    return tried


def one_more(kind: str, make: Callable[[], bytes]) -> Attempts:
    """A journal with right hashes: an honest beginning, then this row."""

    def write(path: Path, _: bytes) -> Path:
        deployments.deployed(path, 3)
        forge(path, [*((kind, payload) for kind, payload, _ in deployments.contents(path)), (kind, make())])
        path.with_name("journal.mark").unlink()
        return path

    return journal(write)


def results(make: Callable[[], bytes]) -> Attempts:
    """A results.json with everything that each has, and more."""

    def tried(folder: Path, place: Path) -> dict[str, Any]:
        honest = (Path(__file__).parents[1] / "assets" / "results" / "gridworld.json").read_bytes()
        (folder / "results.json").write_bytes(b'{"more":%s,%s' % (make(), honest.lstrip()[1:]))
        return {"report": attempt(["report", str(folder)], place)}

    return tried


def beside_a_deployment(option: str, name: str, make: Callable[[], bytes]) -> Attempts:
    """As the manifest of its policy set, as its calibration or as its key."""

    def tried(folder: Path, place: Path) -> dict[str, Any]:
        deployments.tiny_set().save(folder / "set")
        (folder / name).write_bytes(make())
        more = [option, str(folder / name)] if option else []
        words = ["deploy", str(folder / "set"), "--journal", str(folder / "new"), *more]
        return {"deploy": attempt(words, place)}

    return tried


def lists(count: int) -> bytes:
    return b"[" + b"[]," * count + b"[]]"


def objects(count: int) -> bytes:
    return b"[" + b'{"a":1},' * count + b"{}]"


def decision(count: int) -> bytes:
    drawn = {"weights": [0.5] * count, "policies": [1] * count, "weight": 0.5, "margin": None, "certified": True}
    return canonical({"episode": 3, "surviving": 1, "total": 2, **drawn})


def message(count: int) -> bytes:
    return canonical({"episode": 3, "kind": "alarm", "message": "\U0001f600" * count})


TREES: dict[str, Attempts] = {
    "many heads": journal(bombs.many_heads),
    "many seals": journal(bombs.many_seals),
    "many rows": journal(bombs.many_rows),
    "many snapshots": journal(bombs.many_snapshots),
    "many tables": journal(bombs.many_tables),
    "long schema": journal(bombs.long_schema),
    "large rows": journal(bombs.large_rows),
    "large heads": journal(lambda path, opened: bombs.large_rows(path, opened, "head")),
    "large seals": journal(lambda path, opened: bombs.large_rows(path, opened, "seals")),
    "large snapshots": journal(lambda path, opened: bombs.large_rows(path, opened, "snapshots")),
    "nested rows": journal(bombs.nested_rows),
}
FAT: dict[str, Attempts] = {  # the smaller ones are just below a limit
    "row of lists": one_more("event", lambda: lists(20_000_000)),
    "row of fewer lists": one_more("event", lambda: lists(999_000)),
    "row of objects": one_more("event", lambda: objects(6_000_000)),
    "row of fewer objects": one_more("outcome", lambda: b'{"episode":3,"reward":%s}' % objects(999_000)),
    "row of numbers": one_more("decision", lambda: decision(990_000)),
    "row of text": one_more("event", lambda: message(4_000_000)),
    "row of brackets": one_more("event", lambda: b"[" * 100_000 + b"]" * 100_000),
    "results of lists": results(lambda: lists(9_000_000)),
    "results of fewer lists": results(lambda: lists(490_000)),
    "results of objects": results(lambda: objects(6_000_000)),
    "results of fewer objects": results(lambda: objects(490_000)),
    "manifest of lists": beside_a_deployment("", "set/manifest.json", lambda: lists(2_000_000)),
    "manifest of fewer objects": beside_a_deployment("", "set/manifest.json", lambda: objects(490_000)),
    "calibration of lists": beside_a_deployment("--calibration", "calibration", lambda: lists(9_000_000)),
    "large key": beside_a_deployment("--key", "key", lambda: bytes(10_000_000)),
}
FILES = TREES | FAT

if __name__ == "__main__":
    for what, found in attempts(sys.argv[1:] or list(FILES)).items():
        for command, each in found.items():
            sys.stdout.write(f"{what:26} {command:16} {json.dumps(each)}\n")

"""Standard streams that are closed, full or speak another language: one sentence, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import deployments
import pytest
from deployments import fresh

from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status

pytestmark = pytest.mark.skipif(os.name != "posix", reason="redirections of a shell")
SUREFOOT = f"{sys.executable} -c 'from surefoot.cli import main; main()'"
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def shell(command: str, folder: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command.replace("surefoot", SUREFOOT)],
        cwd=folder,
        input=stdin.encode(),
        capture_output=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def check_sentence(done: subprocess.CompletedProcess[bytes], words: str) -> None:
    said = done.stderr.decode()
    assert "Traceback" not in said, said
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert done.returncode == 2


@pytest.fixture
def folder(tmp_path: Path, stored: Path) -> Path:
    (tmp_path / "set").symlink_to(stored)
    deployments.deployed(tmp_path / "journal", 5)
    return tmp_path


READING = (
    *("--help", "export journal"),
    *(
        pytest.param(each, marks=pytest.mark.long)
        for each in ("methods", "status journal", "verify journal --policies set")
    ),
)


@FULL
@pytest.mark.parametrize("words", READING)
def test_a_full_disk_behind_standard_output(folder: Path, words: str) -> None:
    check_sentence(shell(f"surefoot {words} > /dev/full", folder), "standard output: cannot be used: No space left")


@pytest.mark.short_for(words=["--help", "deploy set --journal journal"])
@pytest.mark.parametrize("words", ["--help", "status journal", "deploy set --journal journal"])
def test_standard_output_closed(folder: Path, words: str) -> None:
    check_sentence(shell(f"surefoot {words} >&-", folder), "standard output must be open")


def test_nobody_left_to_complain_to(folder: Path) -> None:
    for words in ("journal >&- 2>&-", "nothing 2>&-", "nothing 2>/dev/full"):
        assert shell(f"surefoot status {words}", folder).returncode not in (0, 1)


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    done = shell("surefoot export journal | head -c 10", folder)
    assert (len(done.stdout), done.stderr) == (10, b"")


@pytest.mark.long
def test_deploy_with_standard_input_closed(folder: Path) -> None:
    done = shell("surefoot deploy set --journal new <&-", folder)
    check_sentence(done, "standard input must be open")
    assert json.loads(done.stdout)["ok"] is False
    assert not (folder / "new").exists()


@FULL
def test_deploy_onto_a_full_disk(folder: Path) -> None:
    options = " ".join(deployments.OPTIONS)
    requests = deployments.requests(3)
    done = shell(f"surefoot deploy set --journal new {options} > /dev/full", folder, requests)
    check_sentence(done, "standard output: cannot be used: No space left")
    assert read_status(folder / "new").outstanding == 0
    done = shell(f"surefoot deploy set --journal new {options}", folder, requests)
    assert [json.loads(line)["ok"] for line in done.stdout.splitlines()] == [True] * 6


@pytest.mark.short_for(locale=["C"])
@pytest.mark.parametrize("locale", ["ascii", "C"])
def test_another_encoding(tmp_path: Path, locale: str) -> None:
    """JSON lines are UTF-8 wherever they go; sentences are escaped."""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    environment = {"PYTHONIOENCODING": "ascii"} if locale == "ascii" else plain
    reason = "größer als π 😀"
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployment.abandon(deployment.ask(), reason)
    done = shell(f"surefoot export journal {'--json' if locale == 'C' else ''}", tmp_path, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert reason in done.stdout.decode("utf-8")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("rooms", [(24,), pytest.param((8, 12, 16, 20, 24, 28), marks=pytest.mark.long)])
def test_a_line_that_memory_cannot_hold_is_answered(folder: Path, rooms: tuple[int, ...]) -> None:
    """With little more memory than it takes to start: what is too much for it gets an answer, and the rest goes on."""
    code = (
        "import resource, sys; from surefoot.cli import deploy; from surefoot.cli.commands import run; "
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize(); "
        "size = taken + 2**20 * int(sys.argv.pop(1)); "
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); sys.argv[0] = 'surefoot'; run()"
    )
    long = json.dumps({"do": "tell", "episode": 0, "rewards": [0.123456] * 700_000, "costs": [0.5]})
    lines = "".join(f"{line}\n" for line in ('{"do": "ask"}', long, '{"do": "status"}'))
    kinds = []
    for room in rooms:
        done = subprocess.run(
            [sys.executable, "-c", code, str(room), "deploy", "set", "--journal", f"new{room}", *deployments.OPTIONS],
            cwd=folder,
            input=lines.encode(),
            capture_output=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        if not answers or not answers[0]["ok"]:
            continue  # not even enough to begin
        assert done.returncode == 0, done.stderr
        first, refused, status = answers
        kinds.append(refused["error"]["kind"])
        assert status["status"]["outstanding"] == first["order"]["episode"] == 0
        assert read_status(folder / f"new{room}").outstanding == 0
    assert len(kinds) >= (len(rooms) + 1) // 2
    assert set(kinds) == {"internal"}

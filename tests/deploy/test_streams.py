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
from surefoot.deploy.verify import verify

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
def folder(tmp_path: Path) -> Path:
    deployments.tiny_set().save(tmp_path / "set")
    deployments.deployed(tmp_path / "journal", 5)
    return tmp_path


READING = (
    "--help",
    "methods",
    "status journal",
    "verify journal --policies set",
    "export journal",
    "status journal --json",
)


@FULL
@pytest.mark.parametrize("words", READING)
def test_a_full_disk_behind_standard_output(folder: Path, words: str) -> None:
    check_sentence(shell(f"surefoot {words} > /dev/full", folder), "standard output: cannot be used: No space left")


@pytest.mark.parametrize("words", ["--help", "status journal", "deploy set --journal journal"])
def test_standard_output_closed(folder: Path, words: str) -> None:
    check_sentence(shell(f"surefoot {words} >&-", folder), "standard output must be open")


def test_nobody_left_to_complain_to(folder: Path) -> None:
    for command in (
        "surefoot status journal >&- 2>&-",
        "surefoot status nothing 2>&-",
        "surefoot status nothing 2>/dev/full",
    ):
        assert shell(command, folder).returncode not in (0, 1)


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    done = shell("surefoot export journal | head -c 10", folder)
    assert (len(done.stdout), done.stderr) == (10, b"")


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


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_another_encoding(tmp_path: Path, environment: dict[str, str]) -> None:
    """JSON lines are UTF-8 wherever they go; sentences are escaped."""
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployment.abandon(deployment.ask(), "größer als π 😀")
    done = shell("surefoot export journal", tmp_path, **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert rows[-1]["payload"]["reason"] == "größer als π 😀" or rows[-2]["payload"]["reason"] == "größer als π 😀"
    (tmp_path / "journal").rename(tmp_path / "größe")
    (tmp_path / "journal.mark").unlink()
    done = shell("surefoot backup größe other-ü", tmp_path, **environment)
    assert b"Traceback" not in done.stderr


def test_a_line_that_memory_cannot_hold_is_answered(folder: Path) -> None:
    """With so much more memory than it takes to start: what is too much for it gets an answer, and all else goes on."""
    code = (
        "import resource, sys; from surefoot.cli import deployment; from surefoot.cli.commands import run; "
        "pages = int(open('/proc/self/statm').read().split()[0]); "
        "size = pages * resource.getpagesize() + 2**20 * int(sys.argv.pop(1)); "
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); sys.argv[0] = 'surefoot'; run()"
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    long = json.dumps({"do": "tell", "episode": 0, "rewards": [0.123456] * 700_000, "costs": [0.5]})
    lines = "".join(f"{line}\n" for line in ('{"do": "ask"}', long, '{"do": "status"}'))
    answered = 0
    for room in (24, 32, 40, 48):
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
        assert refused["error"]["kind"] in ("internal", "invalid")
        answered += refused["error"]["kind"] == "internal"
        assert status["status"]["outstanding"] == first["order"]["episode"] == 0
        assert verify(folder / f"new{room}", fresh()).rows
    assert answered

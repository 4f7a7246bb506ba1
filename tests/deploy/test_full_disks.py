"""Disk full and read-only: a clear error, the journal as it was, and nothing but the safe policy meanwhile."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import deployments
import pytest
from deployments import fresh, told

from surefoot.adapt.learner import SAFE
from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.errors import ArtifactError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "journal"
    reference = tmp_path / "reference"
    deployments.deployed(reference, 20)
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 5)
        order = deployment.ask()
        head = deployment.head()
        filler = small_disk / "filler"
        with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 512)
        refused = 0
        while not refused:  # pages that SQLite already owns may still hold a few rows
            try:
                deployment.tell(order, **told(order))
                order = deployment.ask()
                head = deployment.head()
                if order.episode == FALLBACK:
                    break
            except JournalError as error:
                assert "cannot be written" in str(error)
                refused += 1
        assert deployment.head() == head
        for _ in range(3):
            fallback = deployment.ask()
            assert (fallback.episode, fallback.policy_index) == (FALLBACK, SAFE)
        assert deployment.status().state == "fault"
        assert "full" in deployment.status().why or "disk I/O" in deployment.status().why
        filler.unlink()
        deployments.drive(deployment, 20)
        assert deployment.status().state == "learning"
    assert deployments.contents(path) == deployments.contents(reference)


def test_a_file_size_limit(tmp_path: Path) -> None:
    """The same without any rights: the system refuses to let files grow."""
    path, reference = tmp_path / "journal", tmp_path / "reference"
    deployments.deployed(reference, 40)
    deployment = Deployment.open(path, fresh())
    deployments.drive(deployment, 3)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in tmp_path.glob("journal*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 8192, limit[1]))
    try:
        fallen = []
        for _ in range(60):
            order = deployment.ask()
            fallen.append(order.episode == FALLBACK)
            try:
                if not fallen[-1]:
                    deployment.tell(order, **told(order)) if order.episode % 7 != 1 else deployment.abandon(
                        order, "operator pressed stop"
                    )
            except JournalError:
                assert deployment.ask().policy_index == SAFE
        assert any(fallen)
        assert fallen[-1], "it must not get better by itself"
        assert deployment.status().state == "fault"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    deployments.drive(deployment, 40)
    deployment.close()
    assert deployments.contents(path) == deployments.contents(reference)


def test_a_read_only_disk(small_disk: Path) -> None:
    path = small_disk / "journal"
    head = deployments.deployed(path, 3)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ArtifactError, match="must be writable|cannot be"):
        Deployment.open(path, fresh())
    with pytest.raises(ArtifactError):
        Deployment.open(small_disk / "other", fresh())
    assert deployments.contents(path)[-1][2].hex() == head  # reading needs no writing
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.head() == head


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    head = deployments.deployed(path, 3)
    path.chmod(0o444)
    with pytest.raises(ArtifactError), Deployment.open(path, fresh()) as deployment:
        deployment.ask()
    assert deployments.contents(path)[-1][2].hex() == head

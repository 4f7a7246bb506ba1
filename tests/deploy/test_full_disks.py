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

from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.errors import ArtifactError
from surefoot.learning.method import SAFE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def until_it_stops(deployment: Deployment, most: int) -> None:
    """Go on until only the safe policy is ordered; a few more rows may fit into space that SQLite already owns."""
    fallen = 0
    for _ in range(most):
        order = deployment.ask()
        fallen = fallen + 1 if order.episode == FALLBACK else 0
        if fallen == 5:
            return
        if fallen:
            assert order.policy_index == SAFE
            assert deployment.status().state == "fault"
            continue
        before = deployment.head()
        try:
            if order.episode % 7 == 1:
                deployment.abandon(order, "operator pressed stop")
            else:
                deployment.tell(order, **told(order))
        except JournalError:
            assert deployment.head() == before
    raise AssertionError("the disk was never full")


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 5)
        filler = small_disk / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=512"], capture_output=True)
        until_it_stops(deployment, 200)
        assert "disk" in deployment.status().why
        stopped = deployment.status().episodes
        filler.unlink()
        deployments.drive(deployment, stopped + 20)
        assert deployment.status().state == "learning"
    deployments.deployed(tmp_path / "reference", stopped + 20)
    assert deployments.contents(path) == deployments.contents(tmp_path / "reference")


def test_a_file_size_limit(tmp_path: Path) -> None:
    """The same without any rights: the system refuses to let files grow."""
    path = tmp_path / "journal"
    deployment = Deployment.open(path, fresh())
    deployments.drive(deployment, 3)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in tmp_path.glob("journal*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 8192, limit[1]))
    try:
        until_it_stops(deployment, 400)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    stopped = deployment.status().episodes
    deployments.drive(deployment, stopped + 20)
    deployment.close()
    deployments.deployed(tmp_path / "reference", stopped + 20)
    assert deployments.contents(path) == deployments.contents(tmp_path / "reference")


def test_a_read_only_disk(small_disk: Path) -> None:
    path = small_disk / "journal"
    head = deployments.deployed(path, 3)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ArtifactError, match=r"must be writable|cannot be"):
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

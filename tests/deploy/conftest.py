"""Journals of tests live in memory where possible: they are synced twice an episode, and disks take their time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import deployments
import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small policy set on disk, to be read only."""
    folder = tmp_path_factory.mktemp("stored") / "set"
    deployments.tiny_set().save(folder)
    return folder

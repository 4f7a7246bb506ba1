"""Saved policy sets for the tests of what happens to them on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from policy_sets import forgeable


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return forgeable("plain", tmp_path)


@pytest.fixture
def with_cells(tmp_path: Path) -> Path:
    return forgeable("cells", tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return forgeable("small", tmp_path)

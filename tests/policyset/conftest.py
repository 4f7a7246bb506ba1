"""Saved policy sets for the tests of what happens to them on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from policy_sets import make_set, make_small


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_set().save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def with_cells(tmp_path: Path) -> Path:
    make_set(model="affine").save(tmp_path / "cells")
    return tmp_path / "cells"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_small().save(tmp_path / "small")
    return tmp_path / "small"

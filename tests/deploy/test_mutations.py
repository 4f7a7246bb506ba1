"""Thousands of damaged and forged journals: no traceback, no forgery that passes, nothing silently shorter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

METHODS = ("certified-returns", "paper", "certified", "certified-model-free", "safe-only", "dope-published")


def mutations(method: str, count: int, seed: int) -> dict[str, float]:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("mutations.py")), method, str(count), str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    result: dict[str, float] = json.loads(run.stdout)
    return result


def check(method: str, count: int, seed: int) -> None:
    result = mutations(method, count, seed)
    assert result["tried"] == count
    assert 0 < result["held"] < count  # some damage is in bytes that hold nothing; most of it is not
    assert result["megabytes"] < 512


@pytest.mark.parametrize("method", ["certified-returns", "paper"])
def test_some_mutated_journals(method: str) -> None:
    check(method, 120, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_many_mutated_journals(method: str) -> None:
    """More than ten thousand in all."""
    check(method, 1800, seed=1)

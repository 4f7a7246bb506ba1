"""Thousands of damaged and forged journals: no traceback, no forgery that passes, nothing silently shorter."""

from __future__ import annotations

import pytest

from peak_memory import in_a_process

METHODS = (
    "certified-returns",
    "paper",
    "certified",
    "certified-model-free",
    "safe-only",
    "dope-published",
    "certified-signals",
)


def check(method: str, count: int, seed: int) -> None:
    result = in_a_process("deploy", f"mutations.try_variants({method!r}, {count}, {seed})")
    assert result["tried"] == count
    assert 0 < result["held"] < count  # some damage is in bytes that hold nothing; most of it is not
    assert result["peak"] < 512


@pytest.mark.parametrize(
    "method",
    ["paper", *(pytest.param(each, marks=pytest.mark.long) for each in ("certified-returns", "certified-signals"))],
)
def test_some_mutated_journals(method: str) -> None:
    check(method, 24 if method == "paper" else 60, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_many_mutated_journals(method: str) -> None:
    """More than ten thousand in all."""
    check(method, 1800, seed=1)

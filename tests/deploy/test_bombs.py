"""Files made by hand to take all memory or all time: every command that opens one ends soon, in one sentence."""

from __future__ import annotations

import os
from typing import Any

import bomb_driver
import pytest

from peak_memory import in_a_process

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and limits on processes")
MOST_MIB, MOST_SECONDS = 512, 10


def check(attempts: dict[str, dict[str, Any]]) -> None:
    for file, found in attempts.items():
        for command, each in found.items():
            told = f"{command} on {file}: {each}"
            assert each["code"] in (0, 1, 2), told
            assert "Traceback" not in each["said"], told
            assert each["peak"] < MOST_MIB, told
            assert each["seconds"] < MOST_SECONDS, told


def tried(names: list[str]) -> dict[str, dict[str, Any]]:
    found = in_a_process("deploy", f"bomb_driver.attempts({names})")
    del found["peak"]
    return found


def test_trees_that_hold_more_than_their_file() -> None:
    found = tried(list(bomb_driver.TREES))
    check(found)
    for name in ("many heads", "many rows", "many tables", "long schema", "large rows", "large heads", "nested rows"):
        refused = [each["code"] for command, each in found[name].items() if command != "watch"]
        assert set(refused) <= {1, 2}, name
    assert "hold more bytes than the file" in found["nested rows"]["backup"]["said"]


@pytest.mark.parametrize("name", ["row of fewer lists", "row of brackets"])
def test_a_row_that_is_too_much(name: str) -> None:
    check(tried([name]))


@pytest.mark.long
def test_rows_and_files_that_are_too_much() -> None:
    check(tried(list(bomb_driver.FAT)))

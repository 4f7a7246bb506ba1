"""Files made by hand to take all memory or all time: every command that opens one ends soon, in one sentence."""

from __future__ import annotations

import os
from typing import Any

import bomb_driver
import pytest

from peak_memory import in_a_process

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and limits on processes")
MOST_MIB, MOST_SECONDS = 512, 10
REFUSED = ("many heads", "many rows", "many tables", "long schema", "large rows", "large heads", "nested rows")


def check(attempts: dict[str, dict[str, Any]]) -> None:
    for file, found in attempts.items():
        for command, each in found.items():
            told = f"{command} on {file}: {each}"
            assert each["code"] in (0, 1, 2), told
            assert "Traceback" not in each["said"], told
            assert each["peak"] < MOST_MIB, told
            assert each["seconds"] < MOST_SECONDS, told


def tried(names: list[str]) -> None:
    found = in_a_process("deploy", f"bomb_driver.attempts({names})")
    del found["peak"]
    check(found)
    for name in set(REFUSED) & set(found):
        refused = [each["code"] for command, each in found[name].items() if command != "watch"]
        assert set(refused) <= {1, 2}, name
    assert "hold more bytes than the file" in found["nested rows"]["backup"]["said"]


def test_some_files_that_take_more_than_they_hold() -> None:
    tried(["nested rows"])


@pytest.mark.long
def test_trees_rows_and_files_that_are_too_much() -> None:
    tried(list(bomb_driver.FILES))

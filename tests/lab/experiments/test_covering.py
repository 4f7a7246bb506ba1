"""`surefoot reproduce covering`: intervals hold what is known, and covers are about as large as they must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import InvalidInput
from surefoot.lab.experiments.covering.page import tables
from surefoot.lab.experiments.covering.run import reproduce
from surefoot.lab.experiments.covering.settings import Settings
from surefoot.lab.experiments.results import redraw
from surefoot.lab.experiments.table import PAGES


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("covering")
    settings = Settings(families=("gridworld", "two-walls"), epsilons=(0.05, 0.01, 0.004), points=40_000)
    return out, reproduce(settings, out, jobs=1)


def test_intervals_hold_what_is_known_and_covers_come_close(ran: tuple[Path, dict[str, Any]]) -> None:
    _, results = ran
    assert len(results["rows"]) == 6
    for row in results["rows"]:
        assert row["lower"] <= row["exact"] <= row["upper"]
        assert row["exact_as_left"] <= row["exact"]
        # Its centres are sampled tasks, and it may leave 3δ of its samples out: hardly fewer, and not many more.
        assert row["exact_as_left"] - 1 <= row["found"] <= 1.5 * row["exact_as_left"] + 1
    assert [row["found"] for row in results["rows"][:3]] == sorted(row["found"] for row in results["rows"][:3])


def test_the_page_is_drawn_again_from_its_results(ran: tuple[Path, dict[str, Any]]) -> None:
    out, results = ran
    page = (out / "report.html").read_bytes()
    redraw(out, PAGES["covering"])
    assert (out / "report.html").read_bytes() == page
    assert (out / "covering.png").stat().st_size > 10_000
    assert len(tables(results)["Counts"].rows) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.4}, "delta must be above 0 and below 1/3, got 0.4"),
        ({"families": ("nobody",)}, "families must be names"),
        ({"epsilons": ()}, "epsilons must be at least one number"),
        ({"points": 10}, "points must"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Settings(**change)

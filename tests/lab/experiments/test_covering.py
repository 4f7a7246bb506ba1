"""`surefoot reproduce covering`: intervals hold what is known, and covers are about as large as they must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot.lab.experiments import PAGES
from surefoot.lab.experiments.covering import EXPERIMENT, CoveringSizes, tables
from surefoot.lab.experiments.frame import redraw


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("covering")
    settings = CoveringSizes(families=("gridworld", "two-walls"), epsilons=(0.05, 0.01, 0.004), points=40_000)
    return out, EXPERIMENT.reproduce(settings, out, jobs=1)


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

"""`surefoot reproduce tail`: both budgets are kept, and only one of them holds the worst episodes down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.lab.experiments import PAGES
from surefoot.lab.experiments.frame import redraw
from surefoot.lab.experiments.tail import EXPERIMENT, STEPS, TailBudgets, tables

pytestmark = pytest.mark.long  # trains on twenty steps of a gridworld whose states know the cost so far


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("tail")
    return out, EXPERIMENT.reproduce(TailBudgets(tasks=2, episodes=400), out, jobs=1)


def test_either_budget_is_kept(ran: tuple[Path, dict[str, Any]]) -> None:
    _, results = ran
    rows = {name: [row for row in results["rows"] if row["budget"] == name] for name in ("mean", "tail")}
    assert [len(own) for own in rows.values()] == [2, 2]
    assert not any(row["unsafe"] for row in results["rows"])
    for row in results["rows"]:
        assert np.isclose(sum(row["law"]), 1.0)
        assert len(row["law"]) == STEPS + 1
        assert row["reward_first"] <= row["reward"] <= row["optimum"] + 1e-6
    assert all(row["mean"] <= 1.0 + 1e-9 for row in rows["mean"])
    assert all(row["cvar"] <= 3.0 + 1e-9 for row in rows["tail"])
    assert all(row["cvar"] > 3.0 for row in rows["mean"]), "or there would be nothing to hold down"


def test_the_page_is_drawn_again_from_its_results(ran: tuple[Path, dict[str, Any]]) -> None:
    out, results = ran
    page = (out / "report.html").read_bytes()
    redraw(out, PAGES["tail"])
    assert (out / "report.html").read_bytes() == page
    assert (out / "tail.png").stat().st_size > 10_000
    assert len(tables(results)["Tasks"].rows) == 4

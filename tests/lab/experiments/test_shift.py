"""`surefoot reproduce shift`: alarms and tests of the task, the promise at a distance, the method without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot.lab.experiments import PAGES
from surefoot.lab.experiments.frame import redraw
from surefoot.lab.experiments.shift import EXPERIMENT, FROM_D, NEAR_METHODS, TESTS, Shifts, tables
from surefoot.lab.families.shifted_gridworlds import SHIFTS


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("shift")
    settings = Shifts(("certified-returns",), runs=2, episodes=300, fresh=3, near=2, distances=(0.0, 0.001))
    return out, EXPERIMENT.reproduce(settings, out, jobs=1)


@pytest.mark.long
def test_the_test_sees_what_the_methods_miss(ran: tuple[Path, dict[str, Any]]) -> None:
    _, results = ran
    found = {(row["shift"], row["test"]): row for row in results["rows"]}
    assert len(found) == (1 + len(SHIFTS)) * (1 + len(TESTS))
    for shift in ("red cell moved", "sticky actions 0.1", "sticky actions 0.3"):
        assert found[shift, ""]["alarms"] == 0
        assert all(found[shift, test]["alarms"] == 2 for test in TESTS)
    for shift in (FROM_D, SHIFTS[0]):
        assert all(found[shift, test]["alarms"] == 0 for test in TESTS)


@pytest.mark.long
def test_the_promise_at_a_distance_is_kept_and_paid_for(ran: tuple[Path, dict[str, Any]]) -> None:
    _, results = ran
    found = {(row["method"], row["shift"]): row for row in results["near"]}
    for method in NEAR_METHODS:
        assert found[method, 0.001]["unsafe"] == 0
        assert found[method, 0.001]["distance"] <= 0.001 + 1e-12
        assert found[method, 0.0]["regret"] < found[method, 0.001]["regret"] < found[method, 0.0]["regret_never"]
    assert all(row["unsafe"] == 0 for row in results["model_free"])
    assert {row["shift"] for row in results["model_free"]} == {SHIFTS[0], *SHIFTS[4:]}


@pytest.mark.long
def test_the_page_is_drawn_again_from_its_results(ran: tuple[Path, dict[str, Any]]) -> None:
    out, results = ran
    page = (out / "report.html").read_bytes()
    redraw(out, PAGES["shift"])
    assert (out / "report.html").read_bytes() == page
    assert (out / "power.png").stat().st_size > 10_000
    assert list(tables(results)) == ["Alarms", "At a distance", "Without a model"]

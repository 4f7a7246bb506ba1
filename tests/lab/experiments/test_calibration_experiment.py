"""`surefoot reproduce calibration`, and methods that `surefoot reproduce gridworld` calibrates, in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from surefoot.lab.experiments import calibration, gridworld
from surefoot.lab.experiments.calibration import EXPERIMENT, CalibratedLevels, page, tables
from surefoot.learning.calibrated import Calibration
from surefoot.report.table import MISSING

SMALL = CalibratedLevels(episodes=40, runs=12, fresh=4, levels=(0.5,), risk=0.4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calibration")
    EXPERIMENT.reproduce(SMALL, out, jobs=1)
    return out


def test_a_small_run_writes_what_it_says(folder: Path) -> None:
    """So few episodes are safe at any level: the one there is passes, 1 of 13 being less than the risk."""
    assert {"results.json", "report.html", "calibration.png"} <= {each.name for each in folder.iterdir()}
    results = json.loads((folder / "results.json").read_text())
    found = results["calibration"]
    assert found["level"] == 0.5
    assert found["counts"] == [[0.5, 0]]
    assert results["fresh"]["unsafe"] == 0
    assert results["published"]["calibrated"] != results["published"]["plain"]
    assert "0 of 4" in tables(results)["Regret and promise"].rows[1]
    assert "a level of 0.5" in (folder / "report.html").read_text()


def test_a_page_where_no_level_passed(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    results["calibration"] |= {"level": None, "counts": [[0.5, 12]], "unsafe_runs": [list(range(12))]}
    del results["published"]["calibrated"]
    assert page(results).page.verdict.sentence.startswith("No level passed")
    proved, calibrated = tables(results)["Regret and promise"].rows
    assert proved[0] == "as proved"
    assert "0 of 4" in proved, "fresh tasks are of the method that was run on them"
    assert set(calibrated[1:]) == {MISSING}


def test_where_no_level_passes_nothing_is_run_as_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Calibration("certified-likelihood", 40, 0.4, 0.0, None, 12, ((0.5, 12),), 20, "0" * 64)
    monkeypatch.setattr(calibration, "calibrate", lambda *_, **__: failed)
    results = EXPERIMENT.reproduce(replace(SMALL, fresh=2), tmp_path, jobs=1)
    assert set(results["published"]) == {"plain"}
    assert "No level passed" in (tmp_path / "report.html").read_text()


# ---------------------------------------------------------------------------------------------- on the gridworld's page


@pytest.mark.long
def test_a_method_without_a_proof_is_certified_at_the_setting_that_passed(tmp_path: Path) -> None:
    settings = gridworld.GridworldSettings(
        **{"episodes": 60, "tasks": 1, "epsilon": 0.05, "risk": 0.4, "methods": ("safe-only", "published")},
        **{"calibrated": ("published",), "calibration_runs": 10},
    )
    results = gridworld.EXPERIMENT.reproduce(settings, tmp_path, jobs=1)
    certified = {name: found["certified"] for name, found in results["methods"].items()}
    assert certified == {"safe-only": True, "published": False, "published, calibrated": True}
    assert "How bold simulated tasks let published be" in (tmp_path / "report.html").read_text()


def test_a_method_of_which_no_setting_passed_is_not_run_calibrated() -> None:
    failed = Calibration("published", 40, 0.4, 0.0, None, 12, (({"radius": 0.4}, 12),), 20, "0" * 64)
    bench = SimpleNamespace(map=lambda _, work, calls: [call[-1] for call in calls])
    settings = gridworld.GridworldSettings(tasks=2, methods=("safe-only", "published"))
    passed = replace(failed, level={"radius": 0.4}, counts=(({"radius": 0.4}, 0),))
    for found, labels in (
        (failed, {"safe-only", "published"}),
        (passed, {"safe-only", "published", "published, calibrated"}),
    ):
        runs = gridworld.run_methods("", None, {"published": found}, np.array([0.3, 0.4]), [0, 1], settings, bench)  # type: ignore[arg-type]
        assert set(runs) == labels

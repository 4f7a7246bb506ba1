"""`reproduce buildings`: settings, a small run end to end with a stand-in for EnergyPlus, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_energyplus import write_package
from surefoot.errors import InvalidInput
from surefoot.lab.buildings import office
from surefoot.lab.buildings.family import _remember_winter
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.buildings import EXPERIMENT, QUICK, WINTERS, BuildingsSettings, page, tables
from surefoot.lab.experiments.savings import DEFAULT_METHODS
from surefoot.report.page import render

SMALL: dict[str, Any] = {
    **QUICK,
    **{"buildings": 3, "grid": 2, "winter_days": 9, "days": 5, "risk": 0.5, "uncovered": 0.4, "candidates": 1},
    **{"learned_buildings": 8, "learned_days": 8, "judged_days": 400, "most_judged_days": 400},
}


@pytest.mark.parametrize(("name", "value"), [("buildings", 0), ("risk", 1.5), ("winter_days", 4), ("uncovered", 0.0)])
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} must"):
        BuildingsSettings(**{name: value})


def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(office.PYTHON, raising=False)
    for each in (office._files, office.building_digest, _remember_winter):
        each.cache_clear()
    out = tmp_path / "out"
    settings = BuildingsSettings(**{**SMALL, "calibrated": 3, "calibration_days": 200})
    EXPERIMENT.reproduce(settings, out, jobs=1)
    results = json.loads((out / "results.json").read_text())
    assert {"report.html", "buildings.png", "buildings.policyset"} <= {path.name for path in out.iterdir()}
    assert len(list((out / WINTERS).iterdir())) == 2 * 2 * 2  # each winter was simulated once
    assert set(results["methods"]) | set(results["refused"]) >= set(DEFAULT_METHODS)
    safe = results["methods"]["safe-only"]
    assert (safe["tasks"], safe["share"], safe["certified"]) == (3, 0.0, True)
    for building in results["buildings"]:
        assert np.diff(building["energy"])[0] < 0  # the later restart takes less
    frame.redraw(out, page)
    assert "too cold" in render(page(results).page)
    assert set(tables(results)) == {"Methods", "Safety"}

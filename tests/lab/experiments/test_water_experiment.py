"""`reproduce water`: settings, a small run end to end on either network, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.errors import InvalidInput
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.savings import DEFAULT_METHODS
from surefoot.lab.experiments.water import DAYS, EXPERIMENT, QUICK, WaterSettings, page, tables
from surefoot.lab.water.network import open_network
from surefoot.report.page import render

SMALL: dict[str, Any] = {
    **QUICK,
    **{"towns": 2, "day_set": 10, "days": 4, "risk": 0.5, "uncovered": 0.4, "candidates": 1},
    **{"learned_towns": 8, "learned_days": 8, "judged_days": 400, "most_judged_days": 400},
}


@pytest.fixture(scope="module")
def epanet() -> None:
    pytest.importorskip("wntr", reason="needs surefoot[water]")
    try:
        open_network("Net3")
    except InvalidInput as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "value"), [("towns", 0), ("risk", 1.5), ("trained_on", "Net4"), ("day_set", -1), ("uncovered", 0.0)]
)
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} must"):
        WaterSettings(**{name: value})


@pytest.mark.long
@pytest.mark.parametrize("trained_on", ["Net3", "Net3-coarse"])
def test_a_small_run(epanet: None, trained_on: str, tmp_path: Path) -> None:
    settings = WaterSettings(**{**SMALL, "trained_on": trained_on, "calibrated": 3, "calibration_days": 200})
    EXPERIMENT.reproduce(settings, tmp_path, jobs=1)
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"report.html", "water.png", "water.policyset"} <= {path.name for path in tmp_path.iterdir()}
    networks = 1 if trained_on == "Net3" else 2
    assert len(list((tmp_path / DAYS).iterdir())) == networks * 2 * 2 * 2  # each town and speed was simulated once
    assert set(results["methods"]) | set(results["refused"]) >= set(DEFAULT_METHODS)
    slacks = [set(found["levels"][0]) == {"slack"} for found in results["calibrations"].values()]
    assert slacks == [trained_on != "Net3"] * 2  # where bounds may be wrong most of the margin is kept at first
    safe = results["methods"]["safe-only"]
    assert (safe["tasks"], safe["share"], safe["moved"]) == (2, 0.0, 0)
    assert safe["certified"] == (trained_on == "Net3")
    for town in results["towns"]:
        assert np.all(np.diff([town["energy"][0], *town["energy"][:0:-1]]) < 0)  # slower pumps take less
    frame.redraw(tmp_path, page)
    text = render(page(results).page)
    assert ("only the calibrated rows" in text) == (trained_on != "Net3")
    assert set(tables(results)) == {"Methods", "Safety"}

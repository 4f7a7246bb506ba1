"""What must not change between versions: what every experiment finds at small settings, as its results.json says it."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from record import check
from test_goldens_commands import answer, without_times

WORDS = {
    "covering": "--families two-walls --epsilons 0.05,0.01 --points 5000",
    "lower-bound": "--quantities epsilon --methods certified-likelihood --repeats 1",
    "calibration": "--episodes 40 --runs 12 --fresh 3 --levels 0.5 --risk 0.4",
    "promise": "--families random --number 2 --tasks 1 --episodes 40 --methods certified-likelihood",
    "baselines": "--benchmarks inventory --quick --episodes 100 --runs 1",
    "families": "--episodes 50 --tasks 1 --methods safe-only,certified-likelihood",
    "regret": "--sweeps margin --methods certified-likelihood --tasks 1 --episodes 300",
    "gridworld": "--episodes 300 --tasks 1 --fresh 1 --methods safe-only,paper,published,pce",
    "shift": "--methods certified-returns --runs 1 --episodes 200 --fresh 2 --near 1 --distances 0.0,0.001",
    "tail": "--tasks 1 --episodes 200",
    "locomotion": "--quick --tasks 1 --episodes 200 --methods safe-only,certified-signals --families hopper-motors",
    "glucose": "--quick --patients 2 --days 4",
}
SHORT = ("covering",)  # the others take more than ten seconds


def results(name: str) -> dict[str, Any]:
    """results.json, and the other files beside it by name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        found = answer("reproduce", name, *WORDS[name].split(), "--out", out, "--jobs", "1", "--json")
        if found.code:
            raise AssertionError(f"{name}: {found.err}")
        written = json.loads((out / "results.json").read_text(encoding="utf-8"))
        return {"files": sorted(path.name for path in out.iterdir()), "results": without_times(written)}


CASES = {name: partial(results, name) for name in WORDS}


@pytest.mark.parametrize("case", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in CASES])
def test_experiments_find_what_was_recorded(case: str) -> None:
    check("experiments", case, CASES[case])

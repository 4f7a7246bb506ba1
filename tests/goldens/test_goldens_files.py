"""What must not change between versions: stored policy sets are read as what they are, whatever their format, and
written again byte for byte the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from record import Bits, check, digest
from test_goldens_tasks import machines
from test_goldens_trainings import facts, gridworld_set, machine_set, train

import surefoot as sf
from shown_wheel import shown_set
from wheel import wheel_set

ASSETS = Path(__file__).parents[1] / "assets"
STORED = sorted(path.parent for path in (*ASSETS.rglob("manifest.json"), *Path(__file__).parent.rglob("manifest.json")))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: digest(path.read_bytes()) for path in sorted(folder.iterdir())}


def read(folder: Path) -> dict[str, Any]:
    """What is read, and the files written from it; all of it follows from the bytes stored."""
    policies = sf.PolicyValueSet.load(folder)
    with tempfile.TemporaryDirectory() as made:
        policies.save(Path(made) / "set")
        again = contents(Path(made) / "set")
    return {"stored": contents(folder), "again": again, "digest": policies.digest(), "facts": facts(policies)}


def written(make: Callable[[], sf.PolicyValueSet]) -> dict[str, Any]:
    """The files of a set that has just been trained."""
    with tempfile.TemporaryDirectory() as made:
        make().save(Path(made) / "set")
        files = {name: Bits(sha) for name, sha in contents(Path(made) / "set").items()}
        return {"files": files, "same digest": sf.PolicyValueSet.load(Path(made) / "set").digest() == make().digest()}


NEW = {
    "gridworld": gridworld_set,
    "finite": machine_set,
    "with a horizon": lambda: train(machines(6)),
    "controllers": wheel_set,
    "signals": shown_set,
}
CASES = {
    **{folder.name: partial(read, folder) for folder in STORED},
    **{f"written: {name}": partial(written, make) for name, make in NEW.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_policy_sets_are_read_and_written_as_recorded(case: str) -> None:
    check("files", case, CASES[case])

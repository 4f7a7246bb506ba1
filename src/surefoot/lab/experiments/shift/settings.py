"""What the runs on shifted tasks run, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from surefoot.errors import InvalidInput
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import episodes_option, option, risk_option, seed_option
from surefoot.learning.certified.widening import check_shift
from surefoot.methods import METHODS

# By which a learner may be told that the task lies at a distance.
NEAR_METHODS = ("certified-ball", "certified-returns")
# The test of the task, with tasks of the cells known exactly and up to a distance; and what it runs beside.
TESTS, BESIDE = ("test", "test of balls"), "certified-ball"
QUICK: Mapping[str, Any] = MappingProxyType({"runs": 3, "episodes": 1500, "fresh": 10, "near": 3})


@dataclass(frozen=True)
class Settings(frame.Settings):
    """Runs per kind of shift and method, fresh tasks, and tasks at a distance."""

    methods: tuple[str, ...] = option(
        ("certified-likelihood", "certified-ball", "certified-returns"), "Comma-separated names.", choices=METHODS
    )
    runs: int = option(20, "Runs per shift and method.", least=1)
    episodes: int = episodes_option(10_000, "Episodes per run.")
    fresh: int = option(200, "Fresh tasks of the distribution on which false alarms are counted.", least=1)
    near: int = option(40, "Fresh tasks, moved against the learner, per distance.", least=1)
    distances: tuple[float, ...] = option(
        (0.0, 0.0005, 0.001), "Distances that the learner is told of.", check=lambda _, shift: check_shift(shift)
    )
    risk: float = risk_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.distances)) < len(self.distances):
            raise InvalidInput(f"distances must be different numbers, got {self.distances}")

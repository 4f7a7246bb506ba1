"""What the runs on shifted tasks run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.experiments.options import (
    check_counts,
    check_names,
    check_risk,
    check_seed,
    episodes_option,
    option,
    risk_option,
    seed_option,
)
from surefoot.methods import METHODS


@dataclass(frozen=True)
class Settings:
    """Runs per kind of shift and method."""

    methods: tuple[str, ...] = option(
        ("certified-likelihood", "certified-ball", "certified-returns"), "Comma-separated names."
    )
    runs: int = option(20, "Runs per shift and method.", least=1)
    episodes: int = episodes_option(10_000, "Episodes per run.")
    risk: float = risk_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        check_names("methods", self.methods, METHODS)
        check_counts(self, "runs", "episodes")
        check_risk(self.risk)
        check_seed(self.seed)

"""What the experiment on calibrated levels runs, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.errors import InvalidInput
from surefoot.lab.experiments.options import (
    check_counts,
    check_names,
    check_risk,
    check_seed,
    episodes_option,
    option,
    risk_option,
    seed_option,
)
from surefoot.learning.certified.choice import EVIDENCE


@dataclass(frozen=True)
class Settings:
    """Attributes:
    levels: nominal levels that are tried, increasing. Those by default were chosen after earlier calibrations of this
        family, as `attempt` counts: by default the next after the four in docs/experiments.md.
    runs: simulated tasks at each level.
    fresh: tasks on which the promise is counted afterwards, none of them among the former.
    error: part of the risk for a calibration that goes wrong; 0 for the promise that is joint over the calibration.
    attempt: as for `calibrate`.
    """

    method: str = option("certified-likelihood", f"One of {', '.join(EVIDENCE)}.")
    episodes: int = episodes_option(40_000, "Episodes of every run.")
    risk: float = risk_option()
    levels: tuple[float, ...] = option((0.1, 0.11), "Nominal levels to try, increasing, comma-separated.")
    runs: int = option(2000, "Simulated tasks at each level.", least=1)
    fresh: int = option(2000, "Fresh tasks on which unsafe ones are counted.", least=1)
    error: float = option(0.0, "Part of the risk for a calibration that goes wrong; 0: only the joint promise.")
    attempt: int = option(5, "One more than calibrations before, all of them counted; 0 for the only one.", least=0)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        check_names("method", (self.method,), EVIDENCE)
        check_counts(self, "episodes", "runs", "fresh")
        check_risk(self.risk)
        check_seed(self.seed)
        if not 0 <= self.error < self.risk:
            raise InvalidInput(f"error must be at least 0 and less than the risk, {self.risk:g}, got {self.error!r}")
        if not self.levels:
            raise InvalidInput("levels must be at least one number, got none")


QUICK = {"episodes": 2000, "runs": 200, "fresh": 100, "levels": (0.1, 0.2)}

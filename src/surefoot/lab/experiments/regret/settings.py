"""What the experiment on regret and its bounds runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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

METHODS = ("certified-likelihood", "certified-returns")
EPSILON, DELTA = 0.004, 0.05  # of training, as for the reproduction of the gridworld


@dataclass(frozen=True)
class Family:
    """A gridworld. The spread of its noise moves C, and ξ as far as a safe policy has less margin on rarer tasks; the
    noise that its safe policy is the best for moves ξ alone."""

    std: float = 0.03
    safe_noise: float = 0.4


BASE = Family()
SWEEPS: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "cover": (Family(std=0.01), Family(std=0.018), BASE, Family(std=0.045)),
        "margin": (Family(safe_noise=0.37), Family(safe_noise=0.385), BASE, Family(safe_noise=0.435)),
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {"episodes": "episodes K", "cover": "covering number C", "margin": "margin ξ of the safe policy"}
)
QUICK: Mapping[str, Any] = MappingProxyType({"tasks": 1, "episodes": 1000})


@dataclass(frozen=True)
class Settings:
    """Attributes:
    tasks: of each family, at evenly spaced quantiles of its noise.
    """

    sweeps: tuple[str, ...] = option(tuple(SWEEPS), "What to vary besides the episodes, comma-separated.")
    methods: tuple[str, ...] = option(METHODS, "Comma-separated names.")
    tasks: int = option(4, "Tasks of each family.", least=1)
    episodes: int = episodes_option(10_000, "Episodes per task.")
    risk: float = risk_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        check_names("sweeps", self.sweeps, SWEEPS)
        check_names("methods", self.methods, METHODS)
        check_counts(self, "tasks", "episodes")
        check_risk(self.risk)
        check_seed(self.seed)

    @property
    def families(self) -> tuple[Family, ...]:
        """Those of the sweeps, each once; the first is that of the curves over episodes."""
        return tuple(dict.fromkeys([BASE, *(each for name in self.sweeps for each in SWEEPS[name])]))

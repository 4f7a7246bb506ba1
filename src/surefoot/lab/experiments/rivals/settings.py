"""What the comparison with rivals runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from surefoot.lab.experiments.frame import ExperimentSettings, option, risk_option, seed_option
from surefoot.lab.experiments.rivals.systems import SYSTEMS
from surefoot.methods import METHODS, RIVALS

OURS = ("safe-only", "certified", "posterior")


@dataclass(frozen=True)
class RivalSettings(ExperimentSettings):
    """Every method on the same fresh tasks of every system.

    Attributes:
        grid: settings of each method, evenly along its path; the best of them in hindsight is told, and the one that a
            calibration allows.
        runs: of each calibration.
        policies: a folder with NAME.policyset for some of the systems.
    """

    systems: tuple[str, ...] = option(
        ("gridworld", "pump"),
        f"Of {', '.join(SYSTEMS)}, comma-separated.",
        choices=SYSTEMS,
        fact=("systems", ", ".join),
    )
    tasks: int = option(200, "Fresh tasks of each system.", least=2, fact="tasks of each system")
    methods: tuple[str, ...] = option(
        (*OURS, *RIVALS), "Comma-separated names.", choices=METHODS, default_words="ours and all rivals"
    )
    grid: int = option(5, "Settings of each method, from cautious to bold.", least=1, fact="settings of each method")
    runs: int = option(200, "Further tasks on which each is calibrated; 0: none is.", least=0, fact="calibration runs")
    risk: float = risk_option()
    seed: int = seed_option()
    policies: str | None = option(
        None, "Folder with policy sets, NAME.policyset for a system, instead of training.", default_words="trained"
    )
    small: bool = option(False, "Fewer episodes, and coarser value bounds.")


QUICK: Mapping[str, Any] = MappingProxyType(
    {"systems": ("gridworld",), "tasks": 8, "runs": 30, "grid": 2, "small": True}
)

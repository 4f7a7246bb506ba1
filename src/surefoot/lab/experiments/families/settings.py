"""What the experiment on further families runs, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from surefoot.methods import METHODS
from surefoot.tasks import TaskDistribution, maintenance, windy_gridworld

FAMILIES: Mapping[str, Callable[[], TaskDistribution]] = {"windy": windy_gridworld, "maintenance": maintenance}


@dataclass(frozen=True)
class Variant:
    """A method with options, and with another number of cells than the others: so many times theirs."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cells: float = 1.0


# Cells that split may be few.
VARIANTS: Mapping[str, Variant] = {
    "certified-likelihood-split": Variant("certified-likelihood", {"split": True}, cells=1 / 8),
}

DEFAULT_METHODS = (
    "safe-only",
    "certified-likelihood",
    "certified-likelihood-split",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
)


@dataclass(frozen=True)
class Settings:
    """Each method on the same `tasks` fresh draws of each family; ε, δ and the number of cells are one for all."""

    families: tuple[str, ...] = tuple(FAMILIES)
    episodes: int = episodes_option(5_000, "Episodes per task.")
    tasks: int = option(20, "Fresh tasks per family.", least=1)
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.")
    risk: float = risk_option()
    seed: int = seed_option()
    epsilon: float = 0.02
    delta: float = 0.05
    cells: int = 800

    def __post_init__(self) -> None:
        check_counts(self, "episodes", "tasks", "cells")
        check_seed(self.seed)
        check_risk(self.risk)
        check_names("families", self.families, tuple(FAMILIES))
        check_names("methods", self.methods, (*METHODS, *VARIANTS))


def variant(name: str) -> Variant:
    """What a name among the methods stands for."""
    return VARIANTS.get(name, Variant(name))

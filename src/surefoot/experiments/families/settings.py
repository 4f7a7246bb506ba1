"""What the experiment on further families runs, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from surefoot.errors import InvalidInput
from surefoot.methods import METHODS
from surefoot.tasks import TaskDistribution, maintenance, windy_gridworld

FAMILIES: Mapping[str, Callable[[], TaskDistribution]] = {"windy": windy_gridworld, "maintenance": maintenance}

DEFAULT_METHODS = (
    "safe-only",
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
)


@dataclass(frozen=True)
class Settings:
    """Each method on the same `tasks` fresh draws of each family; ε, δ and the number of cells are one for all."""

    families: tuple[str, ...] = tuple(FAMILIES)
    episodes: int = 5_000
    tasks: int = 20
    methods: tuple[str, ...] = DEFAULT_METHODS
    risk: float = 0.05
    seed: int = 0
    epsilon: float = 0.02
    delta: float = 0.05
    cells: int = 800

    def __post_init__(self) -> None:
        for name in ("episodes", "tasks", "cells"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be a positive whole number, got {getattr(self, name)}")
        if self.seed < 0:
            raise InvalidInput(f"seed must not be negative, got {self.seed}")
        if not 0 < self.risk < 1:
            raise InvalidInput(f"risk must lie strictly between 0 and 1, got {self.risk}")
        _check_names("families", self.families, tuple(FAMILIES))
        _check_names("methods", self.methods, METHODS)


def _check_names(what: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InvalidInput(f"{what} must be names out of {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} must be different names, got {', '.join(names)}")

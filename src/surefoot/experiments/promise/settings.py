"""What the counts of unsafe tasks run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surefoot.errors import InvalidInput
from surefoot.experiments.checks import check_counts, check_names, check_risk, check_seed
from surefoot.methods import METHODS

# Those that learn and can be wrong.
COUNTED = ("certified-likelihood", "certified-ball", "certified-returns", "certified-model-free")


@dataclass(frozen=True)
class Settings:
    """Fresh gridworlds per method and risk, each with its own noise drawn from the task distribution."""

    methods: tuple[str, ...] = COUNTED
    risks: tuple[float, ...] = (0.05, 0.5)
    tasks: int = 2000
    episodes: int = 3000
    seed: int = 0
    twins: int = 60  # tasks on which the overconfident twin of each method is run
    families: str = "gridworld"

    def __post_init__(self) -> None:
        _check(self, "tasks", "episodes", "twins")


@dataclass(frozen=True)
class RandomSettings:
    """Random families of every kind, with fresh tasks of each.

    `certified-model-free` tries nothing within the first few hundred episodes, so it gets `patience` times as many.
    """

    methods: tuple[str, ...] = COUNTED
    risks: tuple[float, ...] = (0.5, 0.1)
    number: int = 200  # of families
    tasks: int = 20  # of each
    episodes: int = 240
    patience: int = 4
    seed: int = 0
    twins: int = 5  # tasks of each family on which the overconfident twins are run
    families: str = "random"

    def __post_init__(self) -> None:
        _check(self, "number", "tasks", "episodes", "patience", "twins")


def settings_for(families: str, **given: Any) -> Settings | RandomSettings:
    """The settings of the count on these families; what is None keeps its default."""
    told = {name: value for name, value in given.items() if value is not None}
    if families == "random":
        return RandomSettings(**told)
    if families != "gridworld":
        raise InvalidInput(f"families must be gridworld or random, got {families!r}")
    if "number" in told:
        raise InvalidInput(f"number is that of random families, got {told['number']} for the gridworld")
    return Settings(**told)


def levels(text: str) -> tuple[float, ...]:
    """Comma-separated numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"risks must be numbers separated by commas, such as 0.05,0.5, got {text!r}") from None


def _check(settings: Settings | RandomSettings, *counts: str) -> None:
    check_names("methods", settings.methods, COUNTED if settings.families == "random" else METHODS)
    check_counts(settings, *counts)
    check_seed(settings.seed)
    for risk in settings.risks:
        check_risk(risk, "risks")

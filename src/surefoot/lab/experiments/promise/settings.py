"""What the counts of unsafe tasks run, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surefoot.arrays import check_int, check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import (
    check_counts,
    check_names,
    episodes_option,
    option,
    seed_option,
)
from surefoot.methods import METHODS

# Those that learn and can be wrong.
COUNTED = ("certified-likelihood", "certified-ball", "certified-returns", "certified-model-free")


@dataclass(frozen=True)
class PromiseSettings:
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


EVERY = "every"


@dataclass(frozen=True)
class RandomSettings:
    """Random families of every kind, with fresh tasks of each.

    `certified-model-free` tries nothing within the first few hundred episodes, so it gets `patience` times as many.
    """

    methods: tuple[str, ...] = option(COUNTED, "Comma-separated names.")
    risks: tuple[float, ...] = option((0.5, 0.1), "Comma-separated.", default_words="0.05,0.5, or 0.5,0.1 on random")
    number: int = option(200, "Random families.", least=1)
    tasks: int = option(
        20, "Fresh tasks per method and risk.", least=1, default_words="2000 gridworlds, or 20 per random family"
    )
    episodes: int = episodes_option(240, "Episodes per task.", "3000, or 240 on random families")
    patience: int = 4
    seed: int = seed_option()
    twins: int = 5  # tasks of each family on which the overconfident twins are run
    kind: str = option(EVERY, "Of random families: one of the kinds in the report, or every.")
    families: str = option("random", "gridworld, or random: small families of every kind.", default_words="gridworld")

    def __post_init__(self) -> None:
        _check(self, "number", "tasks", "episodes", "patience", "twins")


def settings_for(families: str = "gridworld", **given: Any) -> PromiseSettings | RandomSettings:
    """The settings of the count on these families."""
    if families == "random":
        return RandomSettings(**given)
    if families != "gridworld":
        raise InvalidInput(f"families must be gridworld or random, got {families!r}")
    for name in ("number", "kind"):
        if name in given:
            raise InvalidInput(f"{name} is that of random families, got {given[name]} for the gridworld")
    return PromiseSettings(**given)


def _check(settings: PromiseSettings | RandomSettings, *counts: str) -> None:
    check_names("methods", settings.methods, COUNTED if settings.families == "random" else METHODS)
    check_counts(settings, *counts)
    check_int("seed", settings.seed, 0)
    for risk in settings.risks:
        check_unit_interval("risks", risk)

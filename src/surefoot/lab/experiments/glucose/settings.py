"""What the experiment on the insulin pump runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from surefoot.arrays import check_int, check_unit_interval
from surefoot.lab.experiments.frame import (
    Applies,
    check_counts,
    check_names,
    episodes_option,
    option,
    risk_option,
    seed_option,
)
from surefoot.lab.experiments.glucose.elimination import ELIMINATION
from surefoot.learning.spec import MethodSpec
from surefoot.methods import METHODS

# How the value bounds are made: cells at most, held-out patients, and simulated days per patient and settings.
CELLS, HOLDOUT, EPISODES, UNCOVERED = 1000, 160, 2400, 0.03

# Of each patient and settings: days on which they are judged, and where that leaves open on which side of the budget a
# deployed mixture lies, at most so many. A day's time below range varies by some 5 points: 12,000 of them tell its mean
# to 0.05 points (one standard error).
JUDGED_DAYS, MOST_JUDGED_DAYS = 1000, 12_000

ADAPTING, REFERENCE = "certified-signals", "safe-only"
DEFAULT_METHODS = (REFERENCE, ELIMINATION.name, "certified-model-free", "certified-returns", ADAPTING)
KNOWN: Mapping[str, MethodSpec] = MappingProxyType({**METHODS, ELIMINATION.name: ELIMINATION})

# What `--quick` sets: fewer and coarser bounds, so the certified methods do less well than they can.
QUICK: Mapping[str, Any] = MappingProxyType(
    {
        "patients": 12,
        "days": 30,
        "cells": 40,
        "holdout": 159,
        "uncovered": 0.04,
        "episodes": 300,
        "candidates": 3,
        "searched_days": 200,
        "learned_patients": 60,
        "learned_days": 32,
        "judged_days": 500,
        "most_judged_days": 2000,
    }
)


COMPARED = Applies(lambda settings: ADAPTING in settings.methods, f"with {ADAPTING} among the methods")


@dataclass(frozen=True)
class GlucoseSettings:
    """Every method on the same fresh patients, with one policy set.

    Attributes:
        other_risks, compared_patients: what the risk costs is shown on the first patients only.
        learned_patients, learned_days: from which signals are learned, days of each with each settings.
        candidates, searched_days: of `insulin_candidates`.
    """

    patients: int = option(200, "Fresh patients.", least=1)
    days: int = episodes_option(90, "Days per patient.")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.")
    risk: float = risk_option()
    seed: int = seed_option()
    other_risks: tuple[float, ...] = option((0.04, 0.2, 0.5), f"At which {ADAPTING} is run as well.", applies=COMPARED)
    compared_patients: int = option(60, "The first so many are compared at other risks.", least=1, applies=COMPARED)
    cells: int = CELLS
    holdout: int = HOLDOUT
    uncovered: float = UNCOVERED
    episodes: int = EPISODES
    learned_patients: int = 200
    learned_days: int = 64
    candidates: int = 6
    searched_days: int = 1000
    judged_days: int = JUDGED_DAYS
    most_judged_days: int = MOST_JUDGED_DAYS

    def __post_init__(self) -> None:
        counts = ("patients", "days", "compared_patients", "cells", "holdout", "episodes", "candidates")
        check_counts(
            self, *counts, "learned_patients", "learned_days", "searched_days", "judged_days", "most_judged_days"
        )
        check_int("seed", self.seed, 0)
        for risk in (self.risk, *self.other_risks):
            check_unit_interval("risk", risk)
        check_unit_interval("uncovered", self.uncovered)
        check_names("methods", self.methods, KNOWN)

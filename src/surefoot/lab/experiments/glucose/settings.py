"""What the experiment on the insulin pump runs, as plain values, and its one method that no other experiment has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, check_unit_interval
from surefoot.lab.experiments.adapting import calibrated_label
from surefoot.lab.experiments.frame import (
    Applies,
    ExperimentSettings,
    episodes_option,
    option,
    risk_option,
    seed_option,
    setting,
)
from surefoot.lab.experiments.savings import ADAPTING, CALIBRATED, REFERENCE
from surefoot.learning.paper.algorithm_2 import Algorithm2State, SafeCandidates, Sums
from surefoot.learning.paper.published import TunedRules
from surefoot.learning.spec import MethodSpec
from surefoot.methods import METHODS

# ------------------------------------------------------------------------------------ Algorithm 4, with radii for days
# `pce` has the constants of the paper's gridworld, in its units, and asks for a cover of the tasks. Here each of the
# given settings stands for the patient whom it suits best, and is deployed outright until days are seen that do not
# look like that patient's. UNCERTIFIED.

# How much time in and below range varies from day to day, as shares of a day, and by how much the mean of a patient
# whom the settings suit may miss that of the one whom they stand for.
REWARD_SPREAD, COST_SPREAD = 0.15, 0.05
REWARD_SLACK, COST_SLACK = 0.10, 0.02
STANDARD_ERRORS = 3.0


def _reward_radius(count: Integers) -> Floats:
    """Three standard errors of a mean over days, and the slack."""
    return STANDARD_ERRORS * REWARD_SPREAD / np.sqrt(count) + REWARD_SLACK


def _margin_radius(count: Integers) -> Floats:
    return STANDARD_ERRORS * COST_SPREAD / np.sqrt(count) + COST_SLACK


_RULES = TunedRules("pce-days", least_count=1, reward_radius=_reward_radius, margin_radius=_margin_radius)
ELIMINATION = MethodSpec(
    _RULES.name,
    lambda policies, _: SafeCandidates(policies, _RULES),
    certified=False,
    why="deploys settings outright until days contradict what they promise: explores without regard to the budget",
    state=(Algorithm2State, Sums),
    colour=1,
)

# ------------------------------------------------------------------------------------------------------------- settings

# How the value bounds are made: cells at most, held-out patients, and simulated days per patient and settings.
CELLS, HOLDOUT, EPISODES, UNCOVERED = 1000, 160, 2400, 0.03

# Of each patient and settings: days on which they are judged, and where that leaves open on which side of the budget a
# deployed mixture lies, at most so many. A day's time below range varies by some 5 points: 12,000 of them tell its mean
# to 0.05 points (one standard error).
JUDGED_DAYS, MOST_JUDGED_DAYS = 1000, 12_000

CALIBRATED_ROWS = tuple(calibrated_label(name) for name in CALIBRATED)
DEFAULT_METHODS = (REFERENCE, ELIMINATION.name, "certified-model-free", "certified-returns", ADAPTING)
KNOWN: Mapping[str, MethodSpec] = MappingProxyType({**METHODS, ELIMINATION.name: ELIMINATION})

LEAST_GAIN = 0.02  # of the day: days until most of less than this are not counted
EARLY = 30  # days

HOVORKA, SIMGLUCOSE = PATIENTS = "hovorka", "simglucose"
FOREIGN = Applies(lambda settings: settings.simulator == SIMGLUCOSE, f"with --simulator {SIMGLUCOSE}")
COMPARED = Applies(lambda settings: ADAPTING in settings.methods, f"with {ADAPTING} among the methods")


@dataclass(frozen=True)
class GlucoseSettings(ExperimentSettings):
    """Every method on the same fresh patients, with one policy set.

    Attributes:
        calibrated: further simulated patients, on whom it is counted how bold methods may be; 0 for no such rows.
        trained_on: only a calibration then promises anything of the simulator's patients.
        other_risks, compared_patients: what the risk costs is shown on the first patients only.
        learned_patients, learned_days: from which signals are learned, days of each with each settings.
        candidates, searched_days: of `insulin_candidates`.
    """

    patients: int = option(120, "Fresh patients.", least=1, fact="patients")
    days: int = episodes_option(90, "Days per patient.", fact="days per patient")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.", choices=KNOWN)
    risk: float = risk_option()
    seed: int = seed_option()
    simulator: str = option(HOVORKA, f"Whose patients: {HOVORKA}, our own, or {SIMGLUCOSE}.", choices=PATIENTS)
    trained_on: str | None = option(
        None, f"{HOVORKA}: settings, signals and bounds are made on our own patients.", default_words="the simulator",
        choices=(HOVORKA,), applies=FOREIGN,
    )  # fmt: skip
    left_out: str | None = option(
        None, "Patient kept out of training, around whom fresh ones are.", default_words="nobody", applies=FOREIGN
    )
    calibrated: int = option(
        200, f"Further patients on whom {' and '.join(CALIBRATED)} are calibrated; 0: they are not.", least=0
    )
    other_risks: tuple[float, ...] = option(
        (0.2, 0.5), f"At which {ADAPTING} is run as well.", check=check_unit_interval, applies=COMPARED
    )
    compared_patients: int = option(20, "The first so many are compared at other risks.", least=1, applies=COMPARED)
    cells: int = setting(CELLS, least=1)
    holdout: int = setting(HOLDOUT, least=1)
    uncovered: float = setting(UNCOVERED, check=check_unit_interval)
    episodes: int = setting(EPISODES, least=1)
    learned_patients: int = setting(200, least=1)
    learned_days: int = setting(64, least=1)
    candidates: int = setting(6, least=1)
    searched_days: int = setting(1000, least=1)
    judged_days: int = setting(JUDGED_DAYS, least=1)
    most_judged_days: int = setting(MOST_JUDGED_DAYS, least=1)

    @property
    def transferred(self) -> bool:
        """Whether what is deployed was made on other patients than those it is deployed on."""
        return self.trained_on not in (None, self.simulator)

    def covers_fresh_patients(self, calibrated: bool) -> bool:
        """Whether a proof, or a calibration, is about patients like the fresh ones."""
        return self.left_out is None and (calibrated or not self.transferred)

    @property
    def rows(self) -> tuple[str, ...]:
        """Of the table of methods, run on every patient."""
        return (*self.methods, *CALIBRATED_ROWS)


# What `--quick` sets: fewer and coarser bounds, so the certified methods do less well than they can.
QUICK: Mapping[str, Any] = MappingProxyType(
    {
        "patients": 12,
        "days": 30,
        "calibrated": 0,
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

# Of simglucose, whose days take several times as long: what differs from the above, and from `--quick`.
SLOWER: Mapping[str, Any] = MappingProxyType({"candidates": 9, "episodes": 1200, "most_judged_days": 8000})
SLOWER_QUICK: Mapping[str, Any] = MappingProxyType(
    {
        "patients": 8,
        "risk": 0.25,
        "cells": 30,
        "holdout": 39,
        "uncovered": 0.2,
        "episodes": 100,
        "learned_patients": 24,
        "learned_days": 16,
        "judged_days": 200,
        "most_judged_days": 1000,
    }
)


def configure(**given: Any) -> GlucoseSettings:
    """Settings for the options given."""
    if given.get("simulator") != SIMGLUCOSE:
        return GlucoseSettings(**given)
    if "cells" not in given:  # which is no option, and comes with --quick
        return GlucoseSettings(**{**SLOWER, **given})
    own = {name: value for name, value in given.items() if QUICK.get(name) != value}
    return GlucoseSettings(**{**QUICK, **SLOWER_QUICK, **own})

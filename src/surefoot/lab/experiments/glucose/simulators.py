"""The patients that the experiment on the insulin pump can be about, and what the rest of it must know of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.glucose.settings import HOVORKA, SIMGLUCOSE, GlucoseSettings
from surefoot.lab.pump.days import DAY_SPREAD
from surefoot.lab.pump.family import glucose
from surefoot.lab.pump.settings import InsulinSettings
from surefoot.lab.simglucose.family import simglucose
from surefoot.lab.simglucose.gains import gain_candidates
from surefoot.lab.simglucose.patients import patients
from surefoot.oracles import insulin_candidates
from surefoot.tasks.task_distribution import TaskDistribution

USUAL_MINUTES = 55.0  # until insulin is absorbed
Candidates: TypeAlias = tuple[InsulinSettings, dict[str, InsulinSettings]]


@dataclass(frozen=True)
class Simulator:
    """Patients of one kind.

    Attributes:
        tasks: all of them.
        search: settings for some of them.
        shown: parameters of patients for the page, for which those closest to them stand.
        distance: of parameters [n, d] from one [d].
        sensitise: the patient of a parameter [d], more sensitive to insulin by so much of its logarithm.
        day_to_day: by how much the logarithm of the sensitivity varies.
        label: of the patient of a parameter, where the page does not know it from that alone.
    """

    tasks: TaskDistribution
    search: Callable[[TaskDistribution, GlucoseSettings, Bench], Candidates]
    shown: tuple[Floats, ...]
    distance: Callable[[Floats, Floats], Floats]
    sensitise: Callable[[Floats, float], Floats]
    day_to_day: float
    label: Callable[[Floats], str] | None = None

    def name(self, parameter: Floats) -> dict[str, str]:
        """As part of a result."""
        return {} if self.label is None else {"patient": self.label(parameter)}


def simulator_of(settings: GlucoseSettings) -> Simulator:
    """Of the patients that are calibrated for."""
    return SIMULATORS[settings.simulator](settings.left_out or "")


def training_simulator(settings: GlucoseSettings) -> Simulator:
    """Of the patients that settings, signals and bounds are made on."""
    if not settings.transferred:
        return simulator_of(settings)
    return _hovorka(*WIDE)


def fresh_patients(settings: GlucoseSettings) -> TaskDistribution:
    """Those that it is tested on: around whoever was left out of training."""
    return simglucose(only=settings.left_out) if settings.left_out else simulator_of(settings).tasks


# ------------------------------------------------------------------------------------------------------- our own model

# Sensitivities whose best settings are those that patients of simglucose need, by weight: these need more insulin.
WIDE = (0.15, 1.0)


def _hovorka(least: float = 0.5, most: float = 2.0) -> Simulator:
    return Simulator(
        glucose(least, most),
        _search,
        tuple(np.array([sensitivity, USUAL_MINUTES]) for sensitivity in (1.7, 1.0, 0.6)),
        lambda parameters, wanted: (np.abs(np.log(parameters / wanted)) * [1.0, 0.5]).sum(axis=1),
        lambda parameter, step: parameter * [np.exp(step), 1.0],
        DAY_SPREAD,
    )


def _search(tasks: TaskDistribution, settings: GlucoseSettings, bench: Bench) -> Candidates:
    found: Candidates = insulin_candidates(
        tasks, count=settings.candidates, days=settings.searched_days, seed=settings.seed, progress=bench.progress
    )
    return found


# ---------------------------------------------------------------------------------------------------------- simglucose


def _simglucose(left_out: str) -> Simulator:
    return Simulator(
        simglucose(left_out=left_out),
        lambda tasks, settings, bench: gain_candidates(settings.candidates),
        tuple(np.array([number, 0.0, 0.0]) for number in (5.0, 15.0, 25.0)),
        lambda parameters, wanted: (np.abs(parameters - wanted) * [0.1, 1.0, 0.5]).sum(axis=1),
        lambda parameter, step: parameter + np.array([0.0, step, 0.0]),
        0.0,
        _label,
    )


def _label(parameter: Floats) -> str:
    number, action, absorption = parameter.tolist()
    return f"{patients()[int(number)].Name}, action × {np.exp(action):.2f}, absorption × {np.exp(absorption):.2f}"


SIMULATORS: Mapping[str, Callable[[str], Simulator]] = MappingProxyType(
    {HOVORKA: lambda left_out: _hovorka(), SIMGLUCOSE: _simglucose}
)

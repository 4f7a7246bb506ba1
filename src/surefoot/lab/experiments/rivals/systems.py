"""The systems that rivals are compared on: one entry each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from surefoot.errors import InvalidInput
from surefoot.interrupts import defer_sigint
from surefoot.lab.buildings.family import buildings
from surefoot.lab.experiments.adapting import Clock
from surefoot.lab.experiments.buildings import QUICK as BUILDINGS_QUICK
from surefoot.lab.experiments.buildings import WINTERS, BuildingsSettings, bound_restarts
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.glucose.run import train_pump_policies
from surefoot.lab.experiments.glucose.settings import QUICK as GLUCOSE_QUICK
from surefoot.lab.experiments.glucose.settings import SIMGLUCOSE, GlucoseSettings
from surefoot.lab.experiments.gridworld import DELTA, EPSILON
from surefoot.lab.experiments.locomotion.policy_sets import load_shipped
from surefoot.lab.experiments.water import DAYS, WaterSettings, bound_speeds
from surefoot.lab.experiments.water import QUICK as WATER_QUICK
from surefoot.lab.pump.family import glucose
from surefoot.lab.robots.families import half_cheetah_motors
from surefoot.lab.simglucose.family import simglucose
from surefoot.lab.water.family import water
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

# (tasks, seed, whether it is for a first look, bench) -> the policy set
Train: TypeAlias = Callable[[TaskDistribution, int, bool, Bench], PolicyValueSet]


@dataclass(frozen=True)
class System:
    """Tasks with one budget, and policies for them.

    Attributes:
        title: on the page.
        tasks: makes the task distribution.
        train: makes the policy set, or loads it.
        episodes: of a run, and of one for a first look.
        early, late: after how many episodes the gain is told, or after which share of them.
        judged: fresh episodes of each policy on which a task is judged that cannot be read, and the most of them.
        kept: folder of what its simulator takes long for, which `tasks` is told as `keep`.
    """

    title: str
    tasks: Callable[..., TaskDistribution]
    train: Train
    episodes: tuple[int, int]
    early: int | float
    late: int | float
    judged: tuple[int, int] = (1000, 12_000)
    kept: str = ""

    def tasks_in(self, folder: str) -> TaskDistribution:
        return self.tasks(keep=str(Path(folder).absolute() / self.kept)) if self.kept else self.tasks()


def policies_for(
    name: str, tasks: TaskDistribution, folder: str | None, seed: int, small: bool, bench: Bench
) -> PolicyValueSet:
    """Those of a folder, if it has some for this system, and otherwise trained ones, which are left in `bench.out`."""
    file = f"{name}.policyset"
    if folder is not None and (Path(folder) / file).is_dir():
        policies = PolicyValueSet.load(Path(folder) / file)
        if policies.task_digest != tasks.digest():
            raise InvalidInput(f"policies must be for {name}, got {Path(folder) / file}, which is for other tasks")
        return policies
    policies = SYSTEMS[name].train(tasks, seed, small, bench)
    with defer_sigint():  # what follows takes longer, and may be interrupted
        bench.out.mkdir(parents=True, exist_ok=True)
        policies.save(bench.out / file)
    return policies


def _train_gridworld(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # the paper's theorem is not claimed
        return train(tasks, epsilon=EPSILON, delta=DELTA, seed=seed, jobs=bench.jobs, progress=bench.progress)


def _train_pump(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    """As `surefoot reproduce glucose` does."""
    return train_pump_policies(GlucoseSettings(**(GLUCOSE_QUICK if small else {}), seed=seed), bench, Clock())


def _train_simglucose(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    """With fewer days than on our own model, which take longer here: a calibration does not rest on the bounds."""
    sizes: dict[str, Any] = {**GLUCOSE_QUICK} if small else {"cells": 400, "episodes": 600, "candidates": 9}
    return train_pump_policies(GlucoseSettings(**sizes, simulator=SIMGLUCOSE, seed=seed), bench, Clock())


def _train_water(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    """As `surefoot reproduce water` does."""
    settings = WaterSettings(**(WATER_QUICK if small else {}), seed=seed)  # type: ignore[arg-type]
    return bound_speeds(settings, tasks, bench)


def _train_buildings(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    """As `surefoot reproduce buildings` does."""
    settings = BuildingsSettings(**(BUILDINGS_QUICK if small else {}), seed=seed)  # type: ignore[arg-type]
    return bound_restarts(settings, tasks, bench)


def _load_motors(tasks: TaskDistribution, seed: int, small: bool, bench: Bench) -> PolicyValueSet:
    return load_shipped("half-cheetah-motors").policies


SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        "gridworld": System("the gridworld of the paper", gridworld, _train_gridworld, (4000, 600), 0.01, 0.1),
        "pump": System("an insulin pump", glucose, _train_pump, (90, 40), 30, 90),
        "simglucose": System(
            "an insulin pump on patients of simglucose", simglucose, _train_simglucose, (90, 40), 30, 90, (500, 4000)
        ),
        "water": System(
            "the pumps of a town, by EPANET",
            partial(water, grid=WaterSettings.grid, day_set=WaterSettings.day_set),
            _train_water,
            (60, 20),
            14,
            60,
            (10_000, 40_000),
            DAYS,
        ),
        "buildings": System(
            "the heating of an office, by EnergyPlus",
            partial(buildings, grid=BuildingsSettings.grid),
            _train_buildings,
            (60, 20),
            14,
            60,
            (4000, 16_000),
            WINTERS,
        ),
        "motors": System(
            "Half-Cheetah with unknown motors", half_cheetah_motors, _load_motors, (150, 60), 0.1, 1.0, (60, 240)
        ),
    }
)

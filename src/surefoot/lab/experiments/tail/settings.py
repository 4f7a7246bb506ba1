"""What the experiment on tails runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surefoot.arrays import Floats, fraction
from surefoot.lab.experiments.options import (
    check_counts,
    check_risk,
    check_seed,
    episodes_option,
    option,
    risk_option,
    seed_option,
)
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.cvar_tasks import Tail
from surefoot.tasks.distribution import Normal
from surefoot.tasks.gridworld_tasks import GOAL, MEAN_NOISE, RED_CELLS, STATES, slip_direction
from surefoot.tasks.task_distribution import TaskDistribution

STEPS = 20
LOW, HIGH, SPREAD = 0.2, 0.4, 0.04  # of the noise, whose mean is the paper's
ENTRANCE = 3  # the cell below the corridor between the red walls

QUICK: Mapping[str, Any] = MappingProxyType({"tasks": 2, "episodes": 1000})


def crossing(budget: float) -> TaskDistribution:
    """The paper's gridworld for 20 steps from the entrance of the corridor: reward 1 for each step at the goal, cost 1
    for each in a red cell, and a budget on the mean of their sum."""

    def task(noise: Floats) -> TabularCMDP:
        straight, blown = slip_direction("published")
        states = np.arange(STATES)
        return TabularCMDP(
            straight + noise[0] * blown,
            np.where(states == GOAL, 1.0, 0.0),
            np.where(np.isin(states, RED_CELLS), 1.0, 0.0),
            budget,
            np.where(states == ENTRANCE, 1.0, 0.0),
            1.0,
            (0.0, 1.0),
            (0.0, 1.0),
            horizon=STEPS,
        )

    return TaskDistribution(task, Normal(MEAN_NOISE, std=SPREAD, low=LOW, high=HIGH, how="truncated"))


@dataclass(frozen=True)
class Settings:
    """Attributes:
    mean: budget on the mean of an episode's cost.
    level, tail, threshold: α, the budget d on CVaR_α, and t.
    """

    tasks: int = option(5, "Fresh tasks.", least=1)
    episodes: int = episodes_option(4_000, "Episodes per task.")
    mean: float = option(1.0, "Budget on the mean of an episode's cost.")
    level: float = option(0.9, "Part of the episodes that the tail leaves out.")
    tail: float = option(3.0, "Budget on the mean of the others.")
    threshold: float = option(2.0, "Up to which an episode's cost is free.")
    risk: float = risk_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        check_counts(self, "tasks", "episodes")
        check_risk(self.risk)
        check_seed(self.seed)
        fraction("level", self.level)
        Tail(self.level, self.tail, self.threshold)

    @property
    def budget(self) -> Tail:
        return Tail(self.level, self.tail, self.threshold)

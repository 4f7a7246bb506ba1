"""What the experiment on covering numbers runs, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from surefoot.arrays import fraction
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.options import check_counts, check_names, check_seed, option, seed_option
from surefoot.lab.families.two_walls import two_walls
from surefoot.lab.families.windy import windy_gridworld
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution

# Distances between their tasks are those between points.
FAMILIES: Mapping[str, Callable[[], TaskDistribution]] = MappingProxyType(
    {"gridworld": gridworld, "two-walls": two_walls, "windy": windy_gridworld}
)
TITLES = {
    "gridworld": "gridworld: one normal parameter",
    "two-walls": "two walls: one uniform parameter",
    "windy": "windy: two parameters",
}
ERROR = 0.05  # of the intervals
FINEST_IN_MANY = 0.01  # ε of a family with several parameters: finer covers take millions of sampled tasks


@dataclass(frozen=True)
class Settings:
    """Attributes:
    points: coordinates of so many sampled tasks, from which covering numbers are estimated.
    """

    families: tuple[str, ...] = option(tuple(FAMILIES), "Comma-separated names.")
    epsilons: tuple[float, ...] = option((0.05, 0.02, 0.01, 0.005, 0.002, 0.001), "Radii, comma-separated.")
    delta: float = option(0.05, "Part of the tasks that need not be covered.")
    points: int = option(200_000, "Sampled tasks, for the intervals.", least=1000)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        check_names("families", self.families, FAMILIES)
        check_counts(self, "points", least=1000)
        check_seed(self.seed)
        if not 0 < self.delta < 1 / 3:
            raise InvalidInput(f"delta must be above 0 and below 1/3, got {self.delta!r}")
        if not self.epsilons or not all(fraction("epsilons", each) for each in self.epsilons):
            raise InvalidInput(f"epsilons must be at least one number, got {self.epsilons!r}")

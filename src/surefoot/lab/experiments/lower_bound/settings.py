"""What the experiment on the lower bound runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from surefoot.lab.experiments.options import (
    check_counts,
    check_names,
    check_risk,
    check_seed,
    option,
    risk_option,
    seed_option,
)
from surefoot.lab.families.hard_instance import HardInstances

# With the constants c₂ and c₃ of the paper's own order of size nobody tells the tasks apart in any number of episodes
# that can be simulated. The exponents do not depend on them.
BASE = HardInstances(2, epsilon=0.2, xi=0.3, discount=0.95, constants=(3.0, 150.0, 300.0))

QUANTITIES = ("tasks", "epsilon", "xi", "discount")

# Instances that differ from BASE in one of the four quantities of the bound.
SWEEPS: Mapping[str, tuple[HardInstances, ...]] = MappingProxyType(
    {
        "tasks": tuple(replace(BASE, depth_of_tree=m) for m in (1, 2, 3, 4, 5)),
        "epsilon": tuple(replace(BASE, epsilon=epsilon) for epsilon in (0.4, 0.28, 0.2, 0.14, 0.1)),
        "xi": tuple(replace(BASE, xi=xi) for xi in (0.6, 0.42, 0.3, 0.21, 0.15)),
        "discount": tuple(replace(BASE, discount=discount) for discount in (0.93, 0.95, 0.96, 0.97, 0.98)),
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {"tasks": "tasks to rule out, |Ω|-1", "epsilon": "1/ε", "xi": "1/ξ", "discount": "1/(1-γ)"}
)
EXPONENTS: Mapping[str, int] = MappingProxyType({"tasks": 1, "epsilon": 2, "xi": 2, "discount": 5})  # the bound's

METHODS = ("certified-likelihood", "certified-ball", "certified-returns")
QUICK: Mapping[str, Any] = MappingProxyType({"repeats": 2})


def drawn(quantity: str, instances: HardInstances) -> float:
    """What the bound is a power of."""
    if quantity == "tasks":
        return float(instances.tasks - 1)
    if quantity == "discount":
        return 1 / (1 - instances.discount)
    return float(1 / getattr(instances, quantity))


@dataclass(frozen=True)
class Settings:
    """Attributes:
    most: episodes after which a method that has not found the best policy is given up.
    """

    quantities: tuple[str, ...] = option(QUANTITIES, "What to vary, comma-separated.")
    methods: tuple[str, ...] = option(
        METHODS[:2], f"Comma-separated names, of {', '.join(METHODS)}; the last takes ten times the samples."
    )
    repeats: int = option(6, "Runs of each method on each set of tasks.", least=1)
    risk: float = risk_option()
    seed: int = seed_option()
    most: int = option(2_000_000, "Episodes of a run at most.", least=1000)

    def __post_init__(self) -> None:
        check_names("quantities", self.quantities, QUANTITIES)
        check_names("methods", self.methods, METHODS)
        check_counts(self, "repeats")
        check_counts(self, "most", least=1000)
        check_risk(self.risk)
        check_seed(self.seed)

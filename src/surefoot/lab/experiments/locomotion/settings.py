"""What the experiment on robots runs, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from surefoot.arrays import check_int, check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import (
    Applies,
    check_counts,
    check_names,
    episodes_option,
    option,
    risk_option,
    seed_option,
)
from surefoot.lab.experiments.locomotion.families import FAMILIES
from surefoot.learning.paper.published import ON_ROBOTS
from surefoot.learning.spec import MethodSpec
from surefoot.methods import CONTROL_METHODS, METHODS

REFERENCE, ADAPTING = "safe-only", "certified-signals"
# Networks that are trained on at test time; each needs an episode's steps, and deploys policies of its own.
NETWORKS: Mapping[str, MethodSpec] = CONTROL_METHODS
KNOWN: Mapping[str, MethodSpec] = MappingProxyType({**METHODS, ON_ROBOTS.name: ON_ROBOTS, **NETWORKS})
DEFAULT_METHODS = (
    REFERENCE,
    "paper",
    ON_ROBOTS.name,
    "pce",
    "certified-model-free",
    "certified-returns",
    ADAPTING,
    *NETWORKS,
)
EPISODES = 6000  # of the runs behind the paper's figure of Hopper
# Where the axis of the paper's figure ends. It is one of episodes for the paper's own method only.
PUBLISHED_AXIS: Mapping[str, int] = MappingProxyType({"hopper": 5000, "half-cheetah": 15000})

QUICK: Mapping[str, Any] = MappingProxyType({"tasks": 3, "network_tasks": 1, "judged_idle": 10})


RETRAINED = Applies(lambda settings: settings.retrain, "with --retrain")
TRAINED = Applies(lambda settings: not NETWORKS.keys().isdisjoint(settings.methods), "to methods that train networks")
UNCERTIFIED = Applies(
    lambda settings: not all(KNOWN[name].certified for name in settings.methods), "to methods without a certificate"
)


@dataclass(frozen=True)
class LocomotionSettings:
    """Every method on the same fresh tasks of every family, with one policy set for each.

    Attributes:
        watched: episodes that are simulated of each policy on each task, and that methods learn from. After that a
            certified method keeps what it deploys, which its certificate allows. A method without a certificate that
            sees nothing but sums goes on with episodes drawn from those.
        judged, judged_others, judged_idle: fresh episodes on which each policy is judged that a certified method
            deployed, that others did, that nobody did; twice as many where that leaves open on which side of the
            budget a deployed mixture lies.
        network_tasks, network_episodes: methods that train networks deploy many, each of which must be judged: on so
            many tasks only, where they learn from so many episodes and then keep what they deploy.
        experts: on so many tasks of each family a policy is trained on the task itself; about a minute each.
        share: of the steps of training, where policies are trained anew.
    """

    families: tuple[str, ...] = option(tuple(FAMILIES), "Comma-separated names; by default those that were trained.")
    tasks: int = option(20, "Fresh tasks per family.", least=1)
    episodes: int = episodes_option(EPISODES, "Episodes per task.")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.")
    risk: float = risk_option()
    seed: int = seed_option()
    watched: int = option(40, "Episodes simulated per task and policy, for methods to learn from.", least=1)
    judged: int = option(60, "Fresh episodes to judge each policy on that a certified method deployed.", least=2)
    judged_others: int = option(30, "The same of policies that only others deployed.", least=2, applies=UNCERTIFIED)
    network_tasks: int = option(2, "Tasks for methods that train networks.", least=0, applies=TRAINED)
    network_episodes: int = option(80, "Episodes that these learn from on each.", least=1, applies=TRAINED)
    experts: int = option(0, "Tasks on which a policy is trained on the task itself, to compare with.", least=0)
    retrain: bool = option(False, "Train policies anew (hours, or less with --share) instead of loading them.")
    share: float = option(1.0, "Of the steps of training, with --retrain.", applies=RETRAINED)
    judged_idle: int = 20

    def __post_init__(self) -> None:
        check_names("families", self.families, FAMILIES)
        check_names("methods", self.methods, KNOWN)
        check_counts(self, "tasks", "episodes", "watched", "network_episodes")
        check_counts(self, "judged", "judged_others", "judged_idle", least=2)
        check_counts(self, "network_tasks", "experts", least=0)
        check_unit_interval("risk", self.risk)
        check_int("seed", self.seed, 0)
        if not 0 < self.share <= 1:
            raise InvalidInput(f"share must be above 0 and at most 1, got {self.share!r}")

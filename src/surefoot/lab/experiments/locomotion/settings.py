"""What the experiment on robots runs: the families, how policies are trained for each, and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.fixed_network import DOMAIN_RANDOMISED
from surefoot.lab.baselines.history_policy import HISTORY_CONDITIONED
from surefoot.lab.experiments.frame import (
    Applies,
    ExperimentSettings,
    episodes_option,
    option,
    risk_option,
    seed_option,
    setting,
)
from surefoot.lab.robots.families import (
    half_cheetah_dynamics,
    half_cheetah_motors,
    half_cheetah_payload,
    half_cheetah_velocity,
    hopper_motors,
    hopper_velocity,
)
from surefoot.learning.paper.published import ON_ROBOTS
from surefoot.learning.spec import MethodSpec
from surefoot.methods import CONTROL_METHODS, METHODS
from surefoot.tasks.task_distribution import TaskDistribution

CELLS, UNCOVERED = 100, 0.03  # of value bounds, at most
SIGNAL_TASKS, SIGNAL_EPISODES = 120, 16  # that signals are learned from


@dataclass(frozen=True)
class LocomotionFamily:
    """One column of the figure.

    Attributes:
        title: on the page.
        tasks: makes the task distribution.
        radius: of the cover, in units of the parameter.
        epsilon: the paper's ε, in its distance d: between target velocities the difference of rewards, exactly. Tasks
            whose motors differ have deterministic dynamics that differ, and with them d = 1: there the parameter is
            compared, and ε is nominal.
        steps, warm_steps: of training one expert, from nothing and from a neighbour's policy.
        safe_steps: of training the safe policy on all centres, from an expert's.
        xi: margin of the safe policy on every centre, as a part of the budget. Tasks beyond the outermost centres cost
            more than these.
        episodes: of each policy on each task from which value bounds are made.
        holdout: held-out tasks, hardly more than the fewest that are enough.
        loosened: multiples of the budget to which an expert trained from nothing keeps first.
        least_length: part of the horizon that an expert's episodes must last. Where missing steps are paid for, sums
            tell what a fall is worth, and it matters less.
        corners: whether the safe policy is trained on the corners of the family as well.
        shipped: whether trained policies come with the package.
    """

    title: str
    tasks: Callable[[], TaskDistribution]
    radius: float
    epsilon: float
    steps: int
    warm_steps: int
    safe_steps: int
    xi: float = 0.1
    episodes: int = 80
    holdout: int = 140
    loosened: tuple[float, ...] = ()
    least_length: float = 0.9
    corners: bool = False
    shipped: bool = True

    def points(self, parameters: Floats) -> Floats:
        """Parameters [n, d] such that a cover of radius ε in the maximum norm is one of `radius` in the parameter."""
        return parameters * (self.epsilon / self.radius)

    @property
    def envelopes(self) -> Envelopes:
        return Envelopes(cells=CELLS, holdout=self.holdout, uncovered=UNCOVERED, episodes=self.episodes)

    @property
    def signals(self) -> LearnedSignals:
        """Who knows from nothing but what is paid which task it is must look at that."""
        return LearnedSignals(tasks=SIGNAL_TASKS, episodes=SIGNAL_EPISODES, paid=self.tasks().shared_costs)


DYNAMICS = LocomotionFamily(
    "Half-Cheetah, unknown damping and friction",
    half_cheetah_dynamics,
    0.3,
    0.05,
    2_000_000,
    800_000,
    800_000,
    0.3,
    corners=True,
)
FAMILIES: Mapping[str, LocomotionFamily] = {
    "half-cheetah-motors": LocomotionFamily(
        "Half-Cheetah, unknown motors", half_cheetah_motors, 0.075, 0.05, 1_000_000, 400_000, 600_000, 0.2
    ),
    "hopper-motors": LocomotionFamily(
        "Hopper, unknown motors",
        hopper_motors,
        0.075,
        0.05,
        1_000_000,
        400_000,
        600_000,
        0.2,
        loosened=(4.0, 2.0, 1.4),
        least_length=0.7,
    ),
    "half-cheetah": LocomotionFamily(
        "Half-Cheetah, unknown target velocity",
        half_cheetah_velocity,
        0.09,
        0.09 / 4,
        1_000_000,
        350_000,
        400_000,
        episodes=50,
        holdout=156,
    ),
    "hopper": LocomotionFamily(
        "Hopper, unknown target velocity",
        hopper_velocity,
        0.06,
        0.06 / 3.003,
        800_000,
        250_000,
        300_000,
        episodes=50,
        holdout=156,
    ),
    "half-cheetah-dynamics": DYNAMICS,
    "half-cheetah-payload": replace(
        DYNAMICS,
        title="Half-Cheetah, unknown mass and payload",
        tasks=half_cheetah_payload,
        radius=0.2,
        shipped=False,
    ),
}
SHIPPED = tuple(name for name, family in FAMILIES.items() if family.shipped)

# ------------------------------------------------------------------------------------------------------------- settings

REFERENCE, ADAPTING = "safe-only", "certified-signals"
# Networks that are trained on at test time; each needs an episode's steps, and deploys policies of its own.
NETWORKS: Mapping[str, MethodSpec] = CONTROL_METHODS
# One network for all tasks, which was trained on many of them and is deployed as it is.
FIXED: Mapping[str, MethodSpec] = MappingProxyType(
    {spec.name: spec for spec in (DOMAIN_RANDOMISED, HISTORY_CONDITIONED)}
)
KNOWN: Mapping[str, MethodSpec] = MappingProxyType({**METHODS, ON_ROBOTS.name: ON_ROBOTS, **FIXED, **NETWORKS})
DEFAULT_METHODS = (
    *(REFERENCE, "paper", ON_ROBOTS.name, "pce", "certified-model-free", "certified-returns", ADAPTING),
    *("identify-and-look-up", *FIXED),
    *NETWORKS,
)
EPISODES = 6000  # of the runs behind the paper's figure of Hopper
# Where the axis of the paper's figure ends. It is one of episodes for the paper's own method only.
PUBLISHED_AXIS: Mapping[str, int] = MappingProxyType({"hopper": 5000, "half-cheetah": 15000})

RETRAINED = Applies(
    lambda settings: settings.retrain or settings.retrain_baselines, "with --retrain or --retrain-baselines"
)
TRAINED = Applies(lambda settings: not NETWORKS.keys().isdisjoint(settings.methods), "to methods that train networks")
UNCERTIFIED = Applies(
    lambda settings: any(name in KNOWN and not KNOWN[name].certified for name in settings.methods),
    "to methods without a certificate",
)


def _part(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise InvalidInput(f"{name} must be above 0 and at most 1, got {value!r}")


@dataclass(frozen=True)
class LocomotionSettings(ExperimentSettings):
    """Every method on the same fresh tasks of every family, with one policy set for each.

    Attributes:
        watched: episodes that are simulated of each policy on each task, and that methods learn from. After that a
            certified method keeps what it deploys, which its certificate allows. A method without a certificate that
            sees nothing but sums goes on with episodes drawn from those.
        judged, judged_others, judged_idle: fresh episodes on which each policy is judged that a certified method
            deployed, that others did, that nobody did; twice as many where that leaves open on which side of the
            budget a deployed mixture lies.
        network_tasks, network_episodes: methods that train networks do so on so many tasks, where they learn from so
            many episodes, 40 of each network, and then keep what they deploy.
        experts: on so many tasks of each family a policy is trained on the task itself; about a minute each.
        share: of the steps of training, where policies are trained anew.
    """

    families: tuple[str, ...] = option(
        SHIPPED,
        "Comma-separated names; by default those that were trained.",
        choices=FAMILIES,
        fact=("families", ", ".join),
    )
    tasks: int = option(20, "Fresh tasks per family.", least=1, fact="test tasks per family")
    episodes: int = episodes_option(EPISODES, "Episodes per task.", fact="episodes per task")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.", choices=KNOWN)
    risk: float = risk_option()
    seed: int = seed_option()
    watched: int = option(40, "Episodes simulated per task and policy, for methods to learn from.", least=1)
    judged: int = option(60, "Fresh episodes to judge each policy on that a certified method deployed.", least=2)
    judged_others: int = option(30, "The same of policies that only others deployed.", least=2, applies=UNCERTIFIED)
    network_tasks: int = option(20, "Tasks for methods that train networks, at most.", least=0, applies=TRAINED)
    network_episodes: int = option(400, "Episodes that these learn from on each.", least=1, applies=TRAINED)
    experts: int = option(0, "Tasks on which a policy is trained on the task itself, to compare with.", least=0)
    retrain: bool = option(False, "Train policies anew (hours, or less with --share) instead of loading them.")
    retrain_baselines: bool = option(False, "Only tune and meta-train the baselines anew, on the shipped policies.")
    share: float = option(1.0, "Of the steps of training, with --retrain.", check=_part, applies=RETRAINED)
    judged_idle: int = setting(20, least=2)


QUICK: Mapping[str, Any] = MappingProxyType({"tasks": 3, "network_episodes": 80, "judged_idle": 10})

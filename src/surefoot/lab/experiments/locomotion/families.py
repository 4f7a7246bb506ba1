"""The families of robots in the experiment, and how policies are trained for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.lab.baselines.control_specs import BatchRules, MetaCpoRules, PenaltyRules, SafeMetaRules
from surefoot.lab.robots.families import half_cheetah_motors, half_cheetah_velocity, hopper_motors, hopper_velocity
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
        rules: how methods that train networks adapt to a task, and are trained to, where it is not their default.
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
    rules: Mapping[str, BatchRules] = field(default_factory=dict)

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


# The usual steps make Hoppers fall: theirs are the largest of a few tried that hardly ever do. On Half-Cheetah nobody
# tuned them for policies as little noisy as these.
FAMILIES: Mapping[str, LocomotionFamily] = MappingProxyType(
    {
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
            rules={"maml-penalty": PenaltyRules(rate=1e-3), "meta-cpo": MetaCpoRules(divergence=1e-5)},
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
            rules={
                "maml-penalty": PenaltyRules(rate=3e-4),
                "meta-cpo": MetaCpoRules(divergence=1e-6),
                "safe-meta-control": SafeMetaRules(rate=3e-4),
            },
        ),
    }
)

"""What `surefoot reproduce baselines` runs: each baseline on the task its authors published it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surefoot.arrays import check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.log_barrier import AISTATS
from surefoot.lab.baselines.softmax import entropy_regularised
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import episodes_option, option, seed_option, setting
from surefoot.lab.families.dope_benchmarks import (
    FACTORED_STEPS,
    INVENTORY_STEPS,
    MEDIA_STEPS,
    PUBLISHED_DRAIN,
    PUBLISHED_FAILURE,
    PUBLISHED_SHIFT,
    factored,
    inventory,
    media,
)
from surefoot.lab.families.two_walls import PUBLISHED_PARAMETER as PUBLISHED_TWO_WALLS
from surefoot.lab.families.two_walls import two_walls
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks.task_distribution import TaskDistribution

# The authors of DOPE take as safe baseline policy the optimum for this share of the budget.
SAFE_SHARE = 0.2

PLANNERS = ("dope-theory", "dope-published", "dope-plus-theory", "optpess-lp-theory", "optpess-lp-published")
BARRIERS = ("lb-sgd-theory", "lb-sgd-published")
OURS = ("safe-only", "certified-likelihood")


def frugal_optimum(task: TabularCMDP) -> TabularPolicy:
    """The optimal policy of the same task with `SAFE_SHARE` of its budget."""
    frugal: TabularPolicy = solve(task, tighten=(1 - SAFE_SHARE) * task.budget).policy
    return frugal


def regularised_optimum(task: TabularCMDP) -> TabularPolicy:
    """LB-SGD's authors start from the optimum for 9/10 of the budgets with entropy of weight 1 added to the reward."""
    return entropy_regularised(task, 1.0, tighten=0.1 * task.budget)


@dataclass(frozen=True)
class Benchmark:
    """A task, how its authors ran it, and how it is run here.

    Attributes:
        family: the published task is one of its tasks, the one of `parameter`.
        safe_policy: the authors' first policy, of the published task.
        steps: of an episode, one per layer of the layered task; None for a discounted task.
        methods: those that are run on it.
        planning: further options of dope-published, where the authors' script for this task differs from the others.
        episodes: by default; the authors had `published_episodes`, in each of `published_runs`.
    """

    family: Callable[[], TaskDistribution]
    parameter: tuple[float, ...]
    safe_policy: Callable[[TabularCMDP], TabularPolicy]
    steps: int | None
    methods: tuple[str, ...]
    episodes: int
    published_episodes: int
    published_runs: int
    what: str
    planning: Mapping[str, Any] = field(default_factory=dict)

    def options(self, method: str) -> dict[str, Any]:
        """Further arguments of `adapt`: a layered episode ends by itself, and planners may know of the layers; the log
        barrier starts where its authors did, and its published figure had other constants than the 7×7 gridworld's.
        """
        options: dict[str, Any] = {} if self.steps is None else {"horizon": self.steps}
        if method in PLANNERS:
            options |= {"layers": self.steps}
        if method == "dope-published":
            options |= self.planning
        if method in BARRIERS:
            options |= {"start": self.safe_policy(self.family().task(self.parameter)).probabilities.tolist()}
        if method == "lb-sgd-published":
            options |= AISTATS
        return options


BENCHMARKS: Mapping[str, Benchmark] = {
    "factored": Benchmark(
        factored,
        PUBLISHED_FAILURE,
        frugal_optimum,
        steps=FACTORED_STEPS,
        methods=(*OURS, *PLANNERS),
        episodes=100_000,
        published_episodes=100_000,
        published_runs=20,
        what=(
            "Three states in a ring, six steps. Advancing brings more the further one is, and costs 1; half of the "
            "steps may be advances. In the authors' task an advance never fails, which no method is told."
        ),
    ),
    "media": Benchmark(
        media,
        PUBLISHED_DRAIN,
        frugal_optimum,
        steps=MEDIA_STEPS,
        methods=(*OURS, *PLANNERS),
        episodes=500_000,
        published_episodes=100_000,
        published_runs=20,
        what=(
            "A buffer of at most nine packets over ten steps, which a fast and a slow service fill and the player "
            "drains. The fast service costs 1; the reward is the number of steps in which the buffer is not empty. "
            "These are more episodes than the authors had: within theirs, DOPE is here still above safe-only."
        ),
    ),
    "inventory": Benchmark(
        inventory,
        PUBLISHED_SHIFT,
        frugal_optimum,
        steps=INVENTORY_STEPS,
        methods=(*OURS, *PLANNERS),
        episodes=1_000_000,
        published_episodes=1_000_000,
        published_runs=20,
        what=(
            "A store of at most five units over seven steps, with a random demand. Ordering and holding cost, sales "
            "are the reward. The authors' script for this task alone has smaller widths, and no bonus for reward."
        ),
        planning={"widths": "inventory"},
    ),
    "two-walls": Benchmark(
        two_walls,
        PUBLISHED_TWO_WALLS,
        regularised_optimum,
        steps=None,
        methods=(*OURS, *BARRIERS),
        episodes=600_000,
        published_episodes=12_000_000,
        published_runs=10,
        what=(
            "A 6×6 gridworld with noise 0.1, γ = 0.7 and two walls of red cells, each with a budget of its own; the "
            "goal lies between them. The first policy is the authors': optimal for budgets 1.8 with entropy of weight "
            "1 added to the reward. Their 12,000,000 episodes are 4,000 steps of 3,000 trajectories."
        ),
    ),
}

METHODS = (*OURS, *PLANNERS, *BARRIERS)


@dataclass(frozen=True)
class BaselinesSettings(frame.ExperimentSettings):
    """Every benchmark with those of its methods that are among `methods`, each `runs` times.

    `episodes` None stands for each benchmark's own number, `runs` None for its authors'. `risk` is the authors' δ.
    """

    benchmarks: tuple[str, ...] = option(tuple(BENCHMARKS), "Comma-separated names.", choices=BENCHMARKS)
    methods: tuple[str, ...] = option(METHODS, "Comma-separated names.", choices=METHODS)
    episodes: int | None = episodes_option(None, "Episodes per run.", "each benchmark's own number")
    runs: int | None = option(None, "Per benchmark and method.", least=1, default_words="its authors' number")
    risk: float = setting(0.01, check=check_unit_interval)
    seed: int = seed_option()
    epsilon: float = 0.02
    delta: float = 0.1
    cells: int = setting(400, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.with_methods:
            known = sorted({method for name in self.benchmarks for method in BENCHMARKS[name].methods})
            raise InvalidInput(
                f"methods must hold one that runs on benchmark {', '.join(self.benchmarks)} ({', '.join(known)}), "
                f"got {', '.join(self.methods)}"
            )
        idle = sorted(set(self.methods).difference(*(self.methods_on(name) for name in self.benchmarks)))
        if idle and self.methods != METHODS:
            raise InvalidInput(f"methods must run on benchmark {', '.join(self.benchmarks)}, got {', '.join(idle)}")

    @property
    def with_methods(self) -> tuple[str, ...]:
        """The benchmarks on which there is something to run."""
        return tuple(name for name in self.benchmarks if self.methods_on(name))

    def methods_on(self, benchmark: str) -> tuple[str, ...]:
        return tuple(method for method in BENCHMARKS[benchmark].methods if method in self.methods)

    def episodes_on(self, benchmark: str) -> int:
        return BENCHMARKS[benchmark].episodes if self.episodes is None else self.episodes

    def runs_on(self, benchmark: str) -> int:
        return BENCHMARKS[benchmark].published_runs if self.runs is None else self.runs


def seed_of(settings: BaselinesSettings, run: int) -> int:
    """The same for all methods and benchmarks."""
    return settings.seed + 1000 * (run + 1)


QUICK = {"episodes": 4_000, "runs": 2, "cells": 100}

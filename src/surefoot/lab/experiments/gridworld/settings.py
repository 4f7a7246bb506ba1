"""What the gridworld reproduction runs, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import episodes_option, option, risk_option, seed_option
from surefoot.methods import METHODS
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES

DEFAULT_METHODS = (
    "safe-only",
    "paper",
    "published",
    "pce",
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
    "safe-meta-published",
    "dope-plus-published",
    "dope-published",
    "lb-sgd-published",
)

# `certified` is one of the others, whichever is the strongest that the policy set allows; signals are learned where
# tasks can only be simulated.
ALL_METHODS = tuple(name for name in METHODS if name not in ("certified", "certified-signals"))

# Radius of the cover in the paper's distance: noise levels up to 0.0053 apart. It yields about as many candidates as
# the ten in the authors' stored set.
EPSILON = 0.004
DELTA = 0.05

FIGURE_1_NOISES = (0.1, 0.3)


@dataclass(frozen=True)
class GridworldSettings(frame.ExperimentSettings):
    """One reproduction.

    Attributes:
        tasks: those of the figure; beyond the ten published noises they are drawn from the distribution.
        fresh: further tasks, all drawn from the distribution, for a table of their own.
        methods: ("all",) stands for all of them.
    """

    episodes: int = episodes_option(40_000, "Episodes per task.")
    tasks: int = option(len(PUBLISHED_TEST_NOISES), "Test tasks, the first ten the published ones.", least=1)
    fresh: int = option(0, "Further tasks drawn from the distribution, for a table of their own.", least=0)
    methods: tuple[str, ...] = option(
        DEFAULT_METHODS,
        f"all, or comma-separated names out of {', '.join(METHODS)}.",
        default_words="the paper's, ours, and the baselines of its figure",
        choices=METHODS,
    )
    risk: float = risk_option()
    seed: int = seed_option()
    epsilon: float = EPSILON
    delta: float = DELTA

    def __post_init__(self) -> None:
        if self.methods == ("all",):
            object.__setattr__(self, "methods", ALL_METHODS)
        super().__post_init__()


QUICK = {"tasks": 3, "episodes": 4_000}

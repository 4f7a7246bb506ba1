"""How much work goes into the value bounds of the certified methods, and how what they may be wrong by is spent."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.arrays import check_int, check_unit_interval, number
from surefoot.bounds.cells import MAX_CELLS
from surefoot.cmdp.controllers import check_name
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.signals.signals import OwnFunction

# Of the probability of tasks that break their bounds, what goes to simulated intervals that are wrong, where these are
# the bounds themselves.
SIMULATION_SHARE = 0.1

# Where simulated bounds of held-out tasks only say how wide the bounds must be, each of them may be wrong as often as
# this: a task that breaks the bounds is then seen to do so in the other cases. Less often takes as many more held-out
# tasks, more often wider bounds of each; the two balance about here, and flatly.
MISS_RATE = 0.2

# Safety rests on upper bounds of costs. All others only tell cells apart, and are widened by so many times as much, so
# that they hardly ever decide by how much.
LESS_URGENT = 1.6


@dataclass(frozen=True)
class Envelopes:
    """How the value bounds for the certified methods are made.

    What is None follows from the tasks: those that can be read are evaluated by the thousand, those that must be
    simulated by the hundred (`READABLE`, `SIMULATED`).

    Attributes:
        cells: how many at most (affine: boxes over the whole support; otherwise sampled tasks, of those that must be
            simulated tasks on which policies do alike); 0 makes none.
        holdout: size of the second sample, for families that are neither affine nor finite.
        uncovered: the probability granted to tasks that break their cell's bounds, for families that are neither affine
            nor finite, or simulated. What the samples leave open about the feasibility of the safe policy comes on top.
        attempt: 1, and one more each time that tasks have been drawn or simulated, looked at and not been used. Each
            attempt has half as much to grant as the one before, so that all of them together keep to `uncovered`; and
            twice as many tasks to try where it must be found out whether a family is affine.
        episodes: simulated per task and policy, where tasks cannot be read; on average, since held-out tasks that
            decide have what others leave. None is 500, or as many as take 20 million steps in all, but at least 50.
        steps: of simulated episodes, at most and in all; None sets no limit but `episodes`.
        minutes: that simulating may take, in place of `episodes` and `steps`: how many tasks and episodes are possible
            in them is measured once and stored with the set (`plan_simulation`). For `policy_set`, whose default it is.
    """

    cells: int | None = None
    holdout: int | None = None
    uncovered: float | None = None
    attempt: int = 1
    episodes: int | None = None
    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("cells", 0), ("holdout", 1), ("attempt", 1), ("episodes", 1), ("steps", 1)):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), least)
        if self.cells is not None and self.cells > MAX_CELLS:
            raise InvalidInput(f"cells must be at most {MAX_CELLS}, got {self.cells}")
        if self.uncovered is not None:
            check_unit_interval("uncovered", self.uncovered)
        if self.minutes is not None:
            self._check_minutes(self.minutes)

    def _check_minutes(self, minutes: float) -> None:
        if not number("minutes", minutes) > 0:
            raise InvalidInput(f"minutes must be positive, got {minutes!r}")
        for name in ("episodes", "steps"):
            if getattr(self, name) is not None:
                raise InvalidInput(f"minutes must be None beside {name}, got {minutes:g} and {getattr(self, name)}")

    def resolve(self, example: Task, shared_costs: bool = False) -> ResolvedBounds:
        """The same with every default filled in, for tasks like `example`."""
        simulated = not isinstance(example, ReadableTask)
        cells, holdout, uncovered = SIMULATED if simulated else READABLE
        return ResolvedBounds(
            cells if self.cells is None else self.cells,
            holdout if self.holdout is None else self.holdout,
            uncovered if self.uncovered is None else self.uncovered,
            self.attempt,
            MOST_EPISODES if self.episodes is None else self.episodes,
            simulated,
            self.episodes is None,
            shared_costs and simulated,
        )


# cells, holdout, uncovered. Either holdout suffices for its uncovered even if the safe policy fails now and then.
READABLE, SIMULATED = (800, 1999, 0.005), (100, 299, 0.03)
# Tasks that Gaussian processes are fitted to; the work for n grows as n³, and a thousand show all that is smooth.
FEWEST_TASKS, SAMPLED_PER_HELD_OUT, MOST_TASKS = 50, 3, 1000
DEFAULT = Envelopes()

# Simulated episodes where nobody says how many: as many as an environment of ordinary speed plays in minutes.
MOST_EPISODES, FEWEST_EPISODES, USUAL_STEPS = 500, 50, 20_000_000


# Sampled tasks on which everything is tried first, and episodes on each where tasks must be simulated: enough to see
# what each candidate is for, and that the safe one deserves its name. No guarantee rests on them.
TRIED_TASKS, TRIED_EPISODES = 16, 64


@dataclass(frozen=True)
class ResolvedBounds:
    """`Envelopes` for one kind of tasks, and the error α that each part of the work may spend.

    Attributes:
        simulated: whether tasks must be simulated.
        default_episodes: whether nobody said how many episodes.
        shared_costs: simulated, and costs are the same on all tasks.
    """

    cells: int
    holdout: int
    uncovered: float
    attempt: int = 1
    episodes: int = 500
    simulated: bool = False
    default_episodes: bool = False
    shared_costs: bool = False

    @property
    def sample(self) -> int:
        """How many tasks a first sample has where tasks are simulated: many, each for a few episodes."""
        return min(max(FEWEST_TASKS, SAMPLED_PER_HELD_OUT * self.holdout), MOST_TASKS)

    @property
    def error(self) -> float:
        """Probability that a task's simulated intervals are wrong, all attempts together."""
        return SIMULATION_SHARE * self.uncovered if self.simulated else 0.0

    @property
    def alpha_spent(self) -> float:
        """The part of `error` that this attempt spends on simulated intervals."""
        return self.error * 0.5**self.attempt

    @property
    def alpha(self) -> float:
        """The rest of what this attempt may spend: on what holds for the tasks of a sample only."""
        return self.uncovered * 0.5**self.attempt - self.alpha_spent

    @property
    def power(self) -> float:
        """Of the fresh tasks that break their bounds, the share whose own values, exact or simulated, would show it."""
        return 1 - MISS_RATE if self.simulated else 1.0

    @property
    def alpha_observed(self) -> float:
        """What this attempt may spend on fresh tasks that would show that they break their bounds."""
        return self.power * (self.alpha if self.shared_costs else self.uncovered * 0.5**self.attempt)


@dataclass(frozen=True, eq=False)
class LearnedSignals:
    """How signals are learned from simulated episodes, for the method certified-signals.

    Attributes:
        features: f(observations [H+1, ...], actions [H, ...]) -> [F] of one episode, in place of the usual ones; the
            rest is learned. The code stays with its owner.
        signals: the same with numbers in [0, 1] that are signals already: nothing is learned.
        name: of these, for messages.
        tasks, episodes: how many tasks are simulated for it, and episodes of each policy on each.
        windows: at most, through which each thing that is learned is seen.
        paid: look at what the steps paid, too, through windows of its own: where tasks differ in that and in nothing
            that is observed. Episodes must then be told with the reward and costs of every step.
        if_possible: learn nothing of tasks that do not show what was observed, instead of refusing them.
    """

    features: OwnFunction | None = None
    signals: OwnFunction | None = None
    name: str = "own"
    tasks: int = 200
    episodes: int = 16
    windows: int = 8
    if_possible: bool = False
    paid: bool = False

    def __post_init__(self) -> None:
        for name, least in (("tasks", 8), ("episodes", 2), ("windows", 1)):
            check_int(name, getattr(self, name), least)
        for name in ("features", "signals"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise InvalidInput(f"{name} must be a function of an episode, got {getattr(self, name)!r}")
        if self.features is not None and self.signals is not None:
            raise InvalidInput("features and signals must not be given both, got two functions")
        if self.paid and self.signals is not None:
            raise InvalidInput("paid must be False beside signals of one's own, which are used as they are, got True")
        check_name("name", self.name)

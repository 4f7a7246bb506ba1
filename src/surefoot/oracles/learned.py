"""Oracles that learn policies: networks trained on simulated tasks (extra `control`).

What is found is tested on fresh episodes. Proved is what those show, with the probability stated: the budgets are kept
up to what was asked for. That nothing better exists is a hope: no gradient shows it, and no theorem of the paper is
claimed of what is trained with these oracles.

Tasks that end early are a trap for whoever looks at sums alone: where the end is cheaper than going on, the best policy
is to fall at once. A policy whose episodes are shorter than was asked for is therefore no answer, whatever it earns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from surefoot.arrays import Floats, check_unit_interval
from surefoot.cmdp.world import World
from surefoot.control.cpo import crpo
from surefoot.control.improvement import Progress, Settings, TrainState, Update, improve
from surefoot.control.ppo_lagrangian import ppo_lagrangian
from surefoot.errors import Infeasible, InvalidInput
from surefoot.estimates import value_bounds
from surefoot.oracles.interface import FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues

# What was found unfit on fresh episodes is trained further, harder; how often.
RETRIES = 4
TRIED = 20  # episodes of an expert on each task, to choose the one that a safe policy begins with

Solved: TypeAlias = list[tuple[Any, TrainState]]  # tasks, each with what was trained on it


@dataclass(frozen=True)
class Schooling:
    """How policies are trained and tested.

    Attributes:
        update: `cpo()`, `crpo()` or `ppo_lagrangian()`.
        settings: of training from nothing.
        warm_steps: of training that begins with the policy of a neighbouring task, or goes on.
        lanes: side by side; of several tasks, all together.
        loosened: multiples of the budget that training from nothing keeps to first, one after the other, since who must
            not act much before having learned to act well never learns it: Hoppers learn to stand.
        reserve: part of the budget that training leaves unused: what it holds it misses by a little.
        allowance: part of the budget by which an expert may exceed it as far as fresh episodes show, if ε allows for
            less: an ε for which the paper's theorem would hold is far below what any number of episodes resolves.
        tested: fresh episodes.
        least_length: part of the horizon that episodes must last on average.
        observer: told of every batch.
    """

    update: Update = field(default_factory=ppo_lagrangian)
    settings: Settings = field(default_factory=Settings)
    warm_steps: int = 300_000
    lanes: int = 40
    loosened: tuple[float, ...] = ()
    reserve: float = 0.03
    allowance: float = 0.1
    tested: int = 1_000
    least_length: float = 0.9
    observer: Callable[[Progress], None] | None = None


def learned_experts(schooling: Schooling | None = None, solved: Solved | None = None) -> OptimalOracle:
    """O_l: a policy trained on the task, beginning with that of the nearest task solved before; each is added to
    `solved`.

    With probability 1-δ it is relaxed ε-feasible, or keeps its budget but for the schooling's allowance: tested on
    fresh episodes. ε-optimal is a hope. Values are means over the fresh episodes.
    """
    rules = schooling or Schooling()
    known: Solved = [] if solved is None else solved

    def optimal(task: Any, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
        least = np.minimum(task.units.user_margin(-epsilon), -rules.allowance * np.abs(task.units.budget))
        trained, found = _train_and_test([task], least, delta, rules, rng, _nearest(known, task))
        known.append((task, trained))
        return PolicyValues(found.policy, float(found.reward[0]), found.margin[0])

    return optimal


def learned_safe_policy(schooling: Schooling | None = None, solved: Solved | None = None) -> FeasibleOracle:
    """O_s: one policy trained on all tasks, pressed down wherever its cost is worst (`crpo`, unless the schooling says
    otherwise).

    It begins with the mildest of the policies in `solved`, if there are any by then: who must not act much on any task
    before having learned to act well never learns it. Give the list that `learned_experts` was given.

    With probability 1-δ it is ξ-feasible on all of them: tested on fresh episodes.
    """
    rules = schooling or Schooling(update=crpo())

    def feasible(tasks: Sequence[Any], xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        if not len(tasks):
            raise InvalidInput("tasks must hold at least one task, got none")
        needed, start = tasks[0].units.user_margin(xi or 0.0), _mildest(solved or [], tasks, rng)
        return _train_and_test(tasks, needed, delta, rules, rng, start)[1]

    return feasible


class Course(NamedTuple):
    """Where a policy is trained: a world, the task of each lane [lanes] and the budget [m] to keep there."""

    world: World
    groups: list[int]
    budget: Floats


def side_by_side(tasks: Sequence[Any], needed: Floats, rules: Schooling) -> Course:
    """All tasks in one world, the margins `needed` [m] and a reserve left unused."""
    each, units = max(1, rules.lanes // len(tasks)), tasks[0].units
    budget = units.budget - np.maximum(needed, 0.0) - rules.reserve * np.abs(units.budget)
    return Course(tasks[0].world(each, *tasks[1:]), np.repeat(np.arange(len(tasks)), each).tolist(), budget)


def _train_and_test(
    tasks: Sequence[Any],
    needed: Floats,
    delta: float,
    rules: Schooling,
    rng: np.random.Generator,
    start: TrainState | None = None,
) -> tuple[TrainState, FeasiblePolicy]:
    """A policy whose margins are at least `needed` [m] on every task with probability 1-δ, or `Infeasible`."""
    check_unit_interval("delta", delta)
    course, trained = side_by_side(tasks, needed, rules), start
    for tries in range(1, RETRIES + 1):
        trained = _train_policy(course, rules, rng, trained)
        tests = [_test_policy(task, trained, rules.tested, delta / RETRIES / len(tasks), rng) for task in tasks]
        shortest = min(test.length for test in tests)
        if shortest < rules.least_length:  # trained on as it was, unless it has learned to end: then from nothing
            trained = trained if 2 * shortest >= rules.least_length else None
            continue
        margin, least = np.array([test.margin for test in tests]), np.array([test.least_margin for test in tests])
        kept = (margin >= np.maximum(needed, 0.0)).all() or tries == RETRIES  # what ε allows besides is for the last
        if kept and (least >= needed).all():
            return trained, FeasiblePolicy(trained.policy, np.array([test.reward for test in tests]), margin)
        course = _tighten_budget(course, np.maximum(needed - least.min(axis=0), 0.0))
    raise _infeasible_error(tests, needed, rules.tested, tasks[0].units.budget)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _train_policy(course: Course, rules: Schooling, rng: np.random.Generator, start: TrainState | None) -> TrainState:
    """A policy for the course: from another one, or from nothing by way of looser budgets."""
    for multiple in rules.loosened if start is None else ():
        start = _run_improvement(_tighten_budget(course, (1 - multiple) * np.abs(course.budget)), rules, rng, start)
    return _run_improvement(course, rules, rng, start)


def _tighten_budget(course: Course, lacking: Floats) -> Course:
    """The budget smaller by what margins lack [m]."""
    return course._replace(budget=course.budget - lacking)


def _run_improvement(
    course: Course, rules: Schooling, rng: np.random.Generator, start: TrainState | None
) -> TrainState:
    steps = rules.settings.steps if start is None else rules.warm_steps
    return improve(
        course.world,
        rules.update,
        settings=replace(rules.settings, steps=steps),
        rng=rng,
        groups=course.groups,
        budget=course.budget,
        start=start,
        observer=rules.observer,
    )


def _nearest(solved: Solved, task: Any) -> TrainState | None:
    """The policy of the task whose parameter is closest."""
    if not solved:
        return None
    apart = [float(np.abs(np.subtract(other.parameter, task.parameter)).max()) for other, _ in solved]
    return solved[int(np.argmin(apart))][1]


def _mildest(solved: Solved, tasks: Sequence[Any], rng: np.random.Generator) -> TrainState | None:
    """The policy whose smallest margin on any task is largest."""
    if not solved:
        return None
    least = [min(_least_margin(task, trained, rng) for task in tasks) for _, trained in solved]
    return solved[int(np.argmax(least))][1]


def _least_margin(task: Any, trained: TrainState, rng: np.random.Generator) -> float:
    """Unit scale, over a few episodes."""
    costs = task.episodes(trained.policy, task.units.episode_length).run(TRIED, rng).cost.mean(axis=0)
    return float(task.units.unit_margin(task.units.budget - costs).min())


class _TestResult(NamedTuple):
    """Means over fresh episodes, what the margins are at least, and the part of the horizon that episodes last."""

    reward: float
    margin: Floats
    least_margin: Floats
    length: float


def _test_policy(task: Any, trained: TrainState, episodes: int, level: float, rng: np.random.Generator) -> _TestResult:
    steps = task.units.episode_length
    outcomes = task.episodes(trained.policy, steps).run(episodes, rng, transitions=True)
    lower, _ = value_bounds(outcomes, task.units, steps, level)
    margin = task.units.budget - outcomes.cost.mean(axis=0)
    length = float(outcomes.watched().steps.mean()) / steps
    return _TestResult(float(outcomes.reward.mean()), margin, lower[1:], length)


def _infeasible_error(tests: Sequence[_TestResult], needed: Floats, episodes: int, budget: Floats) -> Infeasible:
    k = int(np.argmin([(test.least_margin - needed).min() for test in tests]))
    worst = tests[k]
    return Infeasible(
        f"no policy was found that keeps a margin of {needed.tolist()} on every task: on task {k} of {len(tests)} "
        f"the last one has {worst.margin.tolist()}, shown to be at least {worst.least_margin.tolist()} on {episodes} "
        f"episodes, which last {worst.length:.0%} of the horizon; train for longer, test on more episodes or ask for "
        "less",
        budget - worst.margin,
    )

"""Simulate a learner on a task, with the value of everything it deploys: exact where the task can be read.

Each policy of the learner has its own stream of simulated episodes, and an order takes the next one of its stream.
A block of orders therefore sees exactly the episodes that single orders would: blocks change the speed, nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.method import Mixture
from surefoot.simulate.evaluator import PolicyEvaluation, worth
from surefoot.simulate.pool import EpisodePool, EpisodeStream, SharedStreams, growing_chunks, policy_rng
from surefoot.simulate.run import Run, Spans
from surefoot.tasks.task_distribution import check_task

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 4096
ROUNDING = 1e-9  # of margins, in units of the cost scale where that is less than 1
KEPT_STREAMS = 64  # policies whose simulated episodes are kept at hand; others are simulated again
# Where a task cannot be read: the most episodes on which each deployed policy is judged, a quarter of them at first,
# and the probability that one is judged wrongly, the error of its values being too small.
JUDGED_EPISODES, JUDGED_ERROR = 16_000, 1e-3

Observer = Callable[[int, int], None]  # (episodes done, episodes in all)
Weighted: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]  # policies and their probabilities


def run_learner(
    learner: Learner,
    task: Task,
    *,
    episodes: int,
    seed: int,
    optimal_reward: float | None = None,
    block: int = LARGEST_BLOCK,
    observer: Observer | None = None,
    judged_on: int = JUDGED_EPISODES,
) -> Run:
    """Ask, simulate and tell for `episodes` episodes.

    Args:
        optimal_reward: V* where it is known; by default what a readable task says, and NaN for any other.
        block: most orders asked for at once.
        observer: called with (episodes done, episodes in all).
        judged_on: the most episodes on which the values of each deployed policy are estimated where the task cannot be
            read; fewer where it is clear before whether what was deployed keeps the budgets.
    """
    check_task("task", task)
    if not learner.method.units.same_as(task.units):
        raise InvalidInput(
            "task must share discount, horizon, ranges and budgets with the policy set: "
            f"{learner.method.units}, got {task.units}"
        )
    if optimal_reward is None:
        optimal_reward = task.optimum() if isinstance(task, ReadableTask) else float("nan")
    steps = task.units.steps(learner.horizon)

    @cache
    def evaluation(index: int) -> PolicyEvaluation:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index, 1)))
        policy = learner.policy(index)
        return PolicyEvaluation(task, policy, steps=steps, most=judged_on, level=JUDGED_ERROR, rng=rng)

    deployed = simulate(learner, task, episodes=episodes, seed=seed, block=block, observer=observer)
    return _record(learner, task, deployed, episodes, evaluation, optimal_reward)


def simulate(
    learner: Learner,
    task: Task,
    *,
    episodes: int,
    seed: int,
    abandoned: float = 0.0,
    shared: SharedStreams | None = None,
    block: int = LARGEST_BLOCK,
    observer: Observer | None = None,
) -> list[tuple[int, Mixture]]:
    """What the learner deploys in turn on the task, each with the number of episodes before it.

    Args:
        abandoned: the share of episodes that have no outcome.
        shared: streams of the policies of its set, with this seed.
    """
    steps, sums_only = task.units.steps(learner.horizon), learner.method.observes == "sums"

    @lru_cache(KEPT_STREAMS)
    def stream(index: int) -> EpisodeStream:
        policy = learner.policy(index)
        if shared is not None and shared.holds(index, policy):
            return shared[index]
        return EpisodeStream(
            task.episodes(policy, steps), policy_rng(seed, index), growing_chunks(), transitions=not sums_only
        )

    lost: Integers = np.empty(0, dtype=np.int64)
    if abandoned:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 3)))
        lost = np.flatnonzero(rng.random(episodes) < abandoned)
    return ask_and_tell(learner, EpisodePool(stream), episodes, lost=lost, block=block, observer=observer)


def ask_and_tell(
    learner: Learner,
    pool: EpisodePool,
    episodes: int,
    *,
    lost: Integers | None = None,
    block: int = LARGEST_BLOCK,
    observer: Observer | None = None,
) -> list[tuple[int, Mixture]]:
    """What the learner deploys in turn, each with the number of episodes before it, over `episodes` of the pool's;
    those whose numbers are `lost`, increasing, have no outcome."""
    deployed: list[tuple[int, Mixture]] = []
    done = used = 0
    ends = [episodes] if lost is None else [*lost.tolist(), episodes]
    for end in ends:
        while done < end:
            # Decisions fall about as often as before; what a block holds beyond the next one is only looked at.
            size = min(max(SMALLEST_BLOCK, 2 * used), block)
            orders = learner.ask_block(min(size, end - done))
            used = learner.tell_block(orders, pool.upcoming(orders.drawn))
            _check_contract(learner.name, orders.deployed, used)
            pool.use(orders.drawn[:used])
            deployed.append((done, orders.deployed))
            done += used
            if observer:
                observer(done, episodes)
        if end < episodes:
            order = learner.ask()
            learner.abandon(order)
            pool.use(np.array([order.policy_index]))
            deployed.append((done, order.deployed))
            done += 1
    return deployed


def _check_contract(name: str, deployed: Mixture, used: int) -> None:
    """Refuse what would never end, and what is drawn otherwise than it is judged; `surefoot.testing.learner_suite` has
    the rest of what a method of one's own must keep to."""
    if used < 1:
        raise InvalidInput(f"update of method {name!r} must use some of the episodes told (Step.used), got {used}")
    if (deployed.weights < 0).any() or abs(float(deployed.weights.sum()) - 1) > ROUNDING:
        raise InvalidInput(
            f"weights of a mixture of method {name!r} must be at least 0 and sum to 1, got {deployed.weights.tolist()}"
        )


def _record(
    learner: Learner,
    task: Task,
    deployed: Sequence[tuple[int, Mixture]],
    episodes: int,
    evaluation: Callable[[int], PolicyEvaluation],
    optimal_reward: float,
) -> Run:
    """What was deployed is evaluated at the end: its worth depends on nothing that was observed."""
    rounding = ROUNDING * min(1.0, float(learner.method.units.cost_scale.min()))
    begins = [begin for begin, _ in deployed]
    mixtures: list[Weighted] = [(tuple(each.indices.tolist()), tuple(each.weights.tolist())) for _, each in deployed]
    values = {mixture: worth(*mixture, evaluation, rounding) for mixture in dict.fromkeys(mixtures)}
    rows = [(*values[mixture], each.weight) for mixture, (_, each) in zip(mixtures, deployed, strict=True)]
    counts = Counter[Weighted]()
    for mixture, count in zip(mixtures, np.diff(begins, append=episodes).tolist(), strict=True):
        counts[mixture] += count
    return Run(
        learner.name,
        learner.certified,
        Spans.of(begins, rows, episodes),
        optimal_reward,
        _output(learner, counts),
        learner.events,
        learner.settings,
        learner.risk_split,
        rounding,
        exact=isinstance(task, ReadableTask),
    )


def _output(learner: Learner, counts: Mapping[Weighted, int]) -> EpisodeMixture:
    """The mixture of everything deployed, each as often as in so many episodes."""
    mass: dict[int, float] = {}
    for (indices, shares), count in counts.items():
        for index, share in zip(indices, shares, strict=True):
            mass[index] = mass.get(index, 0.0) + count * share
    weights: Floats = np.array(list(mass.values()))
    return EpisodeMixture(tuple(learner.policy(index) for index in mass), weights / weights.sum())

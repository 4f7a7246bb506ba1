"""Simulate a learner on a task, with the value of everything it deploys: exact where the task can be read.

Each policy of the learner has its own stream of simulated episodes, and an order takes the next one of its stream.
A block of orders therefore sees exactly the episodes that single orders would: blocks change the speed, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.cmdp.task import Episodes, ReadableTask, Task
from surefoot.cmdp.values import Values
from surefoot.errors import InvalidInput
from surefoot.estimates import Judgement
from surefoot.learning.learner import Learner
from surefoot.learning.method import Deployed
from surefoot.simulate.run import Run
from surefoot.tasks.task_distribution import check_task

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 4096
FIRST_CHUNK = 128  # episodes simulated at once; fewer would cost as much
ROUNDING = 1e-9  # of margins, in units of the cost scale where that is less than 1
KEPT_STREAMS = 64  # policies whose simulated episodes are kept at hand
# Where a task cannot be read: the most episodes on which each deployed policy is judged, a quarter of them at first,
# and the probability that one is judged wrongly, the error of its values being too small.
JUDGED_EPISODES, JUDGED_ERROR = 16_000, 1e-3

Observer = Callable[[int, int], None]  # (episodes done, episodes in all)


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
    world = SimulatedTask(learner, task, seed, judged_on)
    record = _Record(episodes)
    used = 0
    while record.told < episodes:
        # Decisions fall about as often as before; what a block holds beyond the next one is not lost, only looked at.
        size = min(max(SMALLEST_BLOCK, 2 * used), block)
        orders = learner.ask_block(min(size, episodes - record.told))
        used = learner.tell_block(orders, world.upcoming(orders.drawn))
        world.consume(orders.drawn[:used])
        record.note(orders.deployed, used)
        if observer:
            observer(record.told, episodes)
    return record.finish(learner, world, optimal_reward)


class SimulatedTask:
    """A task together with one stream of episodes and the values of each policy that was ordered so far."""

    def __init__(self, learner: Learner, task: Task, seed: int, judged_on: int = JUDGED_EPISODES) -> None:
        self.learner, self.task, self.seed, self.judged_on = learner, task, seed, judged_on
        self.steps = task.units.steps(learner.horizon)
        self.transitions = learner.method.observes != "sums"
        self._streams: dict[int, EpisodeStream] = {}  # the latest used last
        self._used_before: dict[int, int] = {}  # episodes that streams had used when they were dropped
        self._judged: dict[int, Judgement] = {}

    def upcoming(self, drawn: Integers) -> Outcomes:
        """The next unused episode of each drawn policy's stream [n], without using them up."""
        kinds = np.unique(drawn)
        if len(kinds) == 1:
            return self._stream(int(kinds[0])).peek(len(drawn))
        places = [np.flatnonzero(drawn == index) for index in kinds]
        parts = [self._stream(int(index)).peek(len(place)) for index, place in zip(kinds, places, strict=True)]
        back = np.argsort(np.concatenate(places), kind="stable")
        return Outcomes.joined(parts)[back]

    def consume(self, drawn: Integers) -> None:
        for index, count in zip(*np.unique(drawn, return_counts=True), strict=True):
            self._stream(int(index)).skip(int(count))

    def judgement(self, index: int) -> Judgement:
        """Exact, or from episodes of its own: the learner's are fewer, and stopped when they pleased it."""
        if index not in self._judged:
            self._judged[index] = Judgement(
                self.task,
                self.learner.policy(index),
                steps=self.steps,
                most=self.judged_on,
                level=JUDGED_ERROR,
                rng=np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index, 1))),
            )
        return self._judged[index]

    def _stream(self, index: int) -> EpisodeStream:
        stream = self._streams.pop(index, None) or self._begun(index)
        self._streams[index] = stream
        if len(self._streams) > KEPT_STREAMS:
            oldest = next(iter(self._streams))
            self._used_before[oldest] = self._streams.pop(oldest).used
        return stream

    def _begun(self, index: int) -> EpisodeStream:
        """A stream from its beginning, or from where it was when it was dropped."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(index,)))
        simulated = self.task.episodes(self.learner.policy(index), self.steps)
        stream = EpisodeStream(simulated, rng, self.transitions)
        stream.skip(self._used_before.get(index, 0))
        return stream


class EpisodeStream:
    """Independent episodes of one policy, simulated ahead in chunks whose sizes do not depend on who asks."""

    def __init__(self, episodes: Episodes, rng: np.random.Generator, transitions: bool) -> None:
        self.episodes, self.rng, self.transitions = episodes, rng, transitions
        self.used = 0
        self._position = 0  # of the first unused episode in the buffer
        self._chunk = FIRST_CHUNK
        self._buffer = self._simulate()

    def peek(self, count: int) -> Outcomes:
        """The next `count` episodes, without using them up."""
        while self._position + count > len(self._buffer):
            self._chunk = min(2 * self._chunk, LARGEST_BLOCK)
            self._buffer, self._position = Outcomes.joined([self._buffer[self._position :], self._simulate()]), 0
        return self._buffer[self._position : self._position + count]

    def skip(self, count: int) -> None:
        """Use up the next `count` episodes."""
        self.peek(count)
        self._position += count
        self.used += count

    def _simulate(self) -> Outcomes:
        return self.episodes.run(self._chunk, self.rng, transitions=self.transitions)


# Policies and weights of a deployed mixture.
Mixture: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]


class _Record:
    """Collects what was deployed; what it is worth is asked at the end, and depends on nothing that was observed."""

    def __init__(self, episodes: int) -> None:
        self.told = 0
        self.weight = np.empty(episodes)
        self.spans: list[tuple[slice, Mixture]] = []
        self.counts: dict[Mixture, int] = {}  # episodes of each mixture

    def note(self, deployed: Deployed, used: int) -> None:
        part = slice(self.told, self.told + used)
        mixture = tuple(deployed.indices.tolist()), tuple(deployed.weights.tolist())
        self.weight[part] = deployed.weight
        self.spans.append((part, mixture))
        self.counts[mixture] = self.counts.get(mixture, 0) + used
        self.told += used

    def finish(self, learner: Learner, world: SimulatedTask, optimal_reward: float) -> Run:
        rounding = ROUNDING * min(1.0, float(learner.method.units.cost_scale.min()))
        worth = {mixture: _worth(mixture, world, rounding) for mixture in self.counts}
        reward, margin, *errors = np.concatenate(
            [np.tile(worth[mixture], (part.stop - part.start, 1)) for part, mixture in self.spans]
        ).T
        exact = all(world.judgement(index).exact is not None for indices, _ in self.counts for index in indices)
        mass: dict[int, float] = {}
        for (indices, shares), count in self.counts.items():
            for index, share in zip(indices, shares, strict=True):
                mass[index] = mass.get(index, 0.0) + count * share
        weights: Floats = np.array(list(mass.values()))
        output = EpisodeMixture(tuple(learner.policy(index) for index in mass), weights / weights.sum())
        regret = np.cumsum(np.abs(optimal_reward - reward))
        return Run(
            learner.name,
            learner.certified,
            regret,
            margin,
            self.weight,
            optimal_reward,
            output,
            learner.events,
            learner.settings,
            learner.risk_split,
            rounding,
            reward,
            None if exact else np.stack(errors, axis=1),
        )


def _worth(mixture: Mixture, world: SimulatedTask, rounding: float) -> tuple[float, float, float, float]:
    """Reward and smallest margin of a mixture and by how much either may be off, from as many episodes as show on which
    side of 0 the margin lies."""
    indices, shares = mixture
    weights, judged = np.array(shares), [world.judgement(index) for index in indices]
    while True:
        reward, margin, *errors = _mixed(weights, [each.values for each in judged])
        rest = [each for each in judged if not each.finished]
        if not rest or margin - errors[1] >= -rounding or margin + errors[1] < -rounding:
            return reward, margin, errors[0], errors[1]
        for each in rest:
            each.refine()


def _mixed(weights: Floats, values: list[Values]) -> tuple[float, float, float, float]:
    """Errors [1+m] of a mixture are those of its components, weighted; the smallest margin is off by no more than the
    worst of them."""
    reward = weights @ [value.reward for value in values]
    margin = (weights @ np.stack([value.margin for value in values])).min()
    errors = [value.error for value in values if value.error is not None]
    error = weights @ np.stack(errors) if errors else np.zeros(2)
    return float(reward), float(margin), float(error[0]), float(error[1:].max())

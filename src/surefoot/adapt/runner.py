"""Simulate a learner on a tabular task, with the exact value of everything it deploys.

Each policy of the learner has its own stream of simulated episodes, and an order takes the next one of its stream.
A block of orders therefore sees exactly the episodes that single orders would: blocks change the speed, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.adapt.learner import Deployed, Learner
from surefoot.adapt.run_record import Run
from surefoot.cmdp.episode import Integers, Outcomes
from surefoot.cmdp.evaluate import Values, evaluate
from surefoot.cmdp.model import Floats, TabularCMDP
from surefoot.cmdp.policy import EpisodeMixture, TabularPolicy, TimedPolicy
from surefoot.cmdp.rollout import Simulator
from surefoot.errors import InvalidInput

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 4096
FIRST_CHUNK = 128  # episodes simulated at once; fewer would cost as much
ROUNDING = 1e-9  # of margins, in units of the cost scale where that is less than 1
KEPT_STREAMS = 64  # policies whose simulated episodes are kept at hand

Observer = Callable[[int, int], None]  # (episodes done, episodes in all)


def run_learner(
    learner: Learner,
    task: TabularCMDP,
    *,
    episodes: int,
    seed: int,
    horizon: int,
    optimal_reward: float,
    transitions: bool = False,
    block: int = LARGEST_BLOCK,
    observer: Observer | None = None,
    settings: Mapping[str, Any] | None = None,
    lens: Lens | None = None,
) -> Run:
    """Ask, simulate and tell for `episodes` episodes of `horizon` steps."""
    if not learner.method.units.same_as(task.units):
        raise InvalidInput(
            "task must share discount, ranges and budgets with the policy set: "
            f"{learner.method.units}, got {task.units}"
        )
    world = SimulatedTask(learner, task, horizon, seed, transitions, lens)
    record = _Record(episodes)
    used = 0
    while record.told < episodes:
        # Decisions fall about as often as before; what a block holds beyond the next one is not lost, only looked at.
        size = min(max(SMALLEST_BLOCK, 2 * used), block)
        orders = learner.ask_block(min(size, episodes - record.told))
        used = learner.tell_block(orders, world.upcoming(orders.drawn))
        world.consume(orders.drawn[:used])
        record.note(orders.deployed, used, world)
        if observer:
            observer(record.told, episodes)
    return record.finish(learner, world, optimal_reward, settings or {})


@dataclass(frozen=True)
class Lens:
    """How a true task with more states looks to the learner: its policies lifted, the true states as it sees them."""

    lift: Callable[[TabularPolicy], TabularPolicy]
    see: Callable[[Integers], Integers]


class SimulatedTask:
    """A task together with one stream of episodes and the exact values of each policy that was ordered so far."""

    def __init__(
        self,
        learner: Learner,
        task: TabularCMDP,
        horizon: int,
        seed: int,
        transitions: bool,
        lens: Lens | None = None,
    ) -> None:
        self.learner, self.task, self.horizon = learner, task, horizon
        self.seed, self.transitions, self.lens = seed, transitions, lens
        self._streams: dict[int, EpisodeStream] = {}  # the latest used last
        self._used_before: dict[int, int] = {}  # episodes that streams had used when they were dropped
        self._values: dict[int, Values] = {}

    def upcoming(self, drawn: Integers) -> Outcomes:
        """The next unused episode of each drawn policy's stream [n], without using them up."""
        kinds = np.unique(drawn)
        if len(kinds) == 1:
            return self._stream(int(kinds[0])).peek(len(drawn))
        places = [np.flatnonzero(drawn == index) for index in kinds]
        parts = [self._stream(int(index)).peek(len(place)) for index, place in zip(kinds, places, strict=True)]
        back = np.argsort(np.concatenate(places), kind="stable")
        return _joined(parts)[back]

    def consume(self, drawn: Integers) -> None:
        for index, count in zip(*np.unique(drawn, return_counts=True), strict=True):
            self._stream(int(index)).skip(int(count))

    def values(self, index: int) -> Values:
        if index not in self._values:
            self._values[index] = evaluate(self.task, self.policy(index))
        return self._values[index]

    def policy(self, index: int) -> TabularPolicy | TimedPolicy:
        policy = self.learner.policy(index)
        if self.lens is None and isinstance(policy, TabularPolicy | TimedPolicy):
            return policy
        if not isinstance(policy, TabularPolicy):
            needed = "only stationary tabular policies can be lifted to a task with more states"
            if self.lens is None:
                needed = "a tabular task needs tabular or timed policies"
            raise InvalidInput(f"{needed}, got policy {index} of kind {policy.kind!r}")
        return self.lens.lift(policy) if self.lens else policy

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
        simulator = Simulator(self.task, self.policy(index), self.horizon)
        stream = EpisodeStream(simulator, rng, self.transitions, self.lens)
        stream.skip(self._used_before.get(index, 0))
        return stream


class EpisodeStream:
    """Independent episodes of one policy, simulated ahead in chunks whose sizes do not depend on who asks."""

    def __init__(
        self, simulator: Simulator, rng: np.random.Generator, transitions: bool, lens: Lens | None = None
    ) -> None:
        self.simulator, self.rng, self.transitions, self.lens = simulator, rng, transitions, lens
        self.used = 0
        self._position = 0  # of the first unused episode in the buffer
        self._chunk = FIRST_CHUNK
        self._buffer = self._simulate()

    def peek(self, count: int) -> Outcomes:
        """The next `count` episodes, without using them up."""
        while self._position + count > len(self._buffer):
            self._chunk = min(2 * self._chunk, LARGEST_BLOCK)
            self._buffer, self._position = _joined([self._buffer[self._position :], self._simulate()]), 0
        return self._buffer[self._position : self._position + count]

    def skip(self, count: int) -> None:
        """Use up the next `count` episodes."""
        self.peek(count)
        self._position += count
        self.used += count

    def _simulate(self) -> Outcomes:
        outcomes = self.simulator.run(self._chunk, self.rng, transitions=self.transitions)
        if self.lens is None or outcomes.states is None:
            return outcomes
        return replace(outcomes, states=self.lens.see(outcomes.states))


def _joined(parts: list[Outcomes]) -> Outcomes:
    states = [part.states for part in parts if part.states is not None]
    actions = [part.actions for part in parts if part.actions is not None]
    return Outcomes(
        np.concatenate([part.reward for part in parts]),
        np.concatenate([part.cost for part in parts]),
        np.concatenate(states) if states else None,
        np.concatenate(actions) if actions else None,
    )


class _Record:
    """Collects what was deployed; values are exact, so nothing is estimated here."""

    def __init__(self, episodes: int) -> None:
        self.told = 0
        self.reward, self.margin, self.weight = np.empty(episodes), np.empty(episodes), np.empty(episodes)
        self.counts: dict[tuple[tuple[int, ...], tuple[float, ...]], int] = {}  # episodes of each mixture

    def note(self, deployed: Deployed, used: int, world: SimulatedTask) -> None:
        values = [world.values(int(index)) for index in deployed.indices]
        part = slice(self.told, self.told + used)
        self.reward[part] = deployed.weights @ [value.reward for value in values]
        self.margin[part] = (deployed.weights @ np.stack([value.margin for value in values])).min()
        self.weight[part] = deployed.weight
        mixture = tuple(deployed.indices.tolist()), tuple(deployed.weights.tolist())
        self.counts[mixture] = self.counts.get(mixture, 0) + used
        self.told += used

    def finish(self, learner: Learner, world: SimulatedTask, optimal_reward: float, settings: Mapping[str, Any]) -> Run:
        mass: dict[int, float] = {}
        for (indices, shares), count in self.counts.items():
            for index, share in zip(indices, shares, strict=True):
                mass[index] = mass.get(index, 0.0) + count * share
        weights: Floats = np.array(list(mass.values()))
        output = EpisodeMixture(tuple(world.policy(index) for index in mass), weights / weights.sum())
        regret = np.cumsum(np.abs(optimal_reward - self.reward))
        return Run(
            learner.name,
            learner.certified,
            regret,
            self.margin,
            self.weight,
            optimal_reward,
            output,
            learner.events,
            settings,
            learner.risk_split,
            ROUNDING * min(1.0, float(learner.method.units.cost_scale.min())),
        )

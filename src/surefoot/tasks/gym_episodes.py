"""Episodes of an environment, one after the other or side by side in the lanes of a vector environment.

Each begins with a fresh seed, an independent draw: episodes are independent if the seed decides about everything that
is random in one, which `check_env` tries. The policy draws from a stream of its own.

A lane whose episode has ended is not counted any further, whatever the environment then does with it: takes a step that
is none (Gymnasium's NEXT_STEP), begins another episode (SAME_STEP) or must be reset by hand (DISABLED). Counting the
episodes that end first instead would favour short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, check_int, generator
from surefoot.cmdp.episode import Observed, Outcomes, drawn_unless_taken, first_breach
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_lanes import Lanes, LaneStep, SingleLane, VectorLanes
from surefoot.tasks.gym_options import GymOptions
from surefoot.tasks.lane_world import SEEDS

Act: TypeAlias = Callable[[Any, int], Any]  # (observation, step) -> action


@dataclass(frozen=True, eq=False)
class GymEpisodes:
    """Episodes of `policy` that end after `steps` steps at the latest."""

    options: GymOptions
    parameter: Floats
    action_space: Any
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Sums of `episodes` episodes, and with `transitions` what was observed, where that is arrays."""
        seeds = generator("rng", rng).integers(SEEDS, size=check_int("episodes", episodes)).tolist()
        acting = np.random.default_rng(rng.integers(2**63, size=2))
        side_by_side = 1 if self.options.make_vector is None else self.options.lanes
        batches = [seeds[k : k + side_by_side] for k in range(0, episodes, side_by_side)]
        parts = [self._batch(lanes, batch, acting, transitions) for lanes, batch in self._open_lanes(batches)]
        return in_range(Outcomes.joined(parts), self.options.units)

    def _open_lanes(self, batches: list[list[int]]) -> Iterator[tuple[Lanes, list[int]]]:
        """Each batch of seeds with the lanes that it is played in: the same single one, or as many as it has seeds."""
        if self.options.make_vector is None:
            with self.options.open_env(self.parameter) as env:
                lane = SingleLane(env, self.options)
                yield from ((lane, batch) for batch in batches)
            return
        for batch in batches:
            with self.options.open_vector(self.parameter, len(batch)) as env:
                yield VectorLanes(env, self.options, self.action_space, len(batch)), batch

    def _batch(self, lanes: Lanes, seeds: list[int], acting: np.random.Generator, transitions: bool) -> Outcomes:
        """Sums of one episode in each lane, from a seed each."""

        def act(observation: Any, t: int) -> Any:
            return self.policy.act(observation, lanes.clock(t), acting)

        observation, weights, after = lanes.begin(seeds), self._weights, self.options.after_termination
        recording = Recording(lanes.stack(observation)) if transitions else None
        sums, alone = np.zeros((len(seeds), len(after))), lanes.count == 1  # a single one runs until there are no steps
        for step in play(lanes, act, observation, self.steps):
            sums += weights.at[step.t] * (step.paid if alone else np.where(step.running[:, None], step.paid, 0.0))
            if step.any_over:
                ended = step.running & step.terminated
                sums[ended] += weights.after[step.t + 1] * after
                step.paid[ended] += weights.owed(step.t) * after
            if recording is not None:
                recording.add(lanes, step)
        observed = None if recording is None else recording.observed
        return Outcomes(sums[:, 0], sums[:, 1:], observed=observed)

    @cached_property
    def _weights(self) -> DiscountWeights:
        return DiscountWeights.of(self.options.units, self.steps)


def play(lanes: Lanes, act: Act, observation: Any, steps: int) -> Iterator[LaneStep]:
    """The steps of episodes that were begun with this observation: up to the end of the last one, or `steps` of them.

    A time limit before that is refused: it is no end of the system, and what would have been paid after it is unknown.
    """
    running = np.ones(lanes.count, np.bool_)
    for t in range(steps):
        step = lanes.step(observation, act(observation, t), t, running)
        yield step
        if step.any_over:
            if t + 1 < steps and (running & step.truncated & ~step.terminated).any():
                raise cut_off(t, steps, lanes.options.units)
            running = running & ~step.terminated
            if not running.any():
                return
        observation = lanes.next_observation(step)


class DiscountWeights(NamedTuple):
    """γ^t of every step [steps], and the sums [steps+1] of those from t on: what all steps after an end weigh."""

    at: Floats
    after: Floats

    @classmethod
    def of(cls, units: Units, steps: int) -> DiscountWeights:
        weights: Floats = np.power(units.discount, np.arange(steps, dtype=np.float64))
        return cls(weights, np.append(np.cumsum(weights[::-1])[::-1], 0.0))

    def owed(self, t: int) -> float:
        """What all steps after an end at step t weigh, in units of that step."""
        return float(self.after[t + 1] / self.at[t])


@dataclass(frozen=True, eq=False)
class Recording:
    """What the episodes of n lanes show step by step: arrays [n, ...] of each."""

    first: NDArray[Any]
    steps: list[tuple[NDArray[Any], NDArray[Any], Floats, NDArray[Any]]] = field(default_factory=list)
    drawn: list[NDArray[Any]] = field(default_factory=list)  # where actions may be moved into their box

    def add(self, lanes: Lanes, step: LaneStep) -> None:
        """A step, the last one of an episode with what the steps pay that it then lacks."""
        self.steps.append((lanes.stack(step.shown), lanes.stack(step.action), step.paid, step.running))
        if step.drawn is not None:
            self.drawn.append(lanes.stack(step.drawn))

    @property
    def observed(self) -> Observed | None:
        """None where observations are no arrays of numbers."""
        shown, actions, paid, running = zip(*self.steps, strict=True)
        seen = [self.first, *shown]
        if any(each.dtype.kind not in "biuf" for each in seen):
            return None
        taken, acted = np.stack(running).sum(axis=0, dtype=np.int64), np.stack(actions, axis=1)
        drawn = drawn_unless_taken(np.stack(self.drawn, axis=1), acted) if self.drawn else None
        return Observed(np.stack(seen, axis=1), acted, taken, np.stack(paid, axis=1), drawn)


def in_range(outcomes: Outcomes, units: Units) -> Outcomes:
    """The outcomes themselves; refused where a sum leaves the range that was declared of it."""
    outside = first_breach(outcomes, units)
    if outside == len(outcomes):
        return outcomes
    raise InvalidInput(
        f"an episode's reward and cost must lie in reward_sum_range and cost_sum_range (0 included), "
        f"{units.reachable.tolist()}, got {outcomes.reward[outside]:g} and {outcomes.cost[outside].tolist()}"
    )


def cut_off(t: int, steps: int, units: Units) -> InvalidInput:
    whole_episode = f"horizon={units.horizon}" if units.horizon else f"discount {units.discount:g} without a horizon"
    return InvalidInput(
        f"an episode must go on for {steps} steps ({whole_episode}) or terminate, but was truncated after {t + 1}, at "
        f"step {t}: its further costs would be lost; make the environment without its time limit, "
        f"e.g. gymnasium.make(..., max_episode_steps=-1), or declare horizon={t + 1}"
    )

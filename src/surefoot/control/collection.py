"""Steps of a policy in a world, collected for training: episodes go on from one batch to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.world import Actions, World


@dataclass(frozen=True, eq=False)
class Batch:
    """T steps of n lanes.

    Attributes:
        observations: [T, n, o] before each step.
        after: [T, n, o] after it, of ended episodes the last one.
        actions: [T, n, k], or [T, n] where they are choices; before they were moved into a box.
        reward, cost: [T, n] and [T, n, m].
        terminated, ended: [T, n] whether the system ended there, and whether the episode did.
        sums: [E, 1+m] reward and costs, as the budget counts them, of the episodes that ended.
        lengths, lane: [E] their steps, and where they ran.
    """

    observations: Floats
    after: Floats
    actions: Actions
    reward: Floats
    cost: Floats
    terminated: Mask
    ended: Mask
    sums: Floats
    lengths: Integers
    lane: Integers


class Collector:
    """A world with episodes under way in every lane."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.steps = np.zeros(world.lanes, np.int64)
        self.observation = world.begin(np.ones(world.lanes, np.bool_), rng)

    def collect(self, policy: Policy, steps: int) -> Batch:
        """`steps` further steps in every lane."""
        rows, sums, lengths, lane = [], [], [], []
        for _ in range(steps):
            before = self.observation
            actions = policy.act(before, self.steps, self.rng)
            step = self.world.step(actions)
            self.steps += 1
            rows.append((before, step.observation, actions, step.reward, step.cost, step.terminated, step.ended))
            self.observation = step.observation
            if step.ended.any():
                sums.append(step.sums[step.ended])
                lengths.append(self.steps[step.ended])
                lane.append(np.flatnonzero(step.ended))
                self.steps[step.ended] = 0
                self.observation = self.world.begin(step.ended, self.rng)
        before, after, taken, reward, cost, terminated, ended = (np.stack(column) for column in zip(*rows, strict=True))
        finished = [np.concatenate([np.zeros(0, np.int64), *parts]) for parts in (lengths, lane)]
        none = np.zeros((0, 1 + len(self.world.units.budget)))
        all_sums = np.concatenate([none, *sums])
        return Batch(before, after, taken, reward, cost, terminated, ended, all_sums, *finished)

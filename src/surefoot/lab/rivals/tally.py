"""What the rivals share: they keep a tally of the sums of every policy's episodes, and now and then choose from it.

Nothing is proved of any of them, and an abandoned episode is as if it had not been run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Cells
from surefoot.bounds.widening import shrink_bounds
from surefoot.cmdp.episode import Outcomes
from surefoot.errors import InvalidInput
from surefoot.learning.certified.method import next_decision
from surefoot.learning.method import SAFE_MIXTURE, Certificate, Method, Mixture, Step
from surefoot.policyset.policy_value_set import PolicyValueSet

# Decide after every episode at first, then each time there are some more of them by a fraction.
soon = partial(next_decision, least_wait=1)


@dataclass(frozen=True, eq=False)
class Tally:
    """Of P policies, by reward and costs.

    Attributes:
        count: [P] episodes of each.
        total, squares: [P, 1+m] of their sums.
        ordered: [P] how often each was to be expected, by the mixtures deployed before the last decision.
        known: episodes before that.
    """

    count: Integers
    total: Floats
    squares: Floats
    ordered: Floats
    known: int

    @property
    def mean(self) -> Floats:
        """[P, 1+m] 0 where there are no episodes."""
        mean: Floats = self.total / np.maximum(self.count, 1)[:, None]
        return mean

    @property
    def density(self) -> Floats:
        """[P] the mixture of all mixtures deployed so far: what an episode in the tally was drawn from."""
        density: Floats = self.ordered / max(self.known, 1)
        return density

    def add(self, drawn: Integers, sums: Floats) -> Tally:
        """With episodes [n] of sums [n, 1+m], one after the other, so that blocks and single ones round alike."""
        count, total, squares = self.count.copy(), self.total.copy(), self.squares.copy()
        np.add.at(count, drawn, 1)
        np.add.at(total, drawn, sums)
        np.add.at(squares, drawn, sums**2)
        return replace(self, count=count, total=total, squares=squares)

    def close(self, deployed: Mixture) -> Tally:
        """All since the last decision were drawn from what was deployed since then."""
        now = int(self.count.sum())
        return replace(
            self, ordered=self.ordered + (now - self.known) * deployed.probabilities(len(self.count)), known=now
        )


def empty_tally(policies: int, numbers: int) -> Tally:
    zeros = np.zeros((policies, numbers))
    return Tally(np.zeros(policies, dtype=np.int64), zeros, zeros, np.zeros(policies), 0)


def mixture_of(density: Floats) -> Mixture:
    """The policies of positive probability [P]."""
    indices = np.flatnonzero(density > 0)
    return Mixture(indices, density[indices] / density[indices].sum())


def alone(policy: int) -> Mixture:
    return Mixture(np.array([policy]), np.array([1.0]))


@dataclass(frozen=True, eq=False)
class RivalState:
    tallies: tuple[Tally, ...]
    deployed: Mixture
    next_decision: int


@dataclass(frozen=True, eq=False)
class Rival(Method):
    """Attributes:
    choose: (what is deployed, a tally for each part of the episodes) -> what is deployed next.
    wait: (episodes so far) -> how many there are at the next decision.
    parts: to which part episodes belong, in turn and over again.
    first: deployed from the first episode on.
    """

    name: str
    policies: PolicyValueSet
    choose: Callable[..., Mixture]
    wait: Callable[[int], int] = soon
    parts: tuple[int, ...] = (0,)
    first: Mixture = SAFE_MIXTURE

    def start(self) -> RivalState:
        empty = empty_tally(len(self.policies.policies), 1 + len(self.units.budget))
        return RivalState((empty,) * (max(self.parts) + 1), self.first, self.wait(0))

    def mixture(self, state: RivalState) -> Mixture:
        return state.deployed

    def update(self, state: RivalState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = min(len(outcomes), state.next_decision - episode)
        part = np.take(self.parts, np.arange(episode, episode + used) % len(self.parts))
        sums = outcomes.sums[:used]
        tallies = tuple(tally.add(drawn[:used][part == k], sums[part == k]) for k, tally in enumerate(state.tallies))
        return Step(self._decide_if_due(replace(state, tallies=tallies), episode + used), used)

    def abandon(self, state: RivalState, episode: int, drawn: int) -> Step:
        return Step(self._decide_if_due(state, episode + 1), 1)

    def certificate(self, state: RivalState) -> Certificate:
        count = len(self.policies.policies)
        return Certificate(count, count, None)  # nothing is claimed

    def _decide_if_due(self, state: RivalState, episode: int) -> RivalState:
        if episode < state.next_decision:
            return state
        tallies = tuple(tally.close(state.deployed) for tally in state.tallies)
        return RivalState(tallies, self.choose(state.deployed, *tallies), self.wait(episode))


STATES = (RivalState, Tally)

# ------------------------------------------------------------------------------------- what is known before any episode


def cells_of(policies: PolicyValueSet, method: str) -> Cells:
    """The sampled tasks, which a method may need."""
    if policies.cells is None:
        raise InvalidInput(f"policies must hold value bounds over tasks (cells) for {method}, got none")
    return policies.cells


def cell_values(policies: PolicyValueSet, method: str) -> tuple[Floats, Floats]:
    """[J] and [J, P, 1+m] probabilities of sampled tasks, and the reward and costs of every policy on each: the middles
    of the cells' bounds."""
    cells = cells_of(policies, method)
    values = shrink_bounds(cells, 0.0).lower.copy()
    values[..., 1:] = policies.units.budget - values[..., 1:]
    return cells.prior / cells.prior.sum(), values


def expected_values(policies: PolicyValueSet) -> Floats:
    """[P, 1+m] reward and costs of every policy over the tasks; without cells those of the entries on their own."""
    if policies.cells is not None:
        prior, values = cell_values(policies, "")
        expected: Floats = np.einsum("j,jpk->pk", prior, values)
        return expected
    first, budget = policies.entries[0], policies.units.budget
    rows = [(first.safe_reward, first.safe_margin), *((each.reward, each.margin) for each in policies.entries)]
    return np.array([[reward, *(budget - margin)] for reward, margin in rows])


def order_of_costs(policies: PolicyValueSet) -> Integers:
    """[P] the safe policy, then the others from the least to the most cost that is expected, by the largest share of
    its budget's scale."""
    cost = (expected_values(policies)[:, 1:] / policies.units.cost_scale).max(axis=1)
    cost[0] = -np.inf
    return np.argsort(cost, kind="stable")


# How much the sums of episodes vary is guessed as a share of their declared range, which is worth so many episodes.
GUESS, GUESS_COUNT = 0.1, 10


def noise_before(policies: PolicyValueSet) -> Floats:
    """[P, 1+m] variances of the sums of an episode: as simulated in the cells where that is stored, else a guess."""
    units, cells = policies.units, policies.cells
    span = np.ptp(units.reachable, axis=1)
    if cells is None or cells.readings is None:
        return np.tile((GUESS * span) ** 2, (len(policies.policies), 1))
    law, values = cells.readings.law[:, :, : len(span)], cells.readings.values[: len(span)]
    mean = np.einsum("jpkl,kl->jpk", law, values)
    variance = np.einsum("jpkl,kl->jpk", law, values**2) - mean**2
    found: Floats = np.einsum("j,jpk->pk", cells.prior / cells.prior.sum(), variance) * span**2
    least: Floats = np.maximum(found, (1e-3 * span) ** 2)
    return least


def noise_of(tally: Tally, before: Floats) -> Floats:
    """[P, 1+m] the same after episodes: what was known before counts as some of them, and where a policy has none of
    its own, those of all others do."""
    spread = tally.squares - tally.total**2 / np.maximum(tally.count, 1)[:, None]
    spread, count = np.maximum(spread, 0.0), tally.count[:, None]
    pooled = (GUESS_COUNT * before + spread.sum(axis=0)) / (GUESS_COUNT + count.sum())
    found: Floats = (GUESS_COUNT * np.maximum(before, pooled) + spread) / (GUESS_COUNT + count)
    return found

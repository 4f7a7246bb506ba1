"""Gridworlds outside the distribution that a learner was trained for, as they look to it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes, ReadableTask, Values
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.gridworld_tasks import RED_CELLS, gridworld

SHIFTS = (
    "noise 0.30 (no shift)",
    "noise 0.42",
    "noise 0.45",
    "noise 0.50",
    "red cell moved",
    "sticky actions 0.1",
    "sticky actions 0.3",
)


def shifted_task(name: str) -> ReadableTask:
    """One of `SHIFTS`: a task outside the training distribution, as it looks to the learner."""
    base: TabularCMDP = gridworld().task([0.3])
    if name.startswith("noise"):
        task: TabularCMDP = gridworld().task([float(name.split()[1])])
        return task
    if name == "red cell moved":
        # The lowest cell of the left wall moves into the corridor, one step to the right.
        cost = base.cost[0].copy()
        moved = min(RED_CELLS)
        cost[moved + 1], cost[moved] = cost[moved], 0.0
        same = (base.budget, base.start, base.discount, base.units.reward_range, base.units.cost_range)
        return TabularCMDP(base.transitions, base.reward, cost, *same)
    return sticky(base, float(name.split()[-1]))


def sticky(base: TabularCMDP, probability: float) -> PartlySeen:
    """With this probability the previous action is carried out again; the learner sees only where it is.

    The true state is s·(A+1) + previous action, with A for "none yet".
    """
    states, actions = base.n_states, base.n_actions
    kinds = actions + 1
    transitions = np.zeros((states, kinds, actions, states, kinds))
    for previous in range(kinds):
        for action in range(actions):
            carried = base.transitions[:, action]
            if previous < actions:
                carried = (1 - probability) * carried + probability * base.transitions[:, previous]
            transitions[:, previous, action, :, action] = carried
    start = np.zeros((states, kinds))
    start[:, actions] = base.start
    task = TabularCMDP(
        transitions.reshape(states * kinds, actions, states * kinds),
        np.repeat(base.reward, kinds, axis=0),
        np.repeat(base.cost, kinds, axis=1),
        base.budget,
        start.ravel(),
        base.discount,
        base.units.reward_range,
        base.units.cost_range,
    )
    return PartlySeen(task, kinds)


@dataclass(frozen=True)
class PartlySeen:
    """A task of which the learner sees the state s of the true s·kinds + k; its policies do not know k either."""

    task: TabularCMDP
    kinds: int

    @property
    def units(self) -> Units:
        return self.task.units

    @property
    def spaces(self) -> Hashable:
        return ("partly seen", self.task.spaces, self.kinds)

    def digest(self) -> str:
        return self.task.digest()

    def episodes(self, policy: Policy, steps: int) -> PartlySeenEpisodes:
        return PartlySeenEpisodes(self.task.episodes(self._lift_policy(policy), steps), self.kinds)

    def values(self, policy: Policy) -> Values:
        return self.task.values(self._lift_policy(policy))

    def optimum(self) -> float:
        """Of policies that see everything, which is no less than that of those that do not."""
        return self.task.optimum()

    def _lift_policy(self, policy: Policy) -> TabularPolicy:
        if not isinstance(policy, TabularPolicy):
            raise InvalidInput(f"policy must be stationary and tabular here, got one of kind {policy.kind!r}")
        return TabularPolicy(np.repeat(policy.probabilities, self.kinds, axis=0))


@dataclass(frozen=True)
class PartlySeenEpisodes:
    """Episodes of the true task with its states as they are seen."""

    true: Episodes
    kinds: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        outcomes = self.true.run(episodes, rng, transitions)
        return outcomes if outcomes.states is None else replace(outcomes, states=outcomes.states // self.kinds)

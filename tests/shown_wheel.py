"""The wheel of wheel.py with a window: episodes are shown step by step, so that signals can be learned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.settings import LearnedSignals
from surefoot.cmdp.episode import Observed, Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from wheel import CONTROLLERS, QUICK, STEPS, Turns, Wheel


@dataclass(frozen=True)
class ShownWheel(Wheel):
    def episodes(self, policy: Policy, steps: int) -> ShownTurns:
        return ShownTurns(self, policy, min(steps, STEPS))


@dataclass(frozen=True)
class ShownTurns(Turns):
    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Observations [n, H+1, 2] in single precision, as sensors have it, and actions [n, H]."""
        state, reward, cost = np.zeros((episodes, 2)), np.zeros(episodes), np.zeros((episodes, 1))
        seen, acted = [state], []
        for step in range(self.steps):
            action = np.asarray(self.policy.act(state, np.full(episodes, step), rng))
            angle = 0.5 * state[:, 0] + self.task.push * action + 0.2 * rng.normal(size=episodes)
            state = np.column_stack([angle, action])
            reward, cost = reward + action, cost + (np.abs(angle) > 1)[:, None]
            seen, acted = [*seen, state], [*acted, action]
        shown = Observed(np.stack(seen, 1).astype(np.float32), np.stack(acted, 1), np.full(episodes, self.steps))
        return Outcomes(reward, cost, observed=shown if transitions else None)


def shown_wheels() -> TaskDistribution:
    return family(_shown_wheel, Uniform(0.2, 1.2))


def _shown_wheel(parameter: Floats) -> ShownWheel:
    return ShownWheel(float(parameter[0]))


def effects(seen: Any, acted: Any) -> Any:
    """Features of one's own: how far pushes carry, in the precision that it is given."""
    moved = np.diff(seen[:, 0])
    return np.array([moved[acted > 0].sum(), moved[acted == 0].sum(), acted.sum(), (seen[:, 0] ** 2).mean()])


@cache
def shown_set(own: bool = False) -> sf.PolicyValueSet:
    """Takes less than a second; the signals are as good as that allows."""
    safe, *others = (sf.controller(function, name=name) for name, function in CONTROLLERS.items())
    lesson = LearnedSignals(features=effects if own else None, name="effects", tasks=20, episodes=4, windows=2)
    return sf.policy_set(
        shown_wheels(), safe=safe, candidates=others, seed=1, envelopes=QUICK, progress=False, signals=lesson
    )


def turn(order: sf.Order, push: float = 0.25) -> Outcome:
    """One episode of the ordered policy on the real wheel, which depends on nothing but (episode, policy)."""
    name = list(CONTROLLERS)[order.policy_index]
    episodes = ShownWheel(push).episodes(sf.controller(CONTROLLERS[name], name=name), STEPS)
    ran = episodes.run(1, np.random.default_rng([order.episode, order.policy_index]), transitions=True)
    return Outcome(float(ran.reward[0]), ran.cost[0], observed=ran.observed)


def turn_told(order: sf.Order) -> dict[str, Any]:
    """The same as it is told to a deployment: in plain numbers."""
    outcome = turn(order)
    assert outcome.observed is not None
    observations, actions = outcome.observed.observations[0].tolist(), outcome.observed.actions[0].tolist()
    return {
        "reward": outcome.reward, "cost": outcome.cost.tolist(), "observations": observations, "actions": actions
    }  # fmt: skip

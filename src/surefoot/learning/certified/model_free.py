"""Certified without any bounds on values: only the safe policy must be feasible (docs, Theorem 6).

Every policy has its own confidence sequence for its costs. The safe policy and one candidate are mixed at the largest
weight for which the lower bounds say that the mixture is feasible. The training tasks only suggest which candidate to
try; a bad suggestion costs reward, never safety.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.confidence import Betting, State
from surefoot.learning.certified.method import next_decision
from surefoot.learning.certified.selection import best_pair
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, RiskSplit, Step
from surefoot.policyset.policy_value_set import PolicyValueSet

# A candidate is chosen after this many episodes of the safe policy, and again each time this factor more were run.
FIRST_CHOICE, NEXT_CHOICE = 300, 4.0


@dataclass(frozen=True, eq=False)
class ModelFreeState:
    """One confidence-sequence state per policy, what the safe policy returned so far, and the candidate in hand.

    Attributes:
        costs: [P] states of the sequences of scaled costs.
        returns, squares: Σ and Σ of squares of (reward, costs) [1+m] of the safe policy; `episodes` of them.
        margin: [m] lower confidence bound on the margins of `deployed`, as of the last decision.
    """

    costs: tuple[State, ...]
    returns: Floats
    squares: Floats
    episodes: int
    candidate: int | None
    next_choice: int
    deployed: Mixture
    next_decision: int
    margin: Floats


@dataclass(frozen=True, eq=False)
class ModelFree(Method):
    """Attributes:
    risk_split: coverage is the probability that the safe policy is infeasible on the task; the rest goes to value
        bounds, half of it to the safe policy, half shared by the candidates.
    horizon: the most steps of an episode, which may miss what would have followed.
    """

    policies: PolicyValueSet
    risk_split: RiskSplit
    horizon: int
    name: str = "certified-model-free"
    note: str = ""
    certified: bool = True

    def start(self) -> ModelFreeState:
        constraints = len(self.units.budget)
        blank = tuple(self._sequence(index).start((constraints,)) for index in range(len(self.policies.policies)))
        zero = np.zeros(1 + constraints)
        return ModelFreeState(blank, zero, zero, 0, None, FIRST_CHOICE, SAFE_MIXTURE, next_decision(0), zero[1:])

    def mixture(self, state: ModelFreeState) -> Mixture:
        return state.deployed

    def update(self, state: ModelFreeState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = min(len(outcomes), state.next_decision - episode)
        return self._moved(self._update_statistics(state, drawn[:used], outcomes[:used]), episode, used)

    def abandon(self, state: ModelFreeState, episode: int, drawn: int) -> Step:
        """The policy's costs are taken for the largest possible; the choice of candidates learns nothing."""
        costs = list(state.costs)
        costs[drawn] = self._sequence(drawn).update(costs[drawn], np.ones((1, len(self.units.budget))))
        return self._moved(replace(state, costs=tuple(costs)), episode, 1)

    def learn_from_history(self, state: ModelFreeState, outcomes: Outcomes) -> Step:
        """Costs and returns of the safe policy, as if it had been deployed in these episodes (docs, Theorem 13)."""
        state = self._update_statistics(state, np.full(len(outcomes), SAFE), outcomes)
        return replace(self._decide(state, 0), used=len(outcomes))

    def certificate(self, state: ModelFreeState) -> Certificate:
        total = len(self.policies)
        return Certificate(total, total, state.margin)

    def _moved(self, state: ModelFreeState, episode: int, used: int) -> Step:
        """Decide if it is time to."""
        told = episode + used
        return Step(state, used) if told < state.next_decision else replace(self._decide(state, told), used=used)

    def _decide(self, state: ModelFreeState, told: int) -> Step:
        state, events = self._choose_candidate(state, told)
        deployed, margin = self._mixture(state)
        state = replace(state, deployed=deployed, margin=margin, next_decision=next_decision(told))
        return Step(state, 0, events)

    def _update_statistics(self, state: ModelFreeState, drawn: Integers, outcomes: Outcomes) -> ModelFreeState:
        low, high = self._cost_ends
        scaled = np.clip((outcomes.cost - low) / (high - low), 0.0, 1.0)
        costs = list(state.costs)
        for index in np.unique(drawn):
            costs[index] = self._sequence(int(index)).update(costs[index], scaled[drawn == index])
        safe = drawn == SAFE
        seen = np.concatenate([outcomes.reward[safe, None], outcomes.cost[safe]], axis=1)
        return replace(
            state,
            costs=tuple(costs),
            returns=add_in_order(state.returns, seen),
            squares=add_in_order(state.squares, seen**2),
            episodes=state.episodes + int(safe.sum()),
        )

    def _choose_candidate(self, state: ModelFreeState, told: int) -> tuple[ModelFreeState, tuple[Event, ...]]:
        """Take another candidate when the safe policy's returns say so, at a few set times."""
        if state.episodes < state.next_choice:
            return state, ()
        best = self._most_promising(state)
        state = replace(state, next_choice=math.ceil(NEXT_CHOICE * state.next_choice))
        if best == state.candidate:
            return state, ()
        message = f"candidate {best - 1} is tried: it suits what the safe policy returned"
        return replace(state, candidate=best), (Event(told, "candidate", message, {"candidate": best - 1}),)

    def _most_promising(self, state: ModelFreeState) -> int:
        """The candidate of the training task under which the safe policy's mean returns are most likely."""
        mean = state.returns / state.episodes
        square = state.squares / state.episodes
        variance = np.maximum(square - mean**2, 1e-12 * np.maximum(square, 1e-288)) / state.episodes
        entries = self.policies.entries
        predicted = np.array([[entry.safe_reward, *(self.units.budget - entry.safe_margin)] for entry in entries])
        misfit = ((predicted - mean) ** 2 / variance).sum(axis=1)
        return int(np.argmin(misfit)) + 1

    def _mixture(self, state: ModelFreeState) -> tuple[Mixture, Floats]:
        """The pair rule on the lower bounds of the two margins, and the lower bound [m] that results."""
        safe = np.maximum(self._lowest_margin(state, SAFE), 0.0)  # feasible by assumption
        if state.candidate is None:
            return SAFE_MIXTURE, safe
        both = np.stack([safe, self._lowest_margin(state, state.candidate)], axis=1)
        pair = best_pair(both, np.array([0.0, 1.0]))
        margin = both[:, pair.indices] @ pair.weights
        return Mixture(np.where(pair.indices == SAFE, SAFE, state.candidate), pair.weights), margin

    def _lowest_margin(self, state: ModelFreeState, index: int) -> Floats:
        """[m] lower confidence bound on the margins, truncation included."""
        low, high = self._cost_ends
        upper = self._sequence(index).interval(state.costs[index])[1]
        tail = self.units.tail(self.horizon)[1:, 1]
        return self.units.budget - (low + upper * (high - low)) - tail

    def _sequence(self, index: int) -> Betting:
        constraints = len(self.units.budget)
        shared = self.risk_split.values / 2 / constraints
        return Betting(shared if index == SAFE else shared / len(self.policies), side="upper")

    @property
    def _cost_ends(self) -> tuple[Floats, Floats]:
        """[m] smallest and largest discounted cost of an episode, which may stop early."""
        low, high = self.units.reachable[1:].T
        return low, np.where(high > low, high, low + 1.0)

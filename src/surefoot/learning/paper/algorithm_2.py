"""Algorithm 2: mix the most promising candidate into the safe policy step by step, drop it when a test fails.

`VerifyCandidates` is the algorithm; `PaperRules` and `PublishedRules` are its constants. The first carry the paper's
proof with the repairs of docs/guarantees.md; the second are those behind the paper's figure and carry none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, SAFE_ONLY, Account, Deployed, Step
from surefoot.learning.paper.constants import Rules
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


@dataclass(frozen=True, eq=False)
class Phase:
    """State of Algorithm 2: candidates left (best first), how far the first one has come, and the running sums.

    Sums are of reward and cost over the `count` episodes of this phase; `safe_*` over earlier episodes of the safe
    policy, kept only by rules that pool them. Of the `count`, `abandoned` have no outcome and add nothing to the sums.
    """

    alive: tuple[int, ...]
    weight: float
    cost: Floats
    safe_cost: Floats
    step: int = 0
    count: int = 0
    reward: float = 0.0
    safe_count: int = 0
    safe_reward: float = 0.0
    first: bool = True  # still the first candidate
    abandoned: int = 0
    safe_abandoned: int = 0


@dataclass(frozen=True, eq=False)
class VerifyCandidates:
    """Algorithm 2 with the constants of `rules`.

    Attributes:
        risk_split: how the risk is spent, on tasks where the safe policy is infeasible (coverage) and on the tests
            (elimination); empty where nothing is known of the former, which is then an assumption of the theorem.
    """

    policies: PolicyValueSet
    rules: Rules
    risk_split: Mapping[str, float] = field(default_factory=dict)
    needs_transitions: ClassVar[bool] = False
    needs_first_state: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.rules.name

    @property
    def certified(self) -> bool:
        return self.rules.certified

    @property
    def units(self) -> Units:
        return self.policies.units

    def start(self) -> Phase:
        rewards = [entry.reward for entry in self.policies.entries]
        best_first = tuple(int(k) for k in np.argsort(-np.array(rewards), kind="stable"))
        zero = np.zeros(len(self.units.budget))
        return Phase(best_first, self.rules.first_weight(), zero, zero)

    def deployed(self, state: Phase) -> Deployed:
        if not state.alive or state.weight == 0:
            return SAFE_ONLY
        indices = np.array([SAFE, state.alive[0] + 1])
        return Deployed(indices, np.array([1 - state.weight, state.weight]))

    def policy(self, state: Phase, index: int) -> Policy:
        return self.policies.policies[index]

    def absorb(self, state: Phase, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return self._tested(state, episode, _running_sums(state, outcomes))

    def abandon(self, state: Phase, episode: int, drawn: int) -> Step:
        """The episode counts, and its sums may be anything in their ranges.

        A candidate is eliminated when it would be whatever those sums are, and its weight raised when it would be
        whatever they are. With the true sums the paper's test then decides the same, so that on the event of the proof
        the right candidate stays and every raise is one that the proof allows.
        """
        counted = np.array([state.count + 1])
        seen = RunningSums(counted, np.array([state.reward]), state.cost[None])
        return self._tested(replace(state, abandoned=state.abandoned + 1), episode, seen)

    def account(self, state: Phase) -> Account:
        if not state.alive:
            return Account(0, len(self.policies), None)
        entry = self.policies.entries[state.alive[0]]
        margin = np.asarray(theory.mixture_value(entry.margin, entry.safe_margin, state.weight))
        return Account(len(state.alive), len(self.policies), margin)

    def _tested(self, state: Phase, episode: int, seen: RunningSums) -> Step:
        """Go on to the first episode after which the candidate fails or has earned more weight."""
        if not state.alive:
            return Step(state, len(seen.count))
        entry = self.policies.entries[state.alive[0]]
        fails, passes = self._judged(state, entry, seen)
        ripe = passes & (seen.count >= self.rules.phase_length(entry, state.step, state.weight))
        # Without abandoned episodes a raise falls at the first ripe one; a late one is proved for n ≤ K only.
        ripe &= (seen.count <= self.rules.last_count) | (state.abandoned == 0)
        decisions = np.flatnonzero(fails | ripe)
        if not decisions.size:
            return Step(_phase_at(state, seen, -1), len(seen.count))
        last = int(decisions[0])
        reached, told = _phase_at(state, seen, last), episode + last + 1
        if fails[last]:
            return Step(self._drop(reached), last + 1, self._dropped(reached, entry, told))
        raised = self._raise(reached, entry)
        message = f"weight of candidate {state.alive[0]} raised from {state.weight:.4g} to {raised.weight:.4g}"
        data = {"candidate": state.alive[0], "step": raised.step, "weight": raised.weight}
        return Step(raised, last + 1, (Event(told, "weight", message, data),))

    def _judged(self, state: Phase, entry: Entry, seen: RunningSums) -> tuple[np.ndarray, np.ndarray]:
        """[n] after each episode, whether the test (Eq. condition) fails, and whether it passes.

        Neither holds where it depends on what the abandoned episodes would have returned.
        """
        pooled = self.rules.pools_safe_episodes and state.step == 0 and not state.first
        count, reward, cost, missing = seen.count, seen.reward, seen.cost, state.abandoned
        if pooled:
            count, reward, cost = count + state.safe_count, reward + state.safe_reward, cost + state.safe_cost
            missing += state.safe_abandoned
        least, most = _reachable_sums(self.units)
        rewards = (reward + missing * least[0]) / count, (reward + missing * most[0]) / count
        margins = tuple(self.units.budget - (cost + missing * end[1:]) / count[:, None] for end in (most, least))
        reward_gap = _gaps(rewards, theory.mixture_value(entry.reward, entry.safe_reward, state.weight))
        margin_gap = _gaps(margins, theory.mixture_value(entry.margin, entry.safe_margin, state.weight))
        reward_radius, margin_radius = self.rules.reward_radius(count), self.rules.margin_radius(count, pooled)
        off, perhaps_off = (
            (reward_gap[k] > reward_radius) | (margin_gap[k] > margin_radius).any(axis=1) for k in range(2)
        )
        tested = seen.count >= self.rules.least_count
        return off & tested, ~(perhaps_off & tested)

    def _drop(self, state: Phase) -> Phase:
        """The next candidate, from the first weight on."""
        return replace(
            self._new_phase(state), alive=state.alive[1:], step=0, weight=self.rules.first_weight(), first=False
        )

    def _dropped(self, state: Phase, entry: Entry, told: int) -> tuple[Event, ...]:
        message = f"candidate {state.alive[0]} eliminated at weight {state.weight:.4g}, {len(state.alive) - 1} left"
        data = {"candidate": state.alive[0], "parameter": entry.parameter.tolist(), "weight": state.weight}
        events: tuple[Event, ...] = (Event(told, "eliminated", message, data),)
        if len(state.alive) == 1:
            empty = "no candidate is left: the task fits none of the training tasks; staying on the safe policy"
            events += (Event(told, "exhausted", empty),)
        return events

    def _raise(self, state: Phase, entry: Entry) -> Phase:
        weight = self.rules.next_weight(entry, state.step, state.weight)
        return replace(self._new_phase(state), step=state.step + 1, weight=weight)

    def _new_phase(self, state: Phase) -> Phase:
        """Empty sums; what was seen of the safe policy joins the pool if the rules keep one."""
        fresh = replace(state, count=0, reward=0.0, cost=np.zeros_like(state.cost), abandoned=0)
        if not (self.rules.pools_safe_episodes and state.step == 0):
            return fresh
        return replace(
            fresh,
            safe_count=state.safe_count + state.count,
            safe_reward=state.safe_reward + state.reward,
            safe_cost=state.safe_cost + state.cost,
            safe_abandoned=state.safe_abandoned + state.abandoned,
        )


@dataclass(frozen=True, eq=False)
class RunningSums:
    """Sums of the phase after each of n episodes: count [n], reward [n], cost [n, m]."""

    count: Integers
    reward: Floats
    cost: Floats


def _running_sums(state: Phase, outcomes: Outcomes) -> RunningSums:
    """Added up one episode after the other, so that blocks and single episodes round alike."""
    reward = np.cumsum(np.concatenate([[state.reward], outcomes.reward]))[1:]
    cost = np.cumsum(np.concatenate([state.cost[None], outcomes.cost]), axis=0)[1:]
    return RunningSums(state.count + np.arange(1, len(outcomes) + 1), reward, cost)


def _phase_at(state: Phase, seen: RunningSums, index: int) -> Phase:
    return replace(state, count=int(seen.count[index]), reward=float(seen.reward[index]), cost=seen.cost[index])


def _reachable_sums(units: Units) -> tuple[Floats, Floats]:
    """[1+m] smallest and largest discounted reward and costs of an episode, which may stop early."""
    ends = np.column_stack([units.reward_value_range, units.cost_value_range.T])
    return np.minimum(ends[0], 0.0), np.maximum(ends[1], 0.0)


def _gaps(ends: tuple[Floats, ...], predicted: float | Floats) -> tuple[Floats, Floats]:
    """Distances of a prediction from the nearest and from the farthest point of [low, high]."""
    low, high = ends
    below, above = low - predicted, predicted - high
    return np.maximum(np.maximum(below, above), 0.0), np.maximum(high - predicted, predicted - low)

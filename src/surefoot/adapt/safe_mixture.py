"""Algorithm 2: mix the most promising candidate into the safe policy step by step, drop it when a test fails.

`VerifyCandidates` is the algorithm; `PaperRules` and `PublishedRules` are its constants. The first carry the paper's
proof with the repairs of docs/guarantees.md; the second are those behind the paper's figure and carry none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from surefoot import theory
from surefoot.adapt.learner import SAFE, SAFE_ONLY, Account, Deployed, Step
from surefoot.adapt.run_record import Event
from surefoot.cmdp.episode import Integers, Outcomes
from surefoot.cmdp.model import Floats, Units
from surefoot.cmdp.policy import Policy
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


class Rules(Protocol):
    """The constants of Algorithm 2, in the user's units."""

    name: ClassVar[str]
    certified: ClassVar[bool]
    least_count: ClassVar[int]  # episodes of a phase before its first test

    @property
    def last_count(self) -> float:
        """Episodes of a phase up to which its tests are proved."""
        ...

    pools_safe_episodes: ClassVar[bool]  # test later candidates at weight 0 on all safe episodes so far

    def reward_radius(self, count: Integers) -> Floats:
        """[n] allowed distance of the mean reward after `count` [n] episodes from its prediction."""
        ...

    def margin_radius(self, count: Integers, pooled: bool) -> Floats:
        """[n, m] the same for the margins."""
        ...

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        """Episodes after which a candidate that still stands is given more weight; infinite after the last step."""
        ...

    def next_weight(self, entry: Entry, step: int, weight: float) -> float: ...

    def first_weight(self) -> float:
        """Weight of a candidate that has not been tested yet."""
        ...


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
        margin = np.asarray(_mixed(entry.margin, entry.safe_margin, state.weight))
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
        reward_gap = _gaps(rewards, _mixed(entry.reward, entry.safe_reward, state.weight))
        margin_gap = _gaps(margins, _mixed(entry.margin, entry.safe_margin, state.weight))
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


def _mixed(candidate: float | Floats, safe: float | Floats, weight: float) -> float | Floats:
    """u_{l,m} and v_{l,m}, Eq. (computeuv)."""
    return weight * candidate + (1 - weight) * safe


@dataclass(frozen=True, eq=False)
class PaperRules:
    """The paper's constants with errata E1-E4, E13 mended and the true ranges of reward and cost.

    With several constraints the smallest margin rules: each formula is monotone in it, so every constraint is served.
    """

    policies: PolicyValueSet
    episodes: int
    delta: float
    name: ClassVar[str] = "paper"
    certified: ClassVar[bool] = True
    least_count: ClassVar[int] = 1
    pools_safe_episodes: ClassVar[bool] = False

    @property
    def last_count(self) -> float:
        return self.episodes

    @property
    def _discount(self) -> float:
        return self.policies.units.discount

    @cached_property
    def log_term(self) -> float:
        """ln(2(1+m)KΦ/δ), union over all phases that can occur (E4)."""
        phases = sum(self.steps(entry) + 1 for entry in self.policies.entries)
        return theory.log_term(self.episodes, phases, self.delta, 1 + len(self.policies.units.budget))

    def safe_margin(self, entry: Entry) -> float:
        return float(self.policies.units.unit_margin(entry.safe_margin).min())

    def steps(self, entry: Entry) -> int:
        """How often the weight may be raised: none where the precondition on ε fails (E13)."""
        margin = self.safe_margin(entry)
        usable = margin > 0 and self._first_step(entry) > 0 and float(self._unit_margin(entry).min()) >= -self._epsilon
        return theory.weight_steps(margin, self._epsilon, self._discount) if usable else 0

    def reward_radius(self, count: Integers) -> Floats:
        slack = theory.elimination_slack(self._epsilon, self._discount)
        return self.policies.units.reward_scale * (self._deviation(count, 1.0) + slack)

    def margin_radius(self, count: Integers, pooled: bool) -> Floats:
        units = self.policies.units
        slack = theory.elimination_slack(self._epsilon, self._discount)
        return units.cost_scale * (self._deviation(count, 1.0)[:, None] * units.constraint_width + slack)

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        if step >= self.steps(entry):
            return math.inf
        units = self.policies.units
        mixed = units.unit_margin(_mixed(entry.margin, entry.safe_margin, weight))
        lengths = [
            theory.phase_length(float(margin), self.log_term, self._discount, float(width))
            for margin, width in zip(mixed, units.constraint_width, strict=True)
        ]
        return max(lengths)

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        if step == 0:
            return self._first_step(entry)
        # With the true V₋ the first weight may already exceed the limit of the recursion, which would then lower it.
        return max(weight, theory.next_weight(weight, self.safe_margin(entry), self._epsilon, self._discount))

    def first_weight(self) -> float:
        return 0.0

    @property
    def _epsilon(self) -> float:
        return self.policies.epsilon

    def _first_step(self, entry: Entry) -> float:
        worst = float(self.policies.units.worst_value.max())
        return theory.first_weight(self.safe_margin(entry), self._epsilon, self._discount, worst)

    def _unit_margin(self, entry: Entry) -> Floats:
        return self.policies.units.unit_margin(entry.margin)

    def _deviation(self, count: Integers, width: float) -> Floats:
        return theory.deviation(1, self.log_term, self._discount, width) / np.sqrt(count)


@dataclass(frozen=True, eq=False)
class PublishedRules:
    """The constants behind the paper's Figure 2, tuned by its authors to their gridworld. UNCERTIFIED: no proof.

    They are numbers in that task's own units (budget 1.5, costs of 10, reward sums up to 100).
    """

    policies: PolicyValueSet
    name: ClassVar[str] = "published"
    certified: ClassVar[bool] = False
    least_count: ClassVar[int] = 1000
    pools_safe_episodes: ClassVar[bool] = True
    epsilon: ClassVar[float] = 0.01
    last_count: ClassVar[float] = math.inf

    def reward_radius(self, count: Integers) -> Floats:
        return np.sqrt(4000 / count) + 8 * self.epsilon

    def margin_radius(self, count: Integers, pooled: bool) -> Floats:
        return (np.sqrt((150 if pooled else 300) / count) + self.epsilon)[:, None]

    def phase_length(self, entry: Entry, step: int, weight: float) -> float:
        if step > math.log(self.epsilon, 2 / 3):
            return math.inf
        margin = float(np.min(_mixed(entry.margin, entry.safe_margin, weight)))
        # The authors compare k - k₀ - 1, two less than the number of episodes in the phase.
        return float(np.clip(100 / max(margin, 1e-12) ** 2, 1000, 5200)) + 2

    def next_weight(self, entry: Entry, step: int, weight: float) -> float:
        margin = float(entry.safe_margin.min())
        if step == 0:
            gain = max(0.0, margin - 2 * self.epsilon)
            return gain / (gain + 2)
        return min(1.0, 3 * margin * weight / ((2 + weight) * margin + 3 * self.epsilon))

    def first_weight(self) -> float:
        return 0.0

"""Methods that adapt after every batch: run a policy, adapt it to what was seen, run what came out.

What tells one from another is what it keeps of the episodes and how it adapts (`safe_meta`, `network_adaptation`).
Nothing is proved of any of them, and an abandoned episode is as if it had not been run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, Certificate, Method, Mixture, Observes, Step
from surefoot.policyset.policy_value_set import PolicyValueSet


class EpisodeRecord(Protocol):
    """What is kept of the episodes of one policy; immutable."""

    @property
    def count(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Adaptations:
    """State: the safe policy and every policy since, the last of which is run, and its episodes so far."""

    policies: tuple[Policy, ...]
    seen: EpisodeRecord


@dataclass(frozen=True, eq=False)
class BatchAdaptation(Method):
    """Attributes:
    meta: the policy that is adapted first; None for the safe policy.
    batch: episodes of an adaptation.
    empty: a record of no episodes.
    add: (record, outcomes) -> the record with these.
    adapt: (policy, record) -> (the adapted policy, what its event tells).
    """

    name: str
    policies: PolicyValueSet
    meta: Policy | None
    batch: int
    observes: Observes
    note: str
    empty: EpisodeRecord
    add: Callable[[Any, Outcomes], EpisodeRecord]
    adapt: Callable[[Any, Any], tuple[Policy, dict[str, Any]]]

    def start(self) -> Adaptations:
        own = () if self.meta is None else (self.meta,)
        return Adaptations((self.policies.safe_policy, *own), self.empty)

    def mixture(self, state: Adaptations) -> Mixture:
        return Mixture(np.array([len(state.policies) - 1]), np.array([1.0]))

    def policy(self, state: Adaptations, index: int) -> Policy:
        return self.policies.safe_policy if index == SAFE else state.policies[index]

    def update(self, state: Adaptations, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = min(len(outcomes), self.batch - state.seen.count)
        seen = self.add(state.seen, outcomes[:used])
        if seen.count < self.batch:
            return Step(replace(state, seen=seen), used)
        adapted, data = self.adapt(state.policies[-1], seen)
        policies = (*state.policies, adapted)
        event = Event(episode + used, "adapted", f"policy {len(policies) - 1} from {seen.count} episodes", data)
        return Step(Adaptations(policies, self.empty), used, (event,))

    def abandon(self, state: Adaptations, episode: int, drawn: int) -> Step:
        return Step(state, 1)

    def certificate(self, state: Adaptations) -> Certificate:
        return Certificate(0, 0, None)

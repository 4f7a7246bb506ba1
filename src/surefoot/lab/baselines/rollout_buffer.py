"""Methods that adapt a network: collect episodes of the policy that is deployed, adapt it, deploy what came out.

What tells one from another is how it adapts (`cpo_online`, `maml_penalty`, `meta_cpo`, `safe_meta_networks`). States
are plain arrays, and nothing here needs JAX. Nothing is proved of any of these methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, Certificate, Method, Mixture, Observes, Step
from surefoot.policyset.policy_value_set import PolicyValueSet

NetworkPolicy: TypeAlias = MLPPolicy | CategoricalPolicy


@dataclass(frozen=True, eq=False)
class RolloutBuffer:
    """n episodes of one policy, their N steps one after the other.

    Attributes:
        observations: [N+n, o] before every step, and after the last one of each episode.
        actions: [N, k], or [N] where they are choices.
        paid: [N, 1+m] reward and costs of each step, undiscounted.
        steps: [n] of each episode.
        sums: [n, 1+m] reward and costs as the budget counts them.
    """

    observations: Floats
    actions: NDArray[Any]
    paid: Floats
    steps: Integers
    sums: Floats

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def none(cls, policy: NetworkPolicy, units: Units) -> RolloutBuffer:
        outputs, signals = len(policy.biases[-1]), 1 + len(units.budget)
        discrete = isinstance(policy, CategoricalPolicy)
        actions = np.zeros(0, np.int64) if discrete else np.zeros((0, outputs))
        paid = np.zeros((0, signals))
        return cls(np.zeros((0, len(policy.shift))), actions, paid, np.zeros(0, np.int64), np.zeros((0, signals)))

    def add(self, outcomes: Outcomes, observed: Observed, paid: Floats) -> RolloutBuffer:
        """What was told in rows of equal length; what stands behind an episode's end is left out."""
        steps = np.arange(paid.shape[1] + 1)
        seen, here = steps <= observed.steps[:, None], steps[:-1] < observed.steps[:, None]
        parts = {
            "observations": observed.observations[seen],
            "actions": observed.actions[here],
            "paid": paid[here],
            "steps": observed.steps,
            "sums": outcomes.sums,
        }
        return RolloutBuffer(
            **{name: _concatenate_steps(name, getattr(self, name), part) for name, part in parts.items()}
        )


Adapt: TypeAlias = Callable[[NetworkPolicy, RolloutBuffer, np.random.Generator], NetworkPolicy]


@dataclass(frozen=True, eq=False)
class AdaptedNetworks:
    """State: the safe policy and every policy since, the last of which is run, and its episodes so far."""

    policies: tuple[NetworkPolicy, ...]
    told: RolloutBuffer


@dataclass(frozen=True, eq=False)
class NetworkAdaptation(Method):
    """Adapt after every `batch` episodes, from `first` on; an abandoned one is as if it had not been run."""

    name: str
    policies: PolicyValueSet
    first: NetworkPolicy
    batch: int
    adapt: Adapt
    observes: ClassVar[Observes] = "steps"

    @property
    def note(self) -> str:
        own = "the safe policy" if self.first is self.policies.safe_policy else "a meta-policy, not the safe policy,"
        return f"{self.name} adapts {own} after every {self.batch} episodes; nothing is proved of what it deploys"

    def start(self) -> AdaptedNetworks:
        safe = safe_network(self.policies)
        own = () if self.first is safe else (self.first,)
        return AdaptedNetworks((safe, *own), RolloutBuffer.none(safe, self.units))

    def mixture(self, state: AdaptedNetworks) -> Mixture:
        return Mixture(np.array([len(state.policies) - 1]), np.array([1.0]))

    def policy(self, state: AdaptedNetworks, index: int) -> Policy:
        return self.policies.safe_policy if index == SAFE else state.policies[index]

    def update(self, state: AdaptedNetworks, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = min(len(outcomes), self.batch - len(state.told))
        told = state.told.add(outcomes[:used], *_steps_told(self.name, outcomes[:used]))
        if len(told) < self.batch:
            return Step(AdaptedNetworks(state.policies, told), used)
        # One stream of random numbers for each adaptation, so that how episodes were told in blocks does not matter.
        adapted = self.adapt(state.policies[-1], told, np.random.default_rng(episode + used))
        policies = (*state.policies, adapted)
        data = {"reward": float(told.sums[:, 0].mean()), "cost": told.sums[:, 1:].mean(axis=0).tolist()}
        event = Event(episode + used, "adapted", f"policy {len(policies) - 1} from {len(told)} episodes", data)
        return Step(AdaptedNetworks(policies, RolloutBuffer.none(adapted, self.units)), used, (event,))

    def abandon(self, state: AdaptedNetworks, episode: int, drawn: int) -> Step:
        return Step(state, 1)

    def certificate(self, state: AdaptedNetworks) -> Certificate:
        return Certificate(0, 0, None)


def first_network(policies: PolicyValueSet, start: Any) -> NetworkPolicy:
    """The policy to begin with: `start`, or the safe policy."""
    safe = safe_network(policies)
    if start is None:
        return safe
    if type(start) is not type(safe) or (start.shift.shape, start.biases[-1].shape) != (
        safe.shift.shape,
        safe.biases[-1].shape,
    ):
        raise InvalidInput(
            f"start must be a network for the safe policy's observations and actions, {safe.kind} from "
            f"{len(safe.shift)} to {len(safe.biases[-1])}, got {getattr(start, 'kind', type(start).__name__)}"
        )
    network: NetworkPolicy = start
    return network


def safe_network(policies: PolicyValueSet) -> NetworkPolicy:
    safe = policies.safe_policy
    if not isinstance(safe, MLPPolicy | CategoricalPolicy):
        raise InvalidInput(f"policies must be networks (MLPPolicy, CategoricalPolicy) to be adapted, got {safe.kind!r}")
    return safe


# ------------------------------------------------------------------------------------------------- parts, in call order


def _concatenate_steps(name: str, before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    if before.shape[1:] != after.shape[1:]:
        right, got = list(before.shape[1:]), list(after.shape[1:])
        raise InvalidInput(f"{name} must be of shape {right} at every step, got {got}")
    return np.concatenate([before, after.astype(before.dtype)])


def _steps_told(name: str, outcomes: Outcomes) -> tuple[Observed, Floats]:
    """The learner has checked that they are there; a method used without it has not."""
    observed = outcomes.observed
    if observed is None or observed.paid is None:
        raise InvalidInput(f"{name} needs observations, actions and what every step paid (Observed.paid), got none")
    return observed, observed.paid

"""Episodes of a network as it was deployed, for methods that adapt it. Plain arrays: nothing here needs JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet

NetworkPolicy: TypeAlias = MLPPolicy | CategoricalPolicy


@dataclass(frozen=True, eq=False)
class RolloutBuffer:
    """n episodes of one policy, their N steps one after the other.

    Attributes:
        observations: [N+n, o] before every step, and after the last one of each episode.
        actions: [N, k], or [N] where they are choices; as they were drawn, where others were taken.
        paid: [N, 1+m] reward and costs of each step, undiscounted.
        steps: [n] of each episode.
        sums: [n, 1+m] reward and costs as the budget counts them.
    """

    observations: Floats
    actions: NDArray[Any]
    paid: Floats
    steps: Integers
    sums: Floats

    @property
    def count(self) -> int:
        return len(self.steps)

    @classmethod
    def empty(cls, policy: NetworkPolicy, units: Units) -> RolloutBuffer:
        outputs, signals = len(policy.biases[-1]), 1 + len(units.budget)
        discrete = isinstance(policy, CategoricalPolicy)
        actions = np.zeros(0, np.int64) if discrete else np.zeros((0, outputs))
        paid = np.zeros((0, signals))
        return cls(np.zeros((0, len(policy.shift))), actions, paid, np.zeros(0, np.int64), np.zeros((0, signals)))

    def add(self, outcomes: Outcomes) -> RolloutBuffer:
        """What was told in rows of equal length; what stands behind an episode's end is left out."""
        observed = outcomes.observed
        if observed is None or observed.paid is None:
            raise InvalidInput(
                "outcomes must hold observations, actions and what every step paid (Observed.paid), got none"
            )
        steps = np.arange(observed.paid.shape[1] + 1)
        seen, here = steps <= observed.steps[:, None], steps[:-1] < observed.steps[:, None]
        return RolloutBuffer(
            _append("observations", self.observations, observed.observations[seen]),
            _append("actions", self.actions, observed.as_drawn[here]),
            _append("paid", self.paid, observed.paid[here]),
            _append("steps", self.steps, observed.steps),
            _append("sums", self.sums, outcomes.sums),
        )


def _append(name: str, before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
    if before.shape[1:] != after.shape[1:]:
        right, got = list(before.shape[1:]), list(after.shape[1:])
        raise InvalidInput(f"{name} must be of shape {right} at every step, got {got}")
    return np.concatenate([before, after.astype(before.dtype)])


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

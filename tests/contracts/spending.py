"""A task that is no table, of H steps without discount: a dial sets how much is earned, and what that may cost.

Each step pays 1 with probability 0.2 + 0.6·dial and costs 1 with probability hazard·dial, so that everything about it
can be told by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.task import Values
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet

HORIZON, BUDGET = 20, 6.0
UNITS = Units(1.0, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([BUDGET]), HORIZON)
DIALS = (0.0, 0.9, 0.5)  # the safe policy, and the best for the hazards of the two entries
HAZARDS = (0.3, 0.6)
HOUR = 10  # an episode that is cut off here misses half


@dataclass(frozen=True, eq=False)
class Dial:
    """Turned to `share` for a whole episode."""

    share: float
    kind: ClassVar[str] = "dial"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        return np.full(np.shape(observation), self.share)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"share": np.array([self.share])}


@dataclass(frozen=True)
class Tosses:
    earning: float
    hazard: float
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        reward = rng.binomial(self.steps, self.earning, episodes).astype(np.float64)
        return Outcomes(reward, rng.binomial(self.steps, self.hazard, (episodes, 1)).astype(np.float64))


@dataclass(frozen=True)
class Spending:
    """A task that can only be simulated."""

    hazard: float
    units: ClassVar[Units] = UNITS
    spaces: ClassVar[str] = "one dial"

    def digest(self) -> str:
        return sha256(f"spending {self.hazard!r}".encode()).hexdigest()

    def episodes(self, policy: Any, steps: int) -> Tosses:
        if not isinstance(policy, Dial):
            raise InvalidInput(f"policy must be a dial, got {policy.kind!r}")
        return Tosses(0.2 + 0.6 * policy.share, self.hazard * policy.share, min(steps, HORIZON))


class OpenSpending(Spending):
    """The same task, but for what can be read of it."""

    def values(self, policy: Any) -> Values:
        reward, cost = true_values(self.hazard, policy.share)
        return Values(reward, np.array([cost]), np.array([BUDGET - cost]))

    def optimum(self) -> float:
        return true_values(self.hazard, min(1.0, BUDGET / HORIZON / self.hazard))[0]


def true_values(hazard: float, share: float) -> tuple[float, float]:
    """Reward and cost."""
    return HORIZON * (0.2 + 0.6 * share), HORIZON * hazard * share


def spending_set(*, epsilon: float = 1e-5, cells: int = 30) -> PolicyValueSet:
    """One candidate for each of two hazards, and `cells` intervals of hazards with their exact bounds."""
    policies = [Dial(share) for share in DIALS]
    entries = []
    for hazard, policy in zip(HAZARDS, policies[1:], strict=True):
        (reward, cost), (safe_reward, safe_cost) = (true_values(hazard, each.share) for each in (policy, policies[0]))
        margins = np.array([BUDGET - cost]), np.array([BUDGET - safe_cost])
        entries.append(Entry(np.array([hazard]), policy, reward, margins[0], safe_reward, margins[1]))
    bounds = _cells(np.linspace(0.2, 0.8, cells + 1)) if cells else None
    return PolicyValueSet(
        tuple(entries), policies[0], UNITS, epsilon, 0.1, 0.0, "made up", {}, {}, bounds, safe_risk=0.0
    )


def _cells(edges: np.ndarray) -> Cells:
    low, high = edges[:-1], edges[1:]
    worst, best = (
        np.array([[[r, BUDGET - c] for r, c in (true_values(h, share) for share in DIALS)] for h in side])
        for side in (high, low)
    )
    prior = np.full(len(low), 1 / len(low))
    outside = np.empty((0, 1))
    return Cells(low[:, None], high[:, None], prior, worst, best, None, None, "holdout", 0.0, None, outside)

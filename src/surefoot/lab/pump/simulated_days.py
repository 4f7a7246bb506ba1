"""Days with a pump, lanes side by side: what a policy observes, what it may do, and what is paid.

Everything is counted in readings of the sensor, as the international consensus on time in range does (Battelino et al.
2019, Diabetes Care 42:1593-1603): reward is the share of the day's readings within 70-180 mg/dl, cost the share below
70 mg/dl, budget 4 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, check_int, generator
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.pump.days import STEPS

LOW, HIGH = 70.0, 180.0  # mg/dl, both in range
BUDGET = 0.04
MOST_INSULIN = 25.0  # U in a step: the largest bolus that usual pumps give
TREND_STEPS = 3
LANES = 1024  # days side by side: their arrays stay in the cache

SPACES = (
    "1 constraint(s), observations [glucose mg/dl, its change in 15 min, counted carbohydrates g, insulin on board U], "
    "actions [insulin U]"
)
UNITS = Units(1.0, (0.0, 1 / STEPS), np.array([[0.0, 1 / STEPS]]), np.array([BUDGET]), STEPS)


class Lanes(Protocol):
    """n days, side by side.

    Attributes:
        counted: [288, n] carbohydrates about to be eaten, in g as counted.
    """

    counted: Floats

    @property
    def on_board(self) -> Floats:
        """[n] insulin on board, in U as a pump reckons."""

    def reading(self, t: int) -> Floats:
        """[n] what the sensor shows before step t, in mg/dl."""

    def advance(self, insulin: Floats, t: int) -> None:
        """Step t, with U of insulin [n]."""


Wake: TypeAlias = Callable[[int, np.random.Generator], Lanes]  # n fresh days


@dataclass(frozen=True, eq=False)
class SimulatedDays:
    """Days under a policy, which end after `steps` steps."""

    wake: Wake
    policy: Policy
    steps: int
    lanes: int = LANES

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Shares of the readings in and below range; if asked for with observations [n, steps+1, 4] and actions
        [n, steps, 1]."""
        count = check_int("episodes", episodes)
        acting = np.random.default_rng(generator("rng", rng).integers(2**63, size=2))
        sizes = [min(self.lanes, count - done) for done in range(0, count, self.lanes)]
        return Outcomes.joined([self._block(self.wake(size, rng), size, acting, transitions) for size in sizes])

    def _block(self, lanes: Lanes, n: int, acting: np.random.Generator, transitions: bool) -> Outcomes:
        steps = min(self.steps, STEPS)
        seen, given = np.zeros((steps + 1, 4, n)), np.empty((steps if transitions else 1, n))
        readings = seen[:, 0]
        for t in range(steps + 1):
            readings[t] = lanes.reading(t)
            np.subtract(readings[t], readings[max(t - TREND_STEPS, 0)], out=seen[t, 1])
            seen[t, 3] = lanes.on_board
            if t < steps:
                seen[t, 2] = lanes.counted[t]
                insulin = _deliverable(self.policy.act(seen[t].T, t, acting), n, t)
                lanes.advance(insulin, t)
                given[t if transitions else 0] = insulin
        _check_finite(readings)
        return Outcomes(*_reward_and_cost(readings[1:]), observed=_observations(seen, given) if transitions else None)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _deliverable(action: Any, n: int, t: int) -> Floats:
    """[n] U that a pump can give."""
    insulin = np.asarray(action, dtype=np.float64)
    if insulin.shape != (n, 1):
        raise InvalidInput(f"actions must have shape [{n}, 1], got {list(insulin.shape)} at step {t}")
    return np.clip(insulin[:, 0], 0.0, MOST_INSULIN)


def _check_finite(readings: Floats) -> None:
    """What is no number as an action is none as a reading after it."""
    if np.isnan(readings).any():
        t = int(np.argmax(np.isnan(readings).any(axis=1)))
        raise InvalidInput(f"actions must be finite, got one that is no number at step {t - 1}")


def _reward_and_cost(readings: Floats) -> tuple[Floats, Floats]:
    """Reward [n] and cost [n, 1] of readings [steps, n]."""
    below = (readings < LOW).sum(axis=0) / STEPS
    within = ((readings >= LOW) & (readings <= HIGH)).sum(axis=0) / STEPS
    return within, below[:, None]


def _observations(seen: Floats, given: Floats) -> Observed:
    """From [steps+1, 4, n] and [steps, n]."""
    observations = np.ascontiguousarray(np.moveaxis(seen, 2, 0))
    actions: NDArray[Any] = np.ascontiguousarray(given.T)[..., None]
    return Observed(observations, actions, np.full(seen.shape[2], len(given)))

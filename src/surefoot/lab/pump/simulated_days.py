"""Days with a pump, lanes side by side: what a policy observes, what it may do, and what is paid.

Everything is counted in readings of the sensor, as the international consensus on time in range does (Battelino et al.
2019, Diabetes Care 42:1593-1603): reward is the share of the day's readings within 70-180 mg/dl, cost the share below
70 mg/dl, budget 4 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Generators, run_in_lanes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.pump.days import STEPS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

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


D = TypeVar("D", bound="DataclassInstance")  # days: arrays [..., n]


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


@dataclass(frozen=True, eq=False)
class DaySimulator(Generic[D]):
    """Simulates days of one patient.

    Attributes:
        sample: draws n days: meals, errors of the sensor and whatever else is random, arrays [..., n].
        wake: makes the patient's bodies for such days, one in each lane.
        lanes: days simulated side by side at most.
    """

    sample: Callable[[int, np.random.Generator], D]
    wake: Callable[[D], Lanes]
    lanes: int = LANES


@dataclass(frozen=True, eq=False)
class SimulatedDays(Generic[D]):
    """Days under a policy, which end after `steps` steps."""

    simulator: DaySimulator[D]
    policy: Policy
    steps: int

    @property
    def lanes(self) -> int:
        return self.simulator.lanes

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Shares of the readings in and below range; if asked for with observations [n, steps+1, 4] and actions
        [n, steps, 1]."""
        return self.run_beside([], episodes, [rng], transitions)[0]

    def run_beside(
        self,
        others: Sequence[SimulatedDays[D]],
        episodes: int,
        rngs: Sequence[np.random.Generator],
        transitions: bool,
    ) -> list[Outcomes]:
        """Of the same patient."""
        simulator, steps = self.simulator, min(self.steps, STEPS)

        def block(policies: Sequence[Policy], size: int, days: Generators, acting: Generators) -> list[Outcomes]:
            lanes = simulator.wake(_join([simulator.sample(size, rng) for rng in days]))
            outcomes = _run_block(lanes, policies, acting, size, steps, transitions)
            return [outcomes[k * size : (k + 1) * size] for k in range(len(policies))]

        policies = [self.policy, *(other.policy for other in others)]
        return run_in_lanes(policies, episodes, rngs, self.lanes, block)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _join(days: Sequence[D]) -> D:
    """All of them side by side."""
    if len(days) == 1:
        return days[0]
    names = [field.name for field in fields(days[0])]
    return replace(days[0], **{name: np.concatenate([getattr(each, name) for each in days], axis=-1) for name in names})


def _run_block(
    lanes: Lanes,
    policies: Sequence[Policy],
    acting: Sequence[np.random.Generator],
    size: int,
    steps: int,
    transitions: bool,
) -> Outcomes:
    """`size` lanes for each policy, one policy after the other."""
    n = size * len(policies)
    seen, given = np.zeros((steps + 1, 4, n)), np.empty((steps if transitions else 1, n))
    readings = seen[:, 0]
    for t in range(steps + 1):
        readings[t] = lanes.reading(t)
        np.subtract(readings[t], readings[max(t - TREND_STEPS, 0)], out=seen[t, 1])
        seen[t, 3] = lanes.on_board
        if t < steps:
            seen[t, 2] = lanes.counted[t]
            insulin = given[t if transitions else 0]
            for k, (policy, rng) in enumerate(zip(policies, acting, strict=True)):
                own = slice(k * size, (k + 1) * size)
                insulin[own] = _deliverable(policy.act(seen[t, :, own].T, t, rng), size, t)
            lanes.advance(insulin, t)
    _check_finite(readings)
    return Outcomes(*_reward_and_cost(readings[1:]), observed=_observations(seen, given) if transitions else None)


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

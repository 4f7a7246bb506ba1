"""The pumps of a town whose demand and pipes nobody knows: days of 24 hours, energy, and time below a reserve.

Reward is the energy of the pumps in kWh, with a minus; cost is the share of the day in which any tank is below its fire
reserve, 30 % of the height between its lowest and highest level; budget 3 %. The town is EPANET's example Net3 with two
pumps and three tanks (Rossman et al. 2020, EPANET 2.2 User Manual, EPA/600/R-20/133), read from wntr when a day is
simulated: `pip install 'surefoot[water]'`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats, assign, check_int, finite_array, format_digits, generator
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.water import days
from surefoot.lab.water.days import WaterDays, sample_days
from surefoot.lab.water.network import Network, network_digest, open_network
from surefoot.lab.water.settings import LEAST_SPEED, MOST_SPEED
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

HOURS = 24
RESERVE, BUDGET = 0.3, 0.03
MOST_POWER = 660.0  # kW: of both pumps at 1.2, where flow times head is largest on their curves
TANKS = 3

SPACES = "1 constraint(s), observations [3 tanks, 0 lowest to 1 highest, pumps kW], actions [speed of the pumps]"
OPTIONS = {
    "least_demand": "least demand, over that of the network's file",
    "most_demand": "largest demand, over that of the network's file",
    "roughest": "least Hazen-Williams coefficient, over those of the network's file",
    "smoothest": "largest Hazen-Williams coefficient, over those of the network's file",
    "network": "Net3, or Net3-coarse, with thin pipes merged or left out",
}
UNITS = Units(1.0, (-MOST_POWER, 0.0), np.array([[0.0, 1 / HOURS]]), np.array([BUDGET]), HOURS)


def water(
    least_demand: float = 0.7,
    most_demand: float = 0.85,
    roughest: float = 0.87,
    smoothest: float = 1.0,
    network: str = "Net3",
) -> TaskDistribution:
    """Towns that differ in two numbers that nobody knows; the parameter is [demand, smoothness], each uniform.

    Args:
        least_demand, most_demand: of all junctions, over the file's.
        roughest, smoothest: Hazen-Williams coefficients of all pipes, over the file's; those of old pipes are small.
        network: "Net3", or "Net3-coarse", the same with pipes of up to 12 inches merged or left out.
    """
    low, high = (float(least_demand), float(roughest)), (float(most_demand), float(smoothest))
    return TaskDistribution(
        build=_Build(network),
        distribution=Uniform(low, high),
        recipe={
            "family": "water",
            "least_demand": low[0],
            "most_demand": high[0],
            "roughest": low[1],
            "smoothest": high[1],
            "network": network,
        },
    )


@dataclass(frozen=True)
class _Build:
    network: str

    def __call__(self, parameter: Floats) -> WaterTask:
        return WaterTask(parameter, self.network)


@dataclass(frozen=True, eq=False)
class WaterTask:
    """One town. An episode is a day from midnight to midnight, 24 steps.

    What a policy observes before each hour, [4]: the three tanks, 0 at the lowest level allowed and 1 at the highest,
    and the mean power of the pumps in the hour before in kW. Its action [1] is the speed of the pumps in the next
    hour, moved to the nearest within 0.5 and 1.2. Which pumps run is left to the controls of the network's file.

    Attributes:
        parameter: [2] demand, smoothness.
        network: its name.
    """

    parameter: Floats
    network: str = "Net3"

    def __post_init__(self) -> None:
        parameter = finite_array("parameter", self.parameter)
        if parameter.shape != (2,) or not (parameter > 0).all():
            raise InvalidInput(f"parameter must be [demand, smoothness], both positive, got {parameter.tolist()}")
        assign(self, parameter=parameter)

    @property
    def units(self) -> Units:
        return UNITS

    @property
    def spaces(self) -> str:
        return SPACES

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (TANKS + 1,)

    def episodes(self, policy: Policy, steps: int) -> SimulatedDays:
        check_acts(policy)
        return SimulatedDays(self, policy, min(check_int("steps", steps), HOURS))

    def digest(self) -> str:
        """SHA-256 of the town, of its network's file and of every number in the days and in what is paid."""
        told = [
            ["parameter", *format_digits(self.parameter)],
            ["network", network_digest(self.network)],
            *([name, *format_digits(value)] for name, value in days.numbers().items()),
            ["paid", *format_digits([RESERVE, BUDGET, LEAST_SPEED, MOST_SPEED])],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class SimulatedDays:
    """Days of a town under a policy, which end after `steps` hours."""

    task: WaterTask
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Energy, with a minus, and shares of the day below the reserve; if asked for with observations
        [n, steps+1, 4] and actions [n, steps, 1]."""
        count = check_int("episodes", episodes)
        acting = np.random.default_rng(generator("rng", rng).integers(2**63, size=2))
        network = open_network(self.task.network)
        demand, smoothness = self.task.parameter.tolist()
        network.set_roughness(smoothness)
        drawn = sample_days(count, len(network.demand), network.tanks, rng)
        lived = [self._day(network, demand, drawn, k, acting) for k in range(count)]
        seen, acted, paid = (np.stack(column) for column in zip(*lived, strict=True))
        observed = Observed(seen, acted, np.full(count, self.steps)) if transitions else None
        sums = paid.sum(axis=1)
        return Outcomes(-sums[:, 0], sums[:, 1:] / HOURS, observed=observed)

    def _day(
        self, network: Network, demand: float, drawn: WaterDays, number: int, acting: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        """Observations [steps+1, 4], speeds [steps, 1], and energy and time below the reserve [steps, 2]."""
        seen, acted, paid = np.zeros((self.steps + 1, TANKS + 1)), np.empty((self.steps, 1)), np.empty((self.steps, 2))
        network.begin_day(demand * drawn.demand[number] * network.demand, drawn.fill[number])
        seen[0, :TANKS] = drawn.fill[number]
        for t in range(self.steps):
            acted[t] = _clip_speed(self.policy.act(seen[t : t + 1], t, acting), t)
            hour = network.advance(float(acted[t, 0]), RESERVE)
            seen[t + 1, :TANKS], seen[t + 1, TANKS] = hour.fill, hour.energy
            paid[t] = hour.energy, hour.below
        return seen, acted, paid


# ------------------------------------------------------------------------------------------------- parts, in call order


def _clip_speed(action: Any, t: int) -> float:
    speed = np.asarray(action, dtype=np.float64)
    if speed.shape != (1, 1) or not np.isfinite(speed).all():
        raise InvalidInput(f"actions must be finite and have shape [1, 1], got {speed.tolist()} at step {t}")
    return min(max(float(speed[0, 0]), LEAST_SPEED), MOST_SPEED)

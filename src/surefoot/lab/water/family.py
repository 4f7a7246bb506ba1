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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, assign, check_int, finite_array, format_digits, generator
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.simulated_once import keep_arrays, uniform_or_grid
from surefoot.lab.water import days
from surefoot.lab.water.days import WaterDays, sample_days
from surefoot.lab.water.network import Network, network_digest, open_network
from surefoot.lab.water.settings import LEAST_SPEED, MOST_SPEED, PumpSpeed
from surefoot.tasks.task_distribution import TaskDistribution

HOURS = 24
RESERVE, BUDGET = 0.3, 0.03
MOST_POWER = 660.0  # kW: of both pumps at 1.2, where flow times head is largest on their curves
TANKS = 3
SET_SEED = 0  # of the days of a set
SETS = 256  # that a process remembers, one for each town and speed

SPACES = "1 constraint(s), observations [3 tanks, 0 lowest to 1 highest, pumps kW], actions [speed of the pumps]"
OPTIONS = {
    "least_demand": "least demand, over that of the network's file",
    "most_demand": "largest demand, over that of the network's file",
    "roughest": "least Hazen-Williams coefficient, over those of the network's file",
    "smoothest": "largest Hazen-Williams coefficient, over those of the network's file",
    "network": "Net3, or Net3-coarse, with thin pipes merged or left out",
    "grid": "so many demands and coefficients on a grid; 0: any between",
    "day_set": "so many days, of which every episode is one drawn at random; 0: every day is new",
    "keep": "folder in which simulated days of a set are kept",
}
UNITS = Units(1.0, (-MOST_POWER, 0.0), np.array([[0.0, 1 / HOURS]]), np.array([BUDGET]), HOURS)


def water(
    least_demand: float = 0.7,
    most_demand: float = 0.85,
    roughest: float = 0.87,
    smoothest: float = 1.0,
    network: str = "Net3",
    grid: int = 0,
    day_set: int = 0,
    keep: str = "",
) -> TaskDistribution:
    """Towns that differ in two numbers that nobody knows; the parameter is [demand, smoothness], each uniform.

    Args:
        least_demand, most_demand: of all junctions, over the file's.
        roughest, smoothest: Hazen-Williams coefficients of all pipes, over the file's; those of old pipes are small.
        network: "Net3", or "Net3-coarse", the same with pipes of up to 12 inches merged or left out.
        grid: so many demands and as many coefficients, evenly spaced, each pair equally likely. 0 for any between.
        day_set: so many days, the same for all towns, of which every episode is one drawn at random: each is simulated
            once under a `PumpSpeed`. 0 for episodes that are all different.
        keep: folder in which simulated days of a set are kept for other processes and later runs; "" for none.
    """
    low, high = (float(least_demand), float(roughest)), (float(most_demand), float(smoothest))
    return TaskDistribution(
        build=_Build(network, check_int("day_set", day_set, least=0), keep),
        distribution=uniform_or_grid(low, high, grid),
        recipe={
            "family": "water",
            "least_demand": low[0],
            "most_demand": high[0],
            "roughest": low[1],
            "smoothest": high[1],
            "network": network,
            "grid": grid,
            "day_set": day_set,
        },
    )


@dataclass(frozen=True)
class _Build:
    network: str
    day_set: int
    keep: str

    def __call__(self, parameter: Floats) -> WaterTask:
        return WaterTask(parameter, self.network, self.day_set, self.keep)


@dataclass(frozen=True, eq=False)
class WaterTask:
    """One town. An episode is a day from midnight to midnight, 24 steps.

    What a policy observes before each hour, [4]: the three tanks, 0 at the lowest level allowed and 1 at the highest,
    and the mean power of the pumps in the hour before in kW. Its action [1] is the speed of the pumps in the next
    hour, moved to the nearest within 0.5 and 1.2. Which pumps run is left to the controls of the network's file.

    Attributes:
        parameter: [2] demand, smoothness.
        network: its name.
        day_set: days of which every episode is one; 0 for episodes that are all different.
        keep: folder of simulated days.
    """

    parameter: Floats
    network: str = "Net3"
    day_set: int = 0
    keep: str = ""

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

    def draw_days(self, count: int, rng: np.random.Generator) -> WaterDays:
        """Independent ones, whose law is the same in all towns."""
        network = open_network(self.network)
        return sample_days(count, len(network.demand), network.tanks, rng)

    def possible_days(self) -> WaterDays:
        """Those of the set."""
        return self.draw_days(self.day_set, np.random.default_rng(SET_SEED))

    def digest(self) -> str:
        """SHA-256 of the town, of its network's file and of every number in the days and in what is paid."""
        told = [
            ["parameter", *format_digits(self.parameter)],
            ["network", network_digest(self.network)],
            *([["day set", str(self.day_set), str(SET_SEED)]] if self.day_set else []),
            *([name, *format_digits(value)] for name, value in days.numbers().items()),
            ["paid", *format_digits([RESERVE, BUDGET, LEAST_SPEED, MOST_SPEED])],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class LivedDays:
    """n days of a town under a policy, of T hours.

    Attributes:
        seen: [n, T+1, 4] before each hour and after the last.
        acted: [n, T, 1] speeds.
        paid: [n, T, 2] kWh, and the share of the hour below the reserve.
    """

    seen: Floats
    acted: Floats
    paid: Floats

    def take(self, chosen: NDArray[np.int64], steps: int) -> LivedDays:
        """Some of the days, up to an hour."""
        return LivedDays(self.seen[chosen, : steps + 1], self.acted[chosen, :steps], self.paid[chosen, :steps])


@dataclass(frozen=True, eq=False)
class SimulatedDays:
    """Days of a town under a policy, which end after `steps` hours."""

    task: WaterTask
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Energy, with a minus, and shares of the day below the reserve; if asked for with observations
        [n, steps+1, 4] and actions [n, steps, 1]."""
        count, task = check_int("episodes", episodes), self.task
        acting = np.random.default_rng(generator("rng", rng).integers(2**63, size=2))
        if not task.day_set:
            lived = self.live(task.draw_days(count, rng), acting)
        else:
            chosen = rng.integers(task.day_set, size=count)
            if isinstance(self.policy, PumpSpeed):
                told = *task.parameter.tolist(), task.network, task.day_set, task.keep
                lived = _remember_set(*told, self.policy.speed).take(chosen, self.steps)
            else:
                lived = self.live(task.possible_days().take(chosen), acting)
        observed = Observed(lived.seen, lived.acted, np.full(count, self.steps)) if transitions else None
        sums = lived.paid.sum(axis=1)
        return Outcomes(-sums[:, 0], sums[:, 1:] / HOURS, observed=observed)

    def live(self, drawn: WaterDays, acting: np.random.Generator) -> LivedDays:
        network = open_network(self.task.network)
        demand, smoothness = self.task.parameter.tolist()
        network.set_roughness(smoothness)
        each = [self._day(network, demand, drawn, k, acting) for k in range(len(drawn))]
        return LivedDays(*(np.stack(column) for column in zip(*each, strict=True)))

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


@lru_cache(maxsize=SETS)
def _remember_set(demand: float, smoothness: float, network: str, day_set: int, keep: str, speed: float) -> LivedDays:
    """All days of a set under one speed."""
    task = WaterTask(np.array([demand, smoothness]), network, day_set, keep)
    days, unused = SimulatedDays(task, PumpSpeed(speed), HOURS), np.random.default_rng(0)
    return LivedDays(
        **keep_arrays(
            keep,
            lambda: hashlib.sha256(f"{task.digest()} {speed!r}".encode()).hexdigest(),
            lambda: vars(days.live(task.possible_days(), unused)),
        )
    )


def _clip_speed(action: Any, t: int) -> float:
    speed = np.asarray(action, dtype=np.float64)
    if speed.shape != (1, 1) or not np.isfinite(speed).all():
        raise InvalidInput(f"actions must be finite and have shape [1, 1], got {speed.tolist()} at step {t}")
    return min(max(float(speed[0, 0]), LEAST_SPEED), MOST_SPEED)

"""The heating of an office whose plant and leaks nobody knows: working days of 24 hours, energy, and time too cold.

Reward is the energy of heating and fans in kWh, with a minus; cost is the share of the working hours, over all rooms,
in which it is below 20 °C; budget 3 %. The office is DOE's small reference building in Chicago (Deru et al. 2011, NREL
TP-5500-46861), simulated by EnergyPlus: `pip install 'surefoot[buildings]'`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from surefoot.arrays import Floats, assign, check_int, finite_array, format_digits, generator
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.buildings import office
from surefoot.lab.buildings.office import HOURS, OCCUPIED, Winter, building_digest, simulate_winter, winter_digest
from surefoot.lab.buildings.settings import RestartHour
from surefoot.lab.simulated_once import keep_arrays, uniform_or_grid
from surefoot.tasks.task_distribution import TaskDistribution

WORKING_HOURS = OCCUPIED[1] - OCCUPIED[0]
BUDGET = 0.03
MOST_POWER = 72.0  # kW: of coils at all of their capacity, and of fans
JANUARY = 31  # days
FEWEST_DAYS, MOST_DAYS = 8, 90
WINTERS = 1024  # that a process remembers

SPACES = "1 constraint(s), observations [coldest room °C, outdoors °C, kWh], actions [heated to °C]"
OPTIONS = {
    "least_capacity": "least capacity of the plant, over that of the design day",
    "most_capacity": "largest capacity of the plant, over that of the design day",
    "least_infiltration": "least infiltration, over that of the building's file",
    "most_infiltration": "largest infiltration, over that of the building's file",
    "grid": "so many capacities and infiltrations on a grid; 0: any between",
    "winter_days": "days that are simulated, from 1 January on",
    "keep": "folder in which simulated winters are kept",
}
UNITS = Units(
    1.0,
    (-MOST_POWER, 0.0),
    np.array([[0.0, 1 / WORKING_HOURS]]),
    np.array([BUDGET]),
    HOURS,
    cost_sum_range=np.array([[0.0, 1.0]]),
)


def buildings(
    least_capacity: float = 0.4,
    most_capacity: float = 0.7,
    least_infiltration: float = 1.0,
    most_infiltration: float = 2.5,
    grid: int = 0,
    winter_days: int = JANUARY,
    keep: str = "",
) -> TaskDistribution:
    """Offices that differ in two numbers that nobody knows; the parameter is [capacity, infiltration], each uniform.

    Args:
        least_capacity, most_capacity: of the heating coils, over what the design day asks for.
        least_infiltration, most_infiltration: of outdoor air through the walls, over the file's.
        grid: so many capacities and as many infiltrations, evenly spaced, each pair equally likely: a finite number of
            buildings, each of which is simulated once. 0 for any between.
        winter_days: that are simulated, from 1 January on; an episode is drawn from the working days among them.
        keep: folder in which simulated winters are kept for other processes and later runs; "" for none.
    """
    low, high = (float(least_capacity), float(least_infiltration)), (float(most_capacity), float(most_infiltration))
    return TaskDistribution(
        build=_Build(winter_days, keep),
        distribution=uniform_or_grid(low, high, grid),
        recipe={
            "family": "buildings",
            "least_capacity": low[0],
            "most_capacity": high[0],
            "least_infiltration": low[1],
            "most_infiltration": high[1],
            "grid": grid,
            "winter_days": winter_days,
        },
    )


@dataclass(frozen=True)
class _Build:
    winter_days: int
    keep: str

    def __call__(self, parameter: Floats) -> BuildingTask:
        return BuildingTask(parameter, self.winter_days, self.keep)


@dataclass(frozen=True, eq=False)
class BuildingTask:
    """One building. An episode is a working day from midnight to midnight, 24 steps.

    It is drawn from the working days of one simulated winter, in which heating restarts at the same hour every day:
    rooms remember the day before, and drawn days are independent all the same. Policies are therefore restart hours.

    What is observed before each hour, [3]: the coldest room and outdoors in °C, and the energy of the hour before in
    kWh. The action [1] is the temperature that rooms are heated to in the next hour.

    Attributes:
        parameter: [2] capacity, infiltration.
        winter_days: that are simulated.
        keep: folder of simulated winters.
    """

    parameter: Floats
    winter_days: int = JANUARY
    keep: str = ""

    def __post_init__(self) -> None:
        parameter = finite_array("parameter", self.parameter)
        if parameter.shape != (2,) or not (parameter > 0).all() or parameter[0] > 1:
            raise InvalidInput(
                "parameter must be [capacity, infiltration], both positive and the first at most 1, got "
                f"{parameter.tolist()}"
            )
        if not FEWEST_DAYS <= check_int("winter_days", self.winter_days) <= MOST_DAYS:
            raise InvalidInput(f"winter_days must lie within {FEWEST_DAYS} and {MOST_DAYS}, got {self.winter_days}")
        assign(self, parameter=parameter)

    @property
    def units(self) -> Units:
        return UNITS

    @property
    def spaces(self) -> str:
        return SPACES

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (3,)

    def episodes(self, policy: Policy, steps: int) -> DrawnDays:
        if not isinstance(policy, RestartHour):
            raise InvalidInput(
                f"policy must be a RestartHour: a whole winter is simulated at once, got {type(policy).__name__}"
            )
        return DrawnDays(self, policy, min(check_int("steps", steps), HOURS))

    def winter(self, hour: int) -> Winter:
        """Simulated once."""
        return _remember_winter(*self.parameter.tolist(), hour, self.winter_days, self.keep)

    def digest(self) -> str:
        """SHA-256 of the building, of the files that it is made of and of every number in what is paid."""
        told = [
            ["parameter", *format_digits(self.parameter)],
            ["winter", str(self.winter_days)],
            ["files", building_digest()],
            *([name, *format_digits(value)] for name, value in office.numbers().items()),
            ["paid", *format_digits([BUDGET, MOST_POWER])],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class DrawnDays:
    """Working days of a building at one restart hour, which end after `steps` hours."""

    task: BuildingTask
    policy: RestartHour
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Energy, with a minus, and shares of the working hours that are too cold; if asked for with observations
        [n, steps+1, 3] and actions [n, steps, 1]."""
        count, winter = check_int("episodes", episodes), self.task.winter(self.policy.hour)
        days = generator("rng", rng).integers(len(winter.energy), size=count)
        energy, cold = (each[days, : self.steps].sum(axis=1) for each in (winter.energy, winter.cold))
        observed = None
        if transitions:
            acted = self.policy.likeliest(np.zeros((count, self.steps, 3)), np.arange(self.steps))
            observed = Observed(winter.seen[days, : self.steps + 1], acted, np.full(count, self.steps))
        return Outcomes(-energy, cold[:, None] / WORKING_HOURS, observed=observed)


# ------------------------------------------------------------------------------------------------- parts, in call order


@lru_cache(maxsize=WINTERS)
def _remember_winter(capacity: float, infiltration: float, hour: int, days: int, keep: str) -> Winter:
    told = capacity, infiltration, hour, days
    return Winter(**keep_arrays(keep, partial(winter_digest, *told), lambda: vars(simulate_winter(*told))))

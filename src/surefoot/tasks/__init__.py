"""Families of tasks: distributions over constrained Markov decision processes."""

from typing import TYPE_CHECKING

from surefoot.on_demand import lazy_attributes
from surefoot.tasks.cvar_tasks import Tail, TailEnv, cost_distribution, cvar, cvar_threshold
from surefoot.tasks.distribution import Finite, Independent, LogUniform, Normal, Uniform
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.gym_options import cost_in_info
from surefoot.tasks.gym_tasks import from_gym
from surefoot.tasks.gymnasium_table_tasks import from_gymnasium_table
from surefoot.tasks.layered_tasks import layered
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

if TYPE_CHECKING:
    from surefoot.lab.buildings.family import buildings
    from surefoot.lab.buildings.settings import RestartHour
    from surefoot.lab.families.dope_benchmarks import factored, inventory, media
    from surefoot.lab.families.hard_instance import HardInstances
    from surefoot.lab.families.maintenance import maintenance
    from surefoot.lab.families.two_walls import two_walls
    from surefoot.lab.families.windy import windy_gridworld
    from surefoot.lab.pump.family import glucose
    from surefoot.lab.pump.settings import InsulinSettings
    from surefoot.lab.robots.families import (
        half_cheetah_dynamics,
        half_cheetah_motors,
        half_cheetah_payload,
        half_cheetah_speed_limit,
        half_cheetah_velocity,
        hopper_motors,
        hopper_speed_limit,
        hopper_velocity,
    )
    from surefoot.lab.robots.task import world_of
    from surefoot.lab.simglucose.family import simglucose
    from surefoot.lab.water.family import water
    from surefoot.lab.water.settings import PumpSpeed
else:  # families of the laboratory, imported when they are first used
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "surefoot.lab.buildings.family": "buildings",
            "surefoot.lab.buildings.settings": "RestartHour",
            "surefoot.lab.families.dope_benchmarks": "factored inventory media",
            "surefoot.lab.families.hard_instance": "HardInstances",
            "surefoot.lab.families.maintenance": "maintenance",
            "surefoot.lab.families.two_walls": "two_walls",
            "surefoot.lab.families.windy": "windy_gridworld",
            "surefoot.lab.pump.family": "glucose",
            "surefoot.lab.pump.settings": "InsulinSettings",
            "surefoot.lab.robots.families": "half_cheetah_dynamics half_cheetah_motors half_cheetah_payload "
            "half_cheetah_speed_limit half_cheetah_velocity hopper_motors hopper_speed_limit hopper_velocity",
            "surefoot.lab.robots.task": "world_of",
            "surefoot.lab.simglucose.family": "simglucose",
            "surefoot.lab.water.family": "water",
            "surefoot.lab.water.settings": "PumpSpeed",
        },
    )

__all__ = [
    "Finite",
    "HardInstances",
    "Independent",
    "InsulinSettings",
    "LogUniform",
    "Normal",
    "PumpSpeed",
    "RestartHour",
    "Tail",
    "TailEnv",
    "TaskDistribution",
    "Uniform",
    "buildings",
    "cost_distribution",
    "cost_in_info",
    "cvar",
    "cvar_threshold",
    "factored",
    "family",
    "from_arrays",
    "from_gym",
    "from_gymnasium_table",
    "glucose",
    "gridworld",
    "half_cheetah_dynamics",
    "half_cheetah_motors",
    "half_cheetah_payload",
    "half_cheetah_speed_limit",
    "half_cheetah_velocity",
    "hopper_motors",
    "hopper_speed_limit",
    "hopper_velocity",
    "inventory",
    "layered",
    "maintenance",
    "media",
    "simglucose",
    "two_walls",
    "water",
    "windy_gridworld",
    "world_of",
]

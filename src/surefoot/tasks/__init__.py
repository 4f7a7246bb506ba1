"""Families of tasks: distributions over constrained Markov decision processes."""

from surefoot.tasks.cvar_env import TailEnv
from surefoot.tasks.cvar_tasks import Tail, cost_distribution, cvar, cvar_threshold
from surefoot.tasks.distribution import Finite, Independent, LogUniform, Normal, Uniform
from surefoot.tasks.factored_tasks import factored
from surefoot.tasks.glucose_tasks import glucose
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.gym_system import cost_in_info
from surefoot.tasks.gym_tasks import from_gym
from surefoot.tasks.gymnasium_table_tasks import from_gymnasium_table
from surefoot.tasks.hard_instance_tasks import HardInstances
from surefoot.tasks.insulin_settings import InsulinSettings
from surefoot.tasks.inventory_tasks import inventory
from surefoot.tasks.layered_tasks import layered
from surefoot.tasks.locomotion_tasks import world_of
from surefoot.tasks.maintenance_tasks import maintenance
from surefoot.tasks.media_tasks import media
from surefoot.tasks.motor_tasks import half_cheetah_motors, hopper_motors
from surefoot.tasks.speed_limit_tasks import half_cheetah_speed_limit, hopper_speed_limit
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays
from surefoot.tasks.two_walls_tasks import two_walls
from surefoot.tasks.velocity_tasks import half_cheetah_velocity, hopper_velocity
from surefoot.tasks.windy_tasks import windy_gridworld

__all__ = [
    "Finite",
    "HardInstances",
    "Independent",
    "InsulinSettings",
    "LogUniform",
    "Normal",
    "Tail",
    "TailEnv",
    "TaskDistribution",
    "Uniform",
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
    "half_cheetah_motors",
    "half_cheetah_speed_limit",
    "half_cheetah_velocity",
    "hopper_motors",
    "hopper_speed_limit",
    "hopper_velocity",
    "inventory",
    "layered",
    "maintenance",
    "media",
    "two_walls",
    "windy_gridworld",
    "world_of",
]

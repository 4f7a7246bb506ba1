"""Families of tasks: distributions over constrained Markov decision processes."""

from surefoot.tasks.distribution import Finite, Independent, Normal, Uniform
from surefoot.tasks.factored import factored
from surefoot.tasks.family import TaskDistribution, family, from_arrays
from surefoot.tasks.gridworld import gridworld
from surefoot.tasks.inventory import inventory
from surefoot.tasks.layered import layered
from surefoot.tasks.maintenance import maintenance
from surefoot.tasks.media import media
from surefoot.tasks.two_walls import two_walls
from surefoot.tasks.windy import windy_gridworld

__all__ = [
    "Finite",
    "Independent",
    "Normal",
    "TaskDistribution",
    "Uniform",
    "factored",
    "family",
    "from_arrays",
    "gridworld",
    "inventory",
    "layered",
    "maintenance",
    "media",
    "two_walls",
    "windy_gridworld",
]

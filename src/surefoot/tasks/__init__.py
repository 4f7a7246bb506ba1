"""Families of tasks: distributions over constrained Markov decision processes."""

from surefoot.tasks.distribution import Finite, Independent, Normal, Uniform
from surefoot.tasks.family import TaskDistribution, family, from_arrays
from surefoot.tasks.gridworld import gridworld
from surefoot.tasks.maintenance import maintenance
from surefoot.tasks.windy import windy_gridworld

__all__ = [
    "Finite",
    "Independent",
    "Normal",
    "TaskDistribution",
    "Uniform",
    "family",
    "from_arrays",
    "gridworld",
    "maintenance",
    "windy_gridworld",
]

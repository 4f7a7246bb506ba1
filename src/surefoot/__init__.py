"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from surefoot import tasks
from surefoot.cmdp.distance import distance
from surefoot.cmdp.evaluate import Values, evaluate, evaluate_many, occupancy
from surefoot.cmdp.model import TabularCMDP, Units
from surefoot.cmdp.policy import EpisodeMixture, TabularPolicy
from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError

__version__ = "0.1.0"

__all__ = [
    "ArtifactError",
    "EpisodeMixture",
    "Infeasible",
    "InvalidInput",
    "SurefootError",
    "TabularCMDP",
    "TabularPolicy",
    "Units",
    "Values",
    "distance",
    "evaluate",
    "evaluate_many",
    "occupancy",
    "tasks",
]

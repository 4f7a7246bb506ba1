"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from surefoot import tasks
from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.cmdp.units import Units
from surefoot.cmdp.values import Values
from surefoot.deploy.session import Deployment
from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError
from surefoot.learning.event import Event
from surefoot.learning.learner import Learner, Order

# These two functions share their name with the packages behind them; `from surefoot.adapt.… import …` still works.
from surefoot.methods import METHODS, adapt, learner
from surefoot.oracles.interface import Oracles
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.plan import plan
from surefoot.simulate.run import Run
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate, evaluate_many, occupancy
from surefoot.tabular.lagrangian import Solution
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.solve import solve, solve_many
from surefoot.training.greedy_cover import greedy_cover
from surefoot.training.preflight import preflight
from surefoot.training.settings import Envelopes
from surefoot.training.training_phase import train

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "ArtifactError",
    "Deployment",
    "Entry",
    "Envelopes",
    "EpisodeMixture",
    "Event",
    "Infeasible",
    "InvalidInput",
    "Learner",
    "Oracles",
    "Order",
    "Outcome",
    "Outcomes",
    "PolicyValueSet",
    "Run",
    "Simulator",
    "Solution",
    "SurefootError",
    "TabularCMDP",
    "TabularPolicy",
    "TimedPolicy",
    "Units",
    "Values",
    "adapt",
    "distance",
    "evaluate",
    "evaluate_many",
    "greedy_cover",
    "learner",
    "occupancy",
    "plan",
    "preflight",
    "solve",
    "solve_many",
    "tasks",
    "train",
]

"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from surefoot import tasks
from surefoot.adapt.learner import Learner, Order
from surefoot.adapt.plan import plan
from surefoot.adapt.run_record import Event, Run
from surefoot.cmdp.distance import distance
from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.evaluate import Values, evaluate, evaluate_many, occupancy
from surefoot.cmdp.lagrangian import Solution
from surefoot.cmdp.model import TabularCMDP, Units
from surefoot.cmdp.policy import EpisodeMixture, TabularPolicy, TimedPolicy
from surefoot.cmdp.rollout import Simulator
from surefoot.cmdp.solve import solve, solve_many
from surefoot.deploy.session import Deployment
from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError

# These two functions share their name with the packages behind them; `from surefoot.adapt.… import …` still works.
from surefoot.methods import METHODS, adapt, learner
from surefoot.oracles.interface import Oracles
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.train.envelopes import Envelopes
from surefoot.train.greedy_cover import greedy_cover
from surefoot.train.preflight import preflight
from surefoot.train.training_phase import train

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

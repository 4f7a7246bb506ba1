"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from typing import TYPE_CHECKING

from surefoot.on_demand import taken_from

if TYPE_CHECKING:
    from surefoot import tasks
    from surefoot.cmdp.episode import Outcome, Outcomes
    from surefoot.cmdp.policy import EpisodeMixture, Predictor
    from surefoot.cmdp.task import ReadableTask, Task
    from surefoot.cmdp.units import Units
    from surefoot.cmdp.values import Values
    from surefoot.deploy.session import Deployment
    from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError
    from surefoot.learning.event import Event
    from surefoot.learning.learner import Learner, Order
    from surefoot.learning.spec import MethodSpec
    from surefoot.methods import METHODS, adapt, learner, plan
    from surefoot.oracles.interface import Oracles
    from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
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
else:  # each is imported from its module when it is first used
    __getattr__, __dir__ = taken_from(
        __name__,
        {
            "METHODS": "methods",
            "ArtifactError": "errors",
            "Deployment": "deploy.session",
            "Entry": "policyset.policy_value_set",
            "Envelopes": "training.settings",
            "EpisodeMixture": "cmdp.policy",
            "Event": "learning.event",
            "Infeasible": "errors",
            "InvalidInput": "errors",
            "Learner": "learning.learner",
            "MethodSpec": "learning.spec",
            "Oracles": "oracles.interface",
            "Order": "learning.learner",
            "Outcome": "cmdp.episode",
            "Outcomes": "cmdp.episode",
            "PolicyValueSet": "policyset.policy_value_set",
            "Predictor": "cmdp.policy",
            "ReadableTask": "cmdp.task",
            "Run": "simulate.run",
            "Simulator": "tabular.rollout",
            "Solution": "tabular.lagrangian",
            "SurefootError": "errors",
            "TabularCMDP": "tabular.model",
            "TabularPolicy": "tabular.policy",
            "Task": "cmdp.task",
            "TimedPolicy": "tabular.policy",
            "Units": "cmdp.units",
            "Values": "cmdp.values",
            "adapt": "methods",
            "distance": "tabular.distance",
            "evaluate": "tabular.evaluate",
            "evaluate_many": "tabular.evaluate",
            "greedy_cover": "training.greedy_cover",
            "learner": "methods",
            "occupancy": "tabular.evaluate",
            "plan": "methods",
            "preflight": "training.preflight",
            "solve": "tabular.solve",
            "solve_many": "tabular.solve",
            "train": "training.training_phase",
        },
    )

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
    "MethodSpec",
    "Oracles",
    "Order",
    "Outcome",
    "Outcomes",
    "PolicyValueSet",
    "Predictor",
    "ReadableTask",
    "Run",
    "Simulator",
    "Solution",
    "SurefootError",
    "TabularCMDP",
    "TabularPolicy",
    "Task",
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

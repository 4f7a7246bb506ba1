"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from typing import TYPE_CHECKING

from surefoot.on_demand import lazy_attributes

if TYPE_CHECKING:
    from surefoot import tasks
    from surefoot.bounds.settings import Envelopes, LearnedSignals
    from surefoot.calibration import calibrate, recount
    from surefoot.cmdp.controllers import Controller, controller
    from surefoot.cmdp.episode import Outcome, Outcomes
    from surefoot.cmdp.policy import EpisodeMixture, Predictor
    from surefoot.cmdp.task import ReadableTask, Task, Values
    from surefoot.cmdp.units import Units
    from surefoot.deploy.session import Deployment
    from surefoot.errors import ArtifactError, Infeasible, InvalidInput, SurefootError
    from surefoot.learning.calibrated import Calibration
    from surefoot.learning.event import Event
    from surefoot.learning.learner import Learner, Order
    from surefoot.learning.shift_test import ShiftTest
    from surefoot.learning.spec import MethodSpec
    from surefoot.methods import CONTROL_METHODS, METHODS, adapt, learner, plan
    from surefoot.oracles.interface import Oracles
    from surefoot.policyset.certifiable import advice
    from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
    from surefoot.simulate.run import Run
    from surefoot.tabular.distance import distance
    from surefoot.tabular.evaluate import evaluate, occupancy
    from surefoot.tabular.lagrangian import Solution
    from surefoot.tabular.model import TabularCMDP
    from surefoot.tabular.policy import TabularPolicy, TimedPolicy
    from surefoot.tabular.rollout import Simulator
    from surefoot.tabular.solve import solve, solve_many
    from surefoot.tasks.gym_check import check_env
    from surefoot.training.cover import greedy_cover
    from surefoot.training.policy_set import policy_set
    from surefoot.training.preflight import preflight
    from surefoot.training.train import train
else:  # each is imported from its module when it is first used
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "calibration": "calibrate recount",
            "cmdp.controllers": "Controller controller",
            "cmdp.episode": "Outcome Outcomes",
            "cmdp.policy": "EpisodeMixture Predictor",
            "cmdp.task": "ReadableTask Task Values",
            "cmdp.units": "Units",
            "deploy.session": "Deployment",
            "errors": "ArtifactError Infeasible InvalidInput SurefootError",
            "learning.certified.calibrated": "Calibration",
            "learning.event": "Event",
            "learning.learner": "Learner Order",
            "learning.shift_test": "ShiftTest",
            "learning.spec": "MethodSpec",
            "methods": "CONTROL_METHODS METHODS adapt learner plan",
            "oracles.interface": "Oracles",
            "policyset.certifiable": "advice",
            "policyset.policy_value_set": "Entry PolicyValueSet",
            "simulate.run": "Run",
            "tabular.distance": "distance",
            "tabular.evaluate": "evaluate occupancy",
            "tabular.lagrangian": "Solution",
            "tabular.model": "TabularCMDP",
            "tabular.policy": "TabularPolicy TimedPolicy",
            "tabular.rollout": "Simulator",
            "tabular.solve": "solve solve_many",
            "tasks.gym_check": "check_env",
            "training.cover": "greedy_cover",
            "training.policy_set": "policy_set",
            "training.preflight": "preflight",
            "bounds.settings": "Envelopes LearnedSignals",
            "training.train": "train",
        },
    )

__version__ = "0.2.0"

__all__ = [
    "CONTROL_METHODS",
    "METHODS",
    "ArtifactError",
    "Calibration",
    "Controller",
    "Deployment",
    "Entry",
    "Envelopes",
    "EpisodeMixture",
    "Event",
    "Infeasible",
    "InvalidInput",
    "LearnedSignals",
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
    "ShiftTest",
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
    "advice",
    "calibrate",
    "check_env",
    "controller",
    "distance",
    "evaluate",
    "greedy_cover",
    "learner",
    "occupancy",
    "plan",
    "policy_set",
    "preflight",
    "recount",
    "solve",
    "solve_many",
    "tasks",
    "train",
]

"""Surefoot: constrained meta reinforcement learning with provable test-time safety."""

from typing import TYPE_CHECKING

from surefoot.on_demand import lazy_attributes

# The public names by module, each imported when it is first used. Type checkers read the block below: an alias to the
# same name is what they take for public.
_NAMES = {
    "bounds.settings": "Envelopes LearnedSignals",
    "calibration": "calibrate choose_path recount",
    "certificate": "PolicyCertificate certify",
    "cmdp.controllers": "Controller controller",
    "cmdp.episode": "Outcome Outcomes",
    "cmdp.policy": "EpisodeMixture Predictor",
    "cmdp.task": "ReadableTask Task Values",
    "cmdp.units": "Units",
    "deploy.session": "Deployment",
    "errors": "ArtifactError Infeasible InvalidInput SurefootError",
    "learning.calibrated": "Calibration",
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
    "training.train": "train",
}

if TYPE_CHECKING:
    from surefoot import tasks as tasks
    from surefoot.bounds.settings import Envelopes as Envelopes
    from surefoot.bounds.settings import LearnedSignals as LearnedSignals
    from surefoot.calibration import calibrate as calibrate
    from surefoot.calibration import choose_path as choose_path
    from surefoot.calibration import recount as recount
    from surefoot.certificate import PolicyCertificate as PolicyCertificate
    from surefoot.certificate import certify as certify
    from surefoot.cmdp.controllers import Controller as Controller
    from surefoot.cmdp.controllers import controller as controller
    from surefoot.cmdp.episode import Outcome as Outcome
    from surefoot.cmdp.episode import Outcomes as Outcomes
    from surefoot.cmdp.policy import EpisodeMixture as EpisodeMixture
    from surefoot.cmdp.policy import Predictor as Predictor
    from surefoot.cmdp.task import ReadableTask as ReadableTask
    from surefoot.cmdp.task import Task as Task
    from surefoot.cmdp.task import Values as Values
    from surefoot.cmdp.units import Units as Units
    from surefoot.deploy.session import Deployment as Deployment
    from surefoot.errors import ArtifactError as ArtifactError
    from surefoot.errors import Infeasible as Infeasible
    from surefoot.errors import InvalidInput as InvalidInput
    from surefoot.errors import SurefootError as SurefootError
    from surefoot.learning.calibrated import Calibration as Calibration
    from surefoot.learning.event import Event as Event
    from surefoot.learning.learner import Learner as Learner
    from surefoot.learning.learner import Order as Order
    from surefoot.learning.shift_test import ShiftTest as ShiftTest
    from surefoot.learning.spec import MethodSpec as MethodSpec
    from surefoot.methods import CONTROL_METHODS as CONTROL_METHODS
    from surefoot.methods import METHODS as METHODS
    from surefoot.methods import adapt as adapt
    from surefoot.methods import learner as learner
    from surefoot.methods import plan as plan
    from surefoot.oracles.interface import Oracles as Oracles
    from surefoot.policyset.certifiable import advice as advice
    from surefoot.policyset.policy_value_set import Entry as Entry
    from surefoot.policyset.policy_value_set import PolicyValueSet as PolicyValueSet
    from surefoot.simulate.run import Run as Run
    from surefoot.tabular.distance import distance as distance
    from surefoot.tabular.evaluate import evaluate as evaluate
    from surefoot.tabular.evaluate import occupancy as occupancy
    from surefoot.tabular.lagrangian import Solution as Solution
    from surefoot.tabular.model import TabularCMDP as TabularCMDP
    from surefoot.tabular.policy import TabularPolicy as TabularPolicy
    from surefoot.tabular.policy import TimedPolicy as TimedPolicy
    from surefoot.tabular.rollout import Simulator as Simulator
    from surefoot.tabular.solve import solve as solve
    from surefoot.tabular.solve import solve_many as solve_many
    from surefoot.tasks.gym_check import check_env as check_env
    from surefoot.training.cover import greedy_cover as greedy_cover
    from surefoot.training.policy_set import policy_set as policy_set
    from surefoot.training.preflight import preflight as preflight
    from surefoot.training.train import train as train
else:
    __getattr__, __dir__ = lazy_attributes(__name__, _NAMES)
    __all__ = sorted(["tasks", *" ".join(_NAMES.values()).split()])

__version__ = "0.2.0"

"""Adapting without a certificate: the paper's Algorithm 4 (policy collection-elimination) with radii for days.

UNCERTIFIED. `pce` has the constants of the paper's gridworld, in its units, and asks for a cover of the tasks; here
each of the given settings stands for the patient that it suits best, and is deployed outright until days are seen that
do not look like that patient's.
"""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.learning.paper.algorithm_2 import Algorithm2State, SafeCandidates, Sums
from surefoot.learning.paper.published import TunedRules
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

# How much time in and below range varies from day to day, as shares of a day, and by how much the mean of a patient
# whom the settings suit may miss that of the one whom they stand for.
REWARD_SPREAD, COST_SPREAD = 0.15, 0.05
REWARD_SLACK, COST_SLACK = 0.10, 0.02
STANDARD_ERRORS = 3.0


def _reward_radius(count: Integers) -> Floats:
    """Three standard errors of a mean over days, and the slack."""
    return STANDARD_ERRORS * REWARD_SPREAD / np.sqrt(count) + REWARD_SLACK


def _margin_radius(count: Integers) -> Floats:
    return STANDARD_ERRORS * COST_SPREAD / np.sqrt(count) + COST_SLACK


DAYS = TunedRules("pce-days", least_count=1, reward_radius=_reward_radius, margin_radius=_margin_radius)


def _make_method(policies: PolicyValueSet, terms: MethodArgs) -> SafeCandidates:
    return SafeCandidates(policies, DAYS)


ELIMINATION = MethodSpec(
    DAYS.name,
    _make_method,
    certified=False,
    why="deploys settings outright until days contradict what they promise: explores without regard to the budget",
    state=(Algorithm2State, Sums),
    colour=1,
)

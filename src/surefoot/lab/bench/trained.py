"""The policy set that the benchmarks of learners share."""

from __future__ import annotations

import warnings
from functools import cache

from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

EPSILON, DELTA = 0.004, 0.05  # of the gridworld experiment


@cache
def gridworld_policy_set() -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # nothing measured here rests on the paper's theorem
        return train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=0, progress=False, cells=100)

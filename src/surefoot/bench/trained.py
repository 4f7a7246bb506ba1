"""The policy set that the benchmarks of learners share."""

from __future__ import annotations

import warnings
from functools import cache

from surefoot.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld import gridworld
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.training_phase import train


@cache
def trained_gridworld() -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # nothing measured here rests on the paper's theorem
        return train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=0, progress=False, cells=100)

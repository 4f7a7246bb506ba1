"""Policies for the paper's gridworld, trained once for all tests of a process."""

from __future__ import annotations

import warnings
from functools import cache

from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train


@cache
def gridworld_set(cells: int = 100) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the paper's theorem does not apply
        return train(gridworld(), epsilon=0.004, delta=0.05, seed=0, progress=False, cells=cells)

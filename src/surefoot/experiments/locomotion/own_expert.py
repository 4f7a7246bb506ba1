"""A policy trained on the very test task: what methods are held against, and none can have that must stay safe."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.baselines.told_episodes import NetworkPolicy
from surefoot.control.improvement import taken_up
from surefoot.experiments.locomotion.families import Family
from surefoot.oracles.learned import Schooling, trained_and_tested

ERROR = 0.01  # of the test that it keeps its budget


def own_expert(family: Family, task: Any, start: NetworkPolicy, rng: np.random.Generator) -> NetworkPolicy:
    """Trained from `start` for as long as an expert that begins with its neighbour's policy."""
    rules = Schooling(warm_steps=family.warm_steps)
    begun = taken_up(start, task.world(1), rules.settings, rng)
    needed = -rules.allowance * np.abs(task.units.budget)
    return trained_and_tested([task], needed, ERROR, rules, rng, begun)[0].policy

"""A policy trained on the very test task: what methods are held against, and none can have that must stay safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.control.improvement import improve, resume
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy
from surefoot.lab.experiments.locomotion.families import LocomotionFamily
from surefoot.oracles.learned import Schooling, side_by_side


def own_expert(family: LocomotionFamily, task: Any, start: NetworkPolicy, rng: np.random.Generator) -> NetworkPolicy:
    """Trained from `start` for as long as an expert that begins with its neighbour's policy.

    Untested: whoever judges it sees what it costs, and mixes in no more of it than the budget allows.
    """
    rules = Schooling()
    course = side_by_side([task], np.zeros(len(task.units.budget)), rules)
    return improve(
        course.world,
        rules.update,
        settings=replace(rules.settings, steps=family.warm_steps),
        rng=rng,
        budget=course.budget,
        start=resume(start, course.world, rules.settings, rng),
    ).policy

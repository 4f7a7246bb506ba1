"""Constraint-rectified policy optimisation (Xu, Liang and Lan 2021): climb the reward while every budget is kept,
otherwise descend the cost that is most above its budget.

With several groups that is the worst-case policy gradient: one policy for all tasks, pressed down wherever it is worst.
"""

from __future__ import annotations

import numpy as np

from surefoot.control.cpo import most_pressing
from surefoot.control.improvement import Lesson, Memory, Update
from surefoot.control.networks import Actor
from surefoot.control.trust_region import Region, climbed


def crpo(tolerance: float = 0.0, region: Region | None = None) -> Update:
    """The update, for `improvement.improve`.

    Args:
        tolerance: how far above its budget a cost may be before it is descended, as a part of its spread.
    """
    within = region or Region()

    def update(actor: Actor, lesson: Lesson, memory: Memory, rng: np.random.Generator) -> tuple[Actor, Memory]:
        group, j = most_pressing(lesson)
        if lesson.excess[group, j] <= tolerance * lesson.size[j]:
            advantages = lesson.reward
        else:
            advantages = -lesson.cost[:, j] * lesson.weight[group] / lesson.size[j]
        found = climbed(actor, lesson.inputs, lesson.actions, advantages, within)
        return actor if found is None else found, memory

    return update

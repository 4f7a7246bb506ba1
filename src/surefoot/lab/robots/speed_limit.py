"""Safety-Gymnasium's SafetyHopperVelocity-v1 and SafetyHalfCheetahVelocity-v1, one task each, to compare methods on.

Run forward in 1000 steps, of which at most 25 may be above a speed limit, the parameter. Reward is that of Gymnasium's
environment, forward velocity and control cost, and 1 while Hopper stands; a fall ends the episode, and after it nothing
is earned or paid. Two differences: velocities count between -10 and 10 m/s only, and the step of a fall itself earns no
bonus (Gymnasium's v5; Safety-Gymnasium has v4, where it does).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.cmdp.units import Units
from surefoot.lab.robots.payments import Forward, TooFast
from surefoot.lab.robots.robots import HALF_CHEETAH, HOPPER, Robot
from surefoot.lab.robots.task import LocomotionTask
from surefoot.lab.robots.world import Locomotion
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

STEPS, BUDGET = 1000, 25.0
FASTEST = 10.0  # m/s that count
HOPPER_LIMIT, CHEETAH_LIMIT = 0.7402, 3.2096


def hopper_speed_limit() -> TaskDistribution:
    """Hopper, at most 25 of 1000 steps above 0.7402 m/s."""
    return _family(HOPPER, 1.0, 1e-3, HOPPER_LIMIT)


def half_cheetah_speed_limit() -> TaskDistribution:
    """HalfCheetah, at most 25 of 1000 steps above 3.2096 m/s."""
    return _family(HALF_CHEETAH, 0.0, 0.1, CHEETAH_LIMIT)


def _family(robot: Robot, upright: float, effort: float, limit: float) -> TaskDistribution:
    rewards = (-FASTEST - effort * robot.motors, FASTEST + upright)
    units = Units(1.0, rewards, np.array([[0.0, 1.0]]), np.array([BUDGET]), STEPS)
    system = Locomotion(robot, units, Forward(-FASTEST, FASTEST, upright, effort), TooFast())
    return TaskDistribution(partial(LocomotionTask, system), Finite([limit]))

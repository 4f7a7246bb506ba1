"""Robots whose motors are stronger or weaker than anybody knows: the same action spends another energy.

The gain s, the parameter, multiplies the torque of every motor, and what the robot weighs: strong motors are heavy.
Policies do not see it. A step spends the mean of (s·a)² over its motors, and the budget is on the mean over the 200
steps of an episode; the battery holds 2.5 times as much. Light robots earn most, with actions that are not safe on
heavy ones.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.cmdp.units import Units
from surefoot.lab.robots.payments import Energy, Forward
from surefoot.lab.robots.robots import HALF_CHEETAH, HOPPER, Robot
from surefoot.lab.robots.task import LocomotionTask
from surefoot.lab.robots.world import Locomotion
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

STEPS = 200
SHARE = 1 / STEPS  # of a step in the mean over an episode
WEAKEST, STRONGEST = 0.6, 1.4
CHEETAH_BUDGET, HOPPER_BUDGET = 0.25, 0.07
BATTERY = 2.5  # budgets
FALLEN = -1.0  # m/s, what each step earns that is missing after a fall

# What the gain multiplies. If robots with strong motors weighed no more than others they would earn most: who tries
# what promises most would begin with their policies, which are safe everywhere.
FACTORS = {"actuator_gear": 0, "body_mass": 0, "body_inertia": 0}

# (slowest, fastest) velocity that is paid for, in m/s. Wide on both sides: where only steps backwards are cut off,
# shaking to and fro earns something.
CHEETAH_VELOCITIES, HOPPER_VELOCITIES = (-4.0, 6.0), (-2.0, 4.0)


def half_cheetah_motors() -> TaskDistribution:
    """HalfCheetah with motors of unknown gain s, uniform on [0.6, 1.4], and s times its mass. Reward is the forward
    velocity within -4 and 6 m/s, cost the mean of (s·a)² over the motors, both as means over 200 steps; budget
    0.25, and an empty battery at 0.625."""
    return _family(HALF_CHEETAH, CHEETAH_VELOCITIES, CHEETAH_BUDGET, missing=(0.0, CHEETAH_BUDGET))


def hopper_motors() -> TaskDistribution:
    """Hopper with motors of unknown gain s, uniform on [0.6, 1.4], and s times its mass. Reward is the forward velocity
    within -2 and 4 m/s, cost the mean of (s·a)² over the motors, both as means over 200 steps; budget 0.07, and an
    empty battery at 0.175.

    A fall ends the episode. Each step that is then missing earns -1 and costs 0.175, as much as a battery holds for
    one: who falls before three fifths of the episode has spent more than the budget, however little the motors took.
    """
    return _family(HOPPER, HOPPER_VELOCITIES, HOPPER_BUDGET, missing=(FALLEN, BATTERY * HOPPER_BUDGET))


def _family(
    robot: Robot, velocities: tuple[float, float], budget: float, *, missing: tuple[float, float]
) -> TaskDistribution:
    """`missing`: reward and cost of an episode all of whose steps are missing after a fall."""
    battery, falls = BATTERY * budget, robot.upright is not None
    units = Units(
        1.0,
        (velocities[0] * SHARE, velocities[1] * SHARE),
        np.array([[0.0, STRONGEST**2 * SHARE]]),
        np.array([budget]),
        STEPS,
        cost_sum_range=np.array([[0.0, battery + falls * missing[1]]]),
    )
    system = Locomotion(
        robot,
        units,
        Forward(*velocities, share=SHARE),
        Energy(SHARE),
        after_fall=(missing[0] * SHARE, missing[1] * SHARE),
        battery=battery,
        factors=FACTORS,
        parameters=(WEAKEST, STRONGEST),
    )
    return TaskDistribution(partial(LocomotionTask, system), Uniform(WEAKEST, STRONGEST))

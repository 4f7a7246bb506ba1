"""Robots that are to run at a velocity that nobody tells them: the paper's experiments in Gymnasium (appendix).

Its text and its published code differ in nearly everything, so there are two versions of each; docs/locomotion.md has
them side by side. Both are 200 steps long, and both count costs discounted by 0.99 and rewards undiscounted, as the
code does.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.robots.payments import Effort, HeadAbove, Payment, Tracking
from surefoot.lab.robots.robots import HALF_CHEETAH, HOPPER, Robot
from surefoot.lab.robots.task import LocomotionTask
from surefoot.lab.robots.world import Locomotion
from surefoot.tasks.distribution import Normal, ParameterDistribution, Uniform
from surefoot.tasks.task_distribution import TaskDistribution

Version: TypeAlias = Literal["published", "text"]

STEPS, COST_DISCOUNT = 200, 0.99
HOPPER_BUDGET, CHEETAH_BUDGET = 5.0, 10.0

# By how much a velocity can miss its target at most, in m/s. Of steps with random actions 0.2 % (Hopper) and none
# (HalfCheetah) miss the mean target by more, 4 % and 0.3 % the fastest one.
HOPPER_FARTHEST, CHEETAH_FARTHEST = 2.0, 4.0

# Gymnasium's control cost is 0.001 Σa² of Hopper and 0.1 Σa² of HalfCheetah; the published code multiplies the first by
# 100, and with it the bonus of 1 that the step of a fall does not get.
HOPPER_CONTROL, HOPPER_EFFORT, CHEETAH_EFFORT, FALL = 1e-3, 0.1, 0.1, 100.0

# The text names no height. With this one the budget of 10 binds: standing still spends 8.0 of it, the head being at
# 0.64 m, a sine gait at 1.1 m/s 8.9, at 1.9 m/s 10.4, random actions 10.7. None of these has its head above 1.55 m.
HEAD_HEIGHT, MOST_ABOVE = 0.55, 1.0


def hopper_velocity(version: Version = "published") -> TaskDistribution:
    """Hopper at an unknown target velocity v*, the parameter, in m/s. Cost is control effort, budget 5 on its sum
    discounted by 0.99, reward -|v - v*| at least -2.

    What falling means. "published": the step of a fall costs 100 and after it nothing is earned or paid; every step
    before earns 1 besides and loses 0.001 Σa². "text": every step that is missing after a fall earns -2, the worst, and
    costs nothing; without that falling at once would be the best that many policies can do.

    Args:
        version: "published" is what the paper's code does, with v* ~ N(0.5, 0.1²) within [0, 1]; "text" what the paper
            says, with a variance of 0.1 before truncation.
    """
    far = HOPPER_FARTHEST
    if _checked(version) == "published":
        reward = Tracking(far, upright=1.0, effort=HOPPER_CONTROL)
        ranges = ((-far - HOPPER_CONTROL * HOPPER.motors, 1.0), (0.0, HOPPER_EFFORT * HOPPER.motors + FALL))
        targets = Normal(0.5, std=0.1, low=0.0, high=1.0, how="truncated")
        return _family(HOPPER, reward, Effort(HOPPER_EFFORT, fall=FALL), ranges, HOPPER_BUDGET, targets, fall=FALL)
    return _family(
        HOPPER,
        Tracking(far),
        Effort(HOPPER_EFFORT),
        ((-far, 0.0), (0.0, HOPPER_EFFORT * HOPPER.motors)),
        HOPPER_BUDGET,
        Normal(0.5, variance=0.1, low=0.0, high=1.0, how="truncated"),
        after_fall=(-far, 0.0),
    )


def half_cheetah_velocity(version: Version = "published") -> TaskDistribution:
    """HalfCheetah at an unknown target velocity v*, the parameter, in m/s. Reward -|v - v*|, at least -4; budget 10 on
    the sum of costs discounted by 0.99. It cannot fall.

    Args:
        version: "published" is what the paper's code does: cost is the control effort 0.1 Σa², v* uniform on [0, 2].
            "text" is what the paper says: cost is the height of the head above 0.55 m (our choice: the paper names no
            number), between 0 and 1 m; v* ~ N(1, variance 0.3) within [0, 2].
    """
    reward, low = Tracking(CHEETAH_FARTHEST), -CHEETAH_FARTHEST
    if _checked(version) == "published":
        ranges = ((low, 0.0), (0.0, CHEETAH_EFFORT * HALF_CHEETAH.motors))
        return _family(HALF_CHEETAH, reward, Effort(CHEETAH_EFFORT), ranges, CHEETAH_BUDGET, Uniform(0.0, 2.0))
    targets = Normal(1.0, variance=0.3, low=0.0, high=2.0, how="truncated")
    cost = HeadAbove(HEAD_HEIGHT, MOST_ABOVE)
    return _family(HALF_CHEETAH, reward, cost, ((low, 0.0), (0.0, MOST_ABOVE)), CHEETAH_BUDGET, targets)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _checked(version: Version) -> Version:
    if version not in ("published", "text"):
        raise InvalidInput(f"version must be 'published' or 'text', got {version!r}")
    return version


def _family(
    robot: Robot,
    reward: Payment,
    cost: Payment,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    budget: float,
    targets: ParameterDistribution,
    *,
    fall: float = 0.0,
    after_fall: tuple[float, float] = (0.0, 0.0),
) -> TaskDistribution:
    most = largest_cost(ranges[1][1] - fall, fall)
    units = Units(
        1.0,
        ranges[0],
        np.array([ranges[1]]),
        np.array([budget]),
        STEPS,
        cost_sum_range=np.array([[0.0, most]]),
    )
    system = Locomotion(robot, units, reward, cost, COST_DISCOUNT, after_fall)
    # Nobody sees the target but who pays: what robots do, and what it costs, is the same for all.
    return TaskDistribution(partial(LocomotionTask, system), targets, shared_costs=True)


def largest_cost(step: float, fall: float) -> float:
    """Of any episode: of steps that cost `step` at most, the last of which costs `fall` besides, discounted."""
    weights = COST_DISCOUNT ** np.arange(STEPS)
    return float(np.max(step * np.cumsum(weights) + fall * weights))

"""Families of robots with a parameter that nobody tells the policy: motors of unknown strength, unknown damping and
friction, unknown mass and payload, unknown target velocities (the paper's experiments in Gymnasium), and
Safety-Gymnasium's speed limits."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.robots.payments import (
    Effort,
    Energy,
    Forward,
    HeadAbove,
    JointsTooFast,
    Payment,
    TooFast,
    Tracking,
)
from surefoot.lab.robots.robots import HALF_CHEETAH, HOPPER, Robot
from surefoot.lab.robots.task import Locomotion, LocomotionTask
from surefoot.tasks.distribution import Finite, Normal, ParameterDistribution, Uniform
from surefoot.tasks.task_distribution import TaskDistribution

STEPS = 200  # of an episode, but for speed limits

# ------------------------------------------------------------------------------------------- motors of unknown strength
#
# The gain s, the parameter, multiplies the torque of every motor, and what the robot weighs: strong motors are heavy.
# Policies do not see it. A step spends the mean of (s·a)² over its motors, and the budget is on the mean over the 200
# steps of an episode; the battery holds 2.5 times as much. Light robots earn most, with actions that are not safe on
# heavy ones.

SHARE = 1 / STEPS  # of a step in the mean over an episode
WEAKEST, STRONGEST = 0.6, 1.4
CHEETAH_ENERGY, HOPPER_ENERGY = 0.25, 0.07  # budgets
BATTERY = 2.5  # times the budget
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
    return _motors(HALF_CHEETAH, CHEETAH_VELOCITIES, CHEETAH_ENERGY, missing=(0.0, CHEETAH_ENERGY))


def hopper_motors() -> TaskDistribution:
    """Hopper with motors of unknown gain s, uniform on [0.6, 1.4], and s times its mass. Reward is the forward velocity
    within -2 and 4 m/s, cost the mean of (s·a)² over the motors, both as means over 200 steps; budget 0.07, and an
    empty battery at 0.175.

    A fall ends the episode. Each step that is then missing earns -1 and costs 0.175, as much as a battery holds for
    one: who falls before three fifths of the episode has spent more than the budget, however little the motors took.
    """
    return _motors(HOPPER, HOPPER_VELOCITIES, HOPPER_ENERGY, missing=(FALLEN, BATTERY * HOPPER_ENERGY))


def _motors(
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
    return _family(
        robot,
        units,
        Forward(*velocities, share=SHARE),
        Energy(SHARE),
        Uniform(WEAKEST, STRONGEST),
        after_fall=(missing[0] * SHARE, missing[1] * SHARE),
        battery=battery,
        factors=FACTORS,
        parameters=((WEAKEST, STRONGEST),),
    )


# --------------------------------------------------------------- unknown damping and friction, unknown mass and payload
#
# Nothing but the dynamics differs: what is earned and paid depends on the motion alone, on every robot in the same way.
# A limit on the speed of joints is a constraint of the Real-World RL suite's walker. SPiDR (arXiv 2509.18648) has it at
# unknown damping and friction, from 0.15 to 13.5 and from 0.57 to 1.43 times the model's, with a budget of a tenth of
# the steps. What keeps the limit on a robot with much damping does not on one with little. Masses of 0.5 to 1.5 times
# the model's are OpenAI's (arXiv 1808.00177), a payload of up to half the robot's weight is RMA's (arXiv 2107.04034).

LEAST_DAMPED, MOST_DAMPED = 0.5, 2.0  # times the model's
SLIPPERIEST, ROUGHEST = 0.57, 1.43
LIGHTEST, HEAVIEST = 0.5, 1.5
LARGEST_PAYLOAD = 0.5  # times what the model weighs
FASTEST_TURN = 10.0  # rad/s, of any joint
TURNING_BUDGET = 20.0  # of 200 steps


def half_cheetah_dynamics() -> TaskDistribution:
    """HalfCheetah whose joints have an unknown damping and whose feet have an unknown friction: the parameter [2],
    factors uniform on [0.5, 2] and on [0.57, 1.43]. Reward is the forward velocity within -4 and 6 m/s, the mean over
    200 steps; cost is 1 for each step after which a joint turns faster than 10 rad/s, budget 20. After 50 of them
    motors rest until the episode ends, and nothing more is paid."""
    ranges = ((LEAST_DAMPED, MOST_DAMPED), (SLIPPERIEST, ROUGHEST))
    return _joint_speed_limit(ranges, factors={"dof_damping": 0, "geom_friction": 1})


def half_cheetah_payload() -> TaskDistribution:
    """HalfCheetah of unknown mass that carries an unknown payload: the parameter [2], a factor of all its masses,
    uniform on [0.5, 1.5], and what is at the centre of its torso besides, uniform on [0, 0.5] times what MuJoCo's model
    weighs. Reward, cost, budget and emergency stop are those of `half_cheetah_dynamics`."""
    ranges = ((LIGHTEST, HEAVIEST), (0.0, LARGEST_PAYLOAD))
    return _joint_speed_limit(ranges, factors={"body_mass": 0, "body_inertia": 0}, payload=1)


def _joint_speed_limit(ranges: tuple[tuple[float, float], ...], **dynamics: Any) -> TaskDistribution:
    """`ranges`: (low, high) of each coordinate of the parameter; `dynamics`: what it changes."""
    stop, (slowest, fastest) = BATTERY * TURNING_BUDGET, CHEETAH_VELOCITIES
    units = Units(
        1.0,
        (slowest * SHARE, fastest * SHARE),
        np.array([[0.0, 1.0]]),
        np.array([TURNING_BUDGET]),
        STEPS,
        cost_sum_range=np.array([[0.0, stop]]),
    )
    return _family(
        HALF_CHEETAH,
        units,
        Forward(slowest, fastest, share=SHARE),
        JointsTooFast(FASTEST_TURN),
        Uniform(*np.transpose(ranges)),
        battery=stop,
        parameters=ranges,
        **dynamics,
    )


# ------------------------------------------------------------------------------------------- unknown target velocities
#
# The text of the paper and its published code differ in nearly everything, so there are two versions of each;
# docs/locomotion.md has them side by side. Both are 200 steps long, and both count costs discounted by 0.99 and rewards
# undiscounted, as the code does.

Version: TypeAlias = Literal["published", "text"]

COST_DISCOUNT = 0.99
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
    if _check_version(version) == "published":
        reward = Tracking(far, upright=1.0, effort=HOPPER_CONTROL)
        ranges = ((-far - HOPPER_CONTROL * HOPPER.motors, 1.0), (0.0, HOPPER_EFFORT * HOPPER.motors + FALL))
        targets = Normal(0.5, std=0.1, low=0.0, high=1.0, how="truncated")
        return _velocity(HOPPER, reward, Effort(HOPPER_EFFORT, fall=FALL), ranges, HOPPER_BUDGET, targets, fall=FALL)
    return _velocity(
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
    if _check_version(version) == "published":
        ranges = ((low, 0.0), (0.0, CHEETAH_EFFORT * HALF_CHEETAH.motors))
        return _velocity(HALF_CHEETAH, reward, Effort(CHEETAH_EFFORT), ranges, CHEETAH_BUDGET, Uniform(0.0, 2.0))
    targets = Normal(1.0, variance=0.3, low=0.0, high=2.0, how="truncated")
    cost = HeadAbove(HEAD_HEIGHT, MOST_ABOVE)
    return _velocity(HALF_CHEETAH, reward, cost, ((low, 0.0), (0.0, MOST_ABOVE)), CHEETAH_BUDGET, targets)


def _check_version(version: Version) -> Version:
    if version not in ("published", "text"):
        raise InvalidInput(f"version must be 'published' or 'text', got {version!r}")
    return version


def _velocity(
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
    budgets, sums = np.array([budget]), np.array([[0.0, most]])
    units = Units(1.0, ranges[0], np.array([ranges[1]]), budgets, STEPS, cost_sum_range=sums)
    # Nobody sees the target but who pays: what robots do, and what it costs, is the same for all.
    return _family(robot, units, reward, cost, targets, shared=True, cost_discount=COST_DISCOUNT, after_fall=after_fall)


def largest_cost(step: float, fall: float) -> float:
    """Of any episode: of steps that cost `step` at most, the last of which costs `fall` besides, discounted."""
    weights = COST_DISCOUNT ** np.arange(STEPS)
    return float(np.max(step * np.cumsum(weights) + fall * weights))


# -------------------------------------------------------------------------------------------------------- speed limits
#
# Safety-Gymnasium's SafetyHopperVelocity-v1 and SafetyHalfCheetahVelocity-v1, one task each, to compare methods on: run
# forward in 1000 steps, of which at most 25 may be above a speed limit, the parameter. Reward is that of Gymnasium's
# environment, forward velocity and control cost, and 1 while Hopper stands; a fall ends the episode, and after it
# nothing is earned or paid. Two differences: velocities count between -10 and 10 m/s only, and the step of a fall
# itself earns no bonus (Gymnasium's v5; Safety-Gymnasium has v4, where it does).

LIMIT_STEPS, LIMIT_BUDGET = 1000, 25.0
COUNTED = 10.0  # m/s at most
HOPPER_LIMIT, CHEETAH_LIMIT = 0.7402, 3.2096


def hopper_speed_limit() -> TaskDistribution:
    """Hopper, at most 25 of 1000 steps above 0.7402 m/s."""
    return _speed_limit(HOPPER, 1.0, 1e-3, HOPPER_LIMIT)


def half_cheetah_speed_limit() -> TaskDistribution:
    """HalfCheetah, at most 25 of 1000 steps above 3.2096 m/s."""
    return _speed_limit(HALF_CHEETAH, 0.0, 0.1, CHEETAH_LIMIT)


def _speed_limit(robot: Robot, upright: float, effort: float, limit: float) -> TaskDistribution:
    rewards = (-COUNTED - effort * robot.motors, COUNTED + upright)
    units = Units(1.0, rewards, np.array([[0.0, 1.0]]), np.array([LIMIT_BUDGET]), LIMIT_STEPS)
    return _family(robot, units, Forward(-COUNTED, COUNTED, upright, effort), TooFast(), Finite([limit]))


# --------------------------------------------------------------------------------------------------------- all of them


def _family(
    robot: Robot,
    units: Units,
    reward: Payment,
    cost: Payment,
    distribution: ParameterDistribution,
    shared: bool = False,
    **more: Any,
) -> TaskDistribution:
    """`shared`: whether costs are the same on all tasks; `more`: the other fields of `Locomotion`."""
    system = Locomotion(robot, units, reward, cost, **more)
    return TaskDistribution(partial(LocomotionTask, system), distribution, shared_costs=shared)

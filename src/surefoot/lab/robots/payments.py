"""What robots earn and pay in one step: each payment a function of what was done, its numbers plain data.

The action that is paid for is the one that was done, after it was moved into [-1, 1]. Gymnasium's environments charge
for what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from surefoot.arrays import Floats, Mask


class Motion(NamedTuple):
    """One step of n lanes: the mean velocity along x [n] in m/s, whether the robot fell [n], the actions done [n, k],
    and the positions and velocities [n, q] that it came to."""

    velocity: Floats
    fell: Mask
    actions: Floats
    positions: Floats
    velocities: Floats


class Payment(Protocol):
    """[n] of one step, of lanes whose tasks have the parameters [n, d].

    Digests are made of `text`, a format of all its numbers, which stays whatever classes and fields are called.
    """

    text: ClassVar[str]

    def __call__(self, motion: Motion, parameters: Floats) -> Floats: ...


# -------------------------------------------------------------------------------------------------------------- rewards


@dataclass(frozen=True)
class Tracking:
    """-min(|v - v*|, farthest) + upright·1[not fallen] - effort·Σa², the target v* being the parameter.

    A velocity is unbounded in principle: beyond `farthest` it makes no difference any more.
    """

    farthest: float
    upright: float = 0.0
    effort: float = 0.0
    text: ClassVar[str] = "Tracking(farthest={0.farthest!r}, upright={0.upright!r}, effort={0.effort!r})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        miss = np.minimum(np.abs(motion.velocity - parameters[:, 0]), self.farthest)
        reward: Floats = self.upright * ~motion.fell - miss - self.effort * squares(motion.actions)
        return reward


@dataclass(frozen=True)
class Forward:
    """(v within [slowest, fastest] + upright·1[not fallen] - effort·Σa²)·share."""

    slowest: float
    fastest: float
    upright: float = 0.0
    effort: float = 0.0
    share: float = 1.0
    text: ClassVar[str] = (
        "Forward(slowest={0.slowest!r}, fastest={0.fastest!r}, upright={0.upright!r}, "
        "effort={0.effort!r}, share={0.share!r})"
    )

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        velocity = motion.velocity.clip(self.slowest, self.fastest)
        reward: Floats = (velocity + self.upright * ~motion.fell - self.effort * squares(motion.actions)) * self.share
        return reward


# ---------------------------------------------------------------------------------------------------------------- costs


@dataclass(frozen=True)
class Effort:
    """weight·Σa² + fall·1[fallen]."""

    weight: float
    fall: float = 0.0
    text: ClassVar[str] = "Effort(weight={0.weight!r}, fall={0.fall!r})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        cost: Floats = self.weight * squares(motion.actions) + self.fall * motion.fell
        return cost


@dataclass(frozen=True)
class Energy:
    """share·mean over motors of (s·a)², what the motors really spend: the gain s is the parameter."""

    share: float
    text: ClassVar[str] = "Energy(share={0.share!r})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        spent: Floats = np.mean((parameters[:, :1] * motion.actions) ** 2, axis=1)
        return self.share * spent


@dataclass(frozen=True)
class HeadAbove:
    """How far the middle of HalfCheetah's head is above `height`, in m, from 0 to `most`."""

    height: float
    most: float
    text: ClassVar[str] = "HeadAbove(height={0.height!r}, most={0.most!r})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        return (head_height(motion.positions) - self.height).clip(0.0, self.most)


@dataclass(frozen=True)
class TooFast:
    """1 where v is above the limit, which is the parameter."""

    text: ClassVar[str] = "TooFast()"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        return (motion.velocity > parameters[:, 0]).astype(np.float64)


@dataclass(frozen=True)
class JointsTooFast:
    """1 where any joint turns faster than `limit`, in rad/s, to either side."""

    limit: float
    text: ClassVar[str] = "JointsTooFast(limit={0.limit!r})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        fastest: Floats = np.abs(motion.velocities[:, PLANE:]).max(axis=1)
        return (fastest > self.limit).astype(np.float64)


# ------------------------------------------------------------------------------------------------- parts, in call order

PLANE = 3  # x, height and lean of the torso come first; joints follow


def squares(actions: Floats) -> Floats:
    """Σa² [n]."""
    total: Floats = np.square(actions).sum(axis=1)
    return total


# From half_cheetah.xml: the height of the torso where its position is 0, and the head in the torso's frame.
TORSO_HEIGHT, HEAD_AHEAD, HEAD_ABOVE = 0.7, 0.6, 0.1


def head_height(positions: Floats) -> Floats:
    """[n] of the middle of HalfCheetah's head in m, at positions [n, 9]: the torso leans forward by positions[:, 2]."""
    height, lean = positions[:, 1], positions[:, 2]
    above: Floats = TORSO_HEIGHT + height + HEAD_ABOVE * np.cos(lean) - HEAD_AHEAD * np.sin(lean)
    return above

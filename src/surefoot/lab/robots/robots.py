"""Two robots of Gymnasium, Hopper-v5 and HalfCheetah-v5, as plain data: what has to be known of them to step many.

Their models are the files that Gymnasium brings along; the numbers are the defaults of its environments of these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.errors import InvalidInput

INSTALL = "pip install 'surefoot[control]'"


@dataclass(frozen=True)
class Upright:
    """A robot that has fallen once it leaves these, all of them open intervals.

    Attributes:
        least_height: of the torso, in m.
        largest_lean: of the torso to either side, in rad.
        largest_number: of every other position and velocity, in magnitude.
    """

    least_height: float
    largest_lean: float
    largest_number: float

    @property
    def text(self) -> str:
        lean, most = self.largest_lean, self.largest_number
        return f"Upright(least_height={self.least_height!r}, largest_lean={lean!r}, largest_number={most!r})"


@dataclass(frozen=True)
class Robot:
    """A robot that moves in a vertical plane. Its first three positions are x, height and lean of its torso.

    Attributes:
        name: that of the environment in Gymnasium.
        model_file: among Gymnasium's own.
        frame_skip: steps of the simulation per action.
        joints: q, the number of positions and of velocities.
        motors: k, the number of actions, each in [-1, 1].
        noise: of the positions and velocities that an episode begins with.
        normal_velocities: whether the noise of the velocities is normal, not uniform.
        fastest_seen: velocities are shown clipped to this, to either side.
        upright: when it has fallen; None for a robot that cannot.
    """

    name: str
    model_file: str
    frame_skip: int
    joints: int
    motors: int
    noise: float
    normal_velocities: bool
    fastest_seen: float
    upright: Upright | None

    @property
    def observations(self) -> int:
        """o: all positions but x, and all velocities."""
        return 2 * self.joints - 1

    @property
    def text(self) -> str:
        """All of it in the words that digests are made of, which stay whatever classes and fields are called."""
        upright = None if self.upright is None else self.upright.text
        return (
            f"Robot(name={self.name!r}, model_file={self.model_file!r}, frame_skip={self.frame_skip!r}, "
            f"joints={self.joints!r}, motors={self.motors!r}, noise={self.noise!r}, "
            f"normal_velocities={self.normal_velocities!r}, fastest_seen={self.fastest_seen!r}, upright={upright})"
        )


HOPPER = Robot("Hopper-v5", "hopper.xml", 4, 6, 3, 5e-3, False, 10.0, Upright(0.7, 0.2, 100.0))
HALF_CHEETAH = Robot("HalfCheetah-v5", "half_cheetah.xml", 5, 9, 6, 0.1, True, np.inf, None)


def robot_observations(robot: Robot, positions: Floats, velocities: Floats) -> Floats:
    """[n, o] what a policy sees at positions and velocities [n, q]: not x, on which nothing depends."""
    return np.concatenate([positions[:, 1:], velocities.clip(-robot.fastest_seen, robot.fastest_seen)], axis=1)


def has_fallen(robot: Robot, positions: Floats, velocities: Floats) -> Mask:
    """[n] at positions and velocities [n, q]; what is no number has fallen."""
    if robot.upright is None:
        return np.zeros(len(positions), np.bool_)
    height, lean = positions[:, 1], positions[:, 2]
    others = np.concatenate([positions[:, 2:], velocities], axis=1)
    standing: Mask = (
        (height > robot.upright.least_height)
        & (np.abs(lean) < robot.upright.largest_lean)
        & (np.abs(others) < robot.upright.largest_number).all(axis=1)
    )
    return ~standing


def first_state(robot: Robot, seed: int) -> tuple[Floats, Floats]:
    """How far positions and velocities [q] of an episode's start are from the model's own: the draws of Gymnasium's
    environment after reset(seed=seed)."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    positions = rng.uniform(-robot.noise, robot.noise, robot.joints)
    if robot.normal_velocities:
        return positions, robot.noise * rng.standard_normal(robot.joints)
    return positions, rng.uniform(-robot.noise, robot.noise, robot.joints)


@cache
def model_text(robot: Robot) -> str:
    """The model as Gymnasium has it. Its package is looked for, not imported."""
    package = find_spec("gymnasium")
    if package is None or package.origin is None:
        raise InvalidInput(f"robots must have gymnasium installed, which brings their models: {INSTALL}")
    path = Path(package.origin).parent / "envs" / "mujoco" / "assets" / robot.model_file
    return path.read_text(encoding="utf-8")

"""Two robots of Gymnasium, Hopper-v5 and HalfCheetah-v5, as plain data, and either of them simulated n times side by
side by MuJoCo, each lane with a physics of its own.

Their models are the files that Gymnasium brings along; the numbers are the defaults of its environments of these names.
Every lane is bit by bit what Gymnasium's environment of the robot computes, on any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, check_int, finite_array
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


# ------------------------------------------------------------------------------------------------- lanes side by side


class MujocoLanes:
    """n lanes that are begun and stepped by their numbers.

    Args:
        robot: of all lanes.
        lanes: n.
        fields: of MuJoCo's model by name, such as actuator_gear or body_mass, one value per lane [n, ...]; what MuJoCo
            derives from them follows.
        threads: that step the lanes; if None as many as OMP_NUM_THREADS says, which workers side by side are given as
            their share, or else as there are cores.

    Attributes:
        positions, velocities: [n, q] of all lanes now, views that change with every step.
    """

    def __init__(
        self, robot: Robot, lanes: int, fields: Mapping[str, Floats] | None = None, threads: int | None = None
    ) -> None:
        self._robot = robot
        model = _model(robot)
        self._batch = _mujoco().batch.Batch(model, check_int("lanes", lanes), _threads(threads))
        _set_fields(self._batch, fields or {})
        self._seconds = model.opt.timestep * robot.frame_skip
        self.positions: Floats = self._batch.bind("qpos")
        self.velocities: Floats = self._batch.bind("qvel")
        self._controls: Floats = self._batch.bind("ctrl")

    def begin(self, lanes: Integers, seeds: Integers) -> None:
        """New episodes in these lanes [k], from a seed each [k]."""
        if not len(lanes):
            return
        self._batch.reset(lanes, stage=NO_STAGE)  # to the model's own state, to which the noise is added
        starts = [first_state(self._robot, int(seed)) for seed in seeds]
        self.positions[lanes] += np.array([positions for positions, _ in starts])
        self.velocities[lanes] += np.array([velocities for _, velocities in starts])
        self._batch.forward(lanes)

    def step(self, lanes: Integers, actions: Floats) -> Floats:
        """[k] mean velocity along x over one step of these lanes [k], in m/s, with these actions [k, motors]."""
        before = self.positions[lanes, 0]
        self._controls[lanes] = actions
        self._batch.step(lanes, nstep=self._robot.frame_skip)
        if self._batch.warning[..., 1].any():
            _refuse_unstable(self._batch.warning[..., 1])
        velocity: Floats = (self.positions[lanes, 0] - before) / self._seconds
        return velocity


NO_STAGE = 0  # mjSTAGE_NONE: compute nothing after a reset, the state is not complete yet


@contextmanager
def silence() -> Iterator[None]:
    """In which models are loaded: what MuJoCo says about the age of Gymnasium's would go to a log file in the working
    directory."""
    mujoco = _mujoco()
    spoken = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(spoken)


def model_field(robot: Robot, name: str) -> Floats:
    """A field of the robot's own model, the same in all lanes unless it is set."""
    return np.array(getattr(_model(robot), name))


# ------------------------------------------------------------------------------------------------- parts, in call order


@cache
def _model(robot: Robot) -> Any:
    mujoco = _mujoco()
    with silence():
        model = mujoco.MjModel.from_xml_string(model_text(robot))
    # A robot is one part: to look for parts that can be solved apart takes time and changes no bit.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return model


def _mujoco() -> Any:
    """Imported when it is first used: the core does without."""
    try:
        import mujoco
        import mujoco.batch
    except ImportError as error:
        raise InvalidInput(f"robots must have mujoco ≥ 3.17 installed: {INSTALL} (got: {error})") from error
    return mujoco


def _threads(wanted: int | None) -> int:
    """0 is MuJoCo's word for all cores."""
    if wanted is not None:
        return check_int("threads", wanted)
    share = os.environ.get("OMP_NUM_THREADS", "")
    return int(share) if share.isdecimal() else 0


def _set_fields(batch: Any, fields: Mapping[str, Floats]) -> None:
    for name, values in fields.items():
        own = batch.expand(name)
        given = finite_array(name, values)
        if given.shape != own.shape:
            raise InvalidInput(f"fields[{name!r}] must have shape {list(own.shape)}, got {list(given.shape)}")
        own[...] = given
    if fields:
        batch.set_const()


def _refuse_unstable(counts: Integers) -> None:
    lane = int(np.argmax(counts.any(axis=1)))
    raise InvalidInput(f"fields must leave the simulation stable, got a state that MuJoCo cannot step in lane {lane}")

"""A robot simulated n times side by side by MuJoCo, each lane with a physics of its own.

Every lane is bit by bit what Gymnasium's environment of the robot computes, on any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, check_int, finite_array
from surefoot.errors import InvalidInput
from surefoot.lab.robots.robots import INSTALL, Robot, first_state, model_text


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
    with silence():
        return _mujoco().MjModel.from_xml_string(model_text(robot))


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

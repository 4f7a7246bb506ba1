"""Gymnasium's own robots, as the families of robots change them."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco


def with_motors(name: str, gain: float) -> Any:
    """The environment `name` whose motors are stronger by `gain`, and all of it heavier."""
    env: Any = gymnasium.make(name).unwrapped
    for part in (env.model.actuator_gear, env.model.body_mass, env.model.body_inertia):
        part[:] *= gain
    mujoco.mj_setConst(env.model, env.data)
    return env

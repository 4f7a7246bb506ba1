"""Gymnasium's own robots, as the families of robots change them."""

from __future__ import annotations

from typing import Any

import gymnasium
import mujoco


def with_motors(name: str, gain: float) -> Any:
    """The environment `name` whose motors are stronger by `gain`, and all of it heavier."""
    return with_factors(name, actuator_gear=gain, body_mass=gain, body_inertia=gain)


def with_factors(name: str, **factors: float) -> Any:
    """The environment `name` with these fields of its model multiplied."""
    env: Any = gymnasium.make(name).unwrapped
    for field, factor in factors.items():
        getattr(env.model, field)[:] *= factor
    mujoco.mj_setConst(env.model, env.data)
    return env


def with_payload(name: str, factor: float, share: float) -> Any:
    """The environment `name` with all masses times `factor`, and `share` of what it weighed before on its torso."""
    weight = gymnasium.make(name).unwrapped.model.body_mass.sum()
    env = with_factors(name, body_mass=factor, body_inertia=factor)
    env.model.body_mass[env.model.body("torso").id] += weight * share
    mujoco.mj_setConst(env.model, env.data)
    return env

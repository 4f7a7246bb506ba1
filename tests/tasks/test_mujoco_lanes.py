"""Robots side by side: bit by bit what Gymnasium's environments compute, with any physics, resets and threads."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from surefoot.errors import InvalidInput
from surefoot.lab.robots import robots
from surefoot.lab.robots.payments import head_height
from surefoot.lab.robots.robots import (
    HALF_CHEETAH,
    HOPPER,
    MujocoLanes,
    Robot,
    first_state,
    has_fallen,
    model_field,
    robot_observations,
)

ROBOTS = [HOPPER, HALF_CHEETAH]
N = 4
# How each field is varied, lane by lane; None: the model as it is.
PHYSICS = [None, "actuator_gear", "body_mass", "geom_friction", "dof_damping"]


@pytest.fixture(params=ROBOTS, ids=["hopper", "cheetah"])
def robot(request: pytest.FixtureRequest) -> Robot:
    return request.param


@pytest.fixture(autouse=True)
def _where_logs_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's environments let MuJoCo write one into the working directory."""
    monkeypatch.chdir(tmp_path)


def environment(robot: Robot) -> Any:
    return gymnasium.make(robot.name).unwrapped


def fields(robot: Robot, name: str | None) -> dict[str, np.ndarray]:
    if name is None:
        return {}
    own = model_field(robot, name)
    return {name: own * np.linspace(0.7, 1.3, N).reshape(-1, *[1] * own.ndim)}


def environments(robot: Robot, changed: dict[str, np.ndarray]) -> list[Any]:
    envs = [environment(robot) for _ in range(N)]
    for lane, env in enumerate(envs):
        for name, values in changed.items():
            getattr(env.model, name)[:] = values[lane]
            mujoco.mj_setConst(env.model, mujoco.MjData(env.model))
    return envs


@pytest.mark.short_for(field=[None, "body_mass"])
@pytest.mark.parametrize("field", PHYSICS)
def test_lanes_are_gymnasiums_environments(robot: Robot, field: str | None) -> None:
    """Over 200 steps of random actions, some of them out of their box, with lanes reset in the middle."""
    changed = fields(robot, field)
    lanes, envs, rng = MujocoLanes(robot, N, changed), environments(robot, changed), np.random.default_rng(5)
    every, falls = np.arange(N), 0
    seeds = rng.integers(2**31, size=N)
    lanes.begin(every, seeds)
    shown = [env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)]
    for _ in range(200):
        assert (robot_observations(robot, lanes.positions, lanes.velocities) == shown).all()
        actions = rng.uniform(-1.2, 1.2, (N, robot.motors))
        velocity = lanes.step(every, actions)
        results = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        shown = [observation for observation, *_ in results]
        assert velocity.tolist() == [info["x_velocity"] for *_, info in results]
        down = has_fallen(robot, lanes.positions, lanes.velocities)
        assert down.tolist() == [terminated for _, _, terminated, *_ in results]
        falls += down.sum()
        again = np.flatnonzero(down | (rng.random(N) < 0.01))
        seeds = rng.integers(2**31, size=len(again))
        lanes.begin(again, seeds)
        for lane, seed in zip(again, seeds, strict=True):
            shown[lane] = envs[lane].reset(seed=int(seed))[0]
    assert (falls > 0) == (robot is HOPPER)


def test_lanes_with_other_physics_move_otherwise(robot: Robot) -> None:
    for field in PHYSICS[1:]:
        lanes = MujocoLanes(robot, N, fields(robot, field))
        lanes.begin(np.arange(N), np.full(N, 3))
        for _ in range(20):
            lanes.step(np.arange(N), np.full((N, robot.motors), 0.3))
        assert len(np.unique(lanes.positions[:, 1])) == N, field


def test_threads_change_nothing(robot: Robot) -> None:
    rng = np.random.default_rng(1)
    actions, ends = rng.uniform(-1, 1, (60, 7, robot.motors)), []
    for threads in (1, 2, 5, None):
        lanes = MujocoLanes(robot, 7, threads=threads)
        lanes.begin(np.arange(7), np.arange(7))
        for action in actions:
            lanes.step(np.arange(7), action)
        ends.append(np.concatenate([lanes.positions, lanes.velocities]))
    assert all((end == ends[0]).all() for end in ends)


def test_lanes_that_are_not_stepped_stay(robot: Robot) -> None:
    lanes = MujocoLanes(robot, 3)
    lanes.begin(np.arange(3), np.arange(3))
    before = lanes.positions.copy()
    lanes.step(np.array([0, 2]), np.ones((2, robot.motors)))
    assert (lanes.positions[1] == before[1]).all()
    assert (lanes.positions[[0, 2]] != before[[0, 2]]).all(axis=1).all()


def test_starts_are_those_of_gymnasium(robot: Robot) -> None:
    env = environment(robot)
    for seed in (0, 1, 2**31 - 1):
        env.reset(seed=seed)
        positions, velocities = first_state(robot, seed)
        assert (env.init_qpos + positions == env.data.qpos).all()
        assert (env.init_qvel + velocities == env.data.qvel).all()


def test_observations_are_those_of_gymnasium(robot: Robot) -> None:
    """Also of velocities that a robot hardly reaches."""
    env, rng = environment(robot), np.random.default_rng(6)
    positions, velocities = rng.normal(size=(2, 50, robot.joints)) * [[[1.0]], [[20.0]]]
    expected = []
    for position, velocity in zip(positions, velocities, strict=True):
        env.data.qpos[:], env.data.qvel[:] = position, velocity
        expected.append(env._get_obs())
    assert (robot_observations(robot, positions, velocities) == expected).all()


def test_robots_are_as_gymnasium_says(robot: Robot) -> None:
    env = environment(robot)
    assert env.frame_skip == robot.frame_skip
    assert (env.model.nq, env.model.nv, env.model.nu) == (robot.joints, robot.joints, robot.motors)
    assert env.observation_space.shape == (robot.observations,)
    assert (env.action_space.low == -1).all()
    assert (env.action_space.high == 1).all()


def test_fallen_is_not_healthy() -> None:
    """At random states, some of which are just beyond a bound."""
    env, rng = environment(HOPPER), np.random.default_rng(2)
    positions, velocities = rng.normal(scale=0.1, size=(2, 600, 6))
    positions[:, 1] += rng.choice([0.7, 1.2], 600)
    velocities[rng.random((600, 6)) < 0.02] *= 1500
    positions[0, 2], positions[1, 1], velocities[2, 0] = 0.2, 0.7, np.nan
    healthy = []
    for position, velocity in zip(positions, velocities, strict=True):
        env.data.qpos[:], env.data.qvel[:] = position, velocity
        healthy.append(bool(env.is_healthy))
    assert (has_fallen(HOPPER, positions, velocities) == ~np.array(healthy)).all()
    assert 100 < sum(healthy) < 500
    assert not has_fallen(HALF_CHEETAH, np.full((3, 9), 1e9), np.zeros((3, 9))).any()


def test_the_head_is_where_mujoco_sees_it() -> None:
    env, rng = environment(HALF_CHEETAH), np.random.default_rng(3)
    for position in rng.normal(size=(20, 9)):
        env.set_state(position, np.zeros(9))
        assert head_height(position[None])[0] == pytest.approx(env.data.geom("head").xpos[2], abs=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"fields\['actuator_gear'\] must have shape \[2, 3, 6\], got \[2, 3\]"):
        MujocoLanes(HOPPER, 2, {"actuator_gear": np.ones((2, 3))})
    with pytest.raises(InvalidInput, match="lanes must be a whole number"):
        MujocoLanes(HOPPER, 0)
    with pytest.raises(InvalidInput, match="threads must be a whole number"):
        MujocoLanes(HOPPER, 1, threads=0)


def test_loading_a_robot_leaves_no_trace(tmp_path: Path) -> None:
    load = "from surefoot.lab.robots import robots; robots.MujocoLanes(robots.HALF_CHEETAH, 1)"
    done = subprocess.run([sys.executable, "-c", load], check=True, capture_output=True, cwd=tmp_path)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == (b"", b"", [])


def test_a_simulation_that_breaks_down_is_no_episode() -> None:
    """MuJoCo would go on from its first state as if nothing had happened."""
    lanes = MujocoLanes(
        HALF_CHEETAH, 2, {"actuator_gear": fields(HALF_CHEETAH, "actuator_gear")["actuator_gear"][:2] * 1e9}
    )
    lanes.begin(np.arange(2), np.arange(2))

    def push() -> None:
        for _ in range(50):
            lanes.step(np.array([1]), np.ones((1, 6)))

    with pytest.raises(InvalidInput, match=r"fields must leave the simulation stable, got .* in lane 1"):
        push()


def test_without_mujoco_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)
    with pytest.raises(InvalidInput, match=r"pip install 'surefoot\[control\]'"):
        MujocoLanes(HOPPER, 1)


def test_a_workers_share_of_the_cores_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    batch = mujoco.batch.Batch
    monkeypatch.setattr(mujoco.batch, "Batch", lambda *given: made.append(given[2]) or batch(*given))
    for share in ("3", "", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", share)
        MujocoLanes(HOPPER, 1)
    MujocoLanes(HOPPER, 1, threads=2)
    assert made == [3, 0, 0, 2]


def test_without_gymnasium_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"must have gymnasium installed.*: pip install 'surefoot\[control\]'"):
        robots.model_text(replace(HOPPER, name="Hopper of whom nobody has heard"))

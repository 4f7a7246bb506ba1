"""Robots stepped in closed loop: MuJoCo's batch against Gymnasium's vector environment. Needs the extra `control`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.world import World
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, race
from surefoot.lab.robots.families import half_cheetah_motors
from surefoot.lab.robots.robots import silence
from surefoot.report.table import MISSING

LANES = 64
PLAIN_EPISODES = 5  # of other rows cost about as much as one step in every lane


def robots(sizes: Sizes) -> list[BenchRow]:
    """Steps per second of Half-Cheetah under a random network."""
    what = f"half-cheetah, {LANES} lanes in closed loop"
    if any(find_spec(name) is None for name in ("gymnasium", "mujoco")):
        return [BenchRow(what, MISSING, MISSING, None, "pip install 'surefoot[control]'")]
    steps, policy = max(2, sizes.plain_episodes // PLAIN_EPISODES), random_network()
    world, env = half_cheetah_motors().task(1.0).world(LANES), vector_environment()
    ours, plain = race(
        lambda: on_the_batch(world, policy, steps),
        lambda: in_the_environment(env, policy, steps),
        sizes.repeats,
    )
    env.close()
    agree("last observations", np.abs(ours.result - plain.result).max(), 0.0, 1e-300)
    speed, plain_speed = (LANES * steps / side.seconds for side in (ours, plain))
    return [
        BenchRow(
            what,
            f"{speed / 1e3:.3g} k steps/s (mujoco.batch, all cores)",
            f"{plain_speed / 1e3:.3g} k steps/s (SyncVectorEnv)",
            speed / plain_speed,
            "bit for bit the same observations, the policy included",
        )
    ]


def random_network() -> MLPPolicy:
    rng, sizes = np.random.default_rng(0), (17, 64, 64, 6)
    weights = tuple(rng.normal(size=(rows, columns)) / 8 for columns, rows in pairwise(sizes))
    biases = tuple(np.zeros(rows) for rows in sizes[1:])
    return MLPPolicy(weights, biases, np.full(6, -1.0), np.zeros(17), np.ones(17))


def vector_environment() -> Any:
    import gymnasium

    with silence():
        return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("HalfCheetah-v5") for _ in range(LANES)])


def on_the_batch(world: World, policy: MLPPolicy, steps: int) -> Floats:
    """[n, o] the last observations, every episode begun with the seed of its lane."""
    first = world.begin(np.ones(LANES, np.bool_), np.random.default_rng(1))
    return _rollout(policy, first, steps, lambda actions: world.step(actions).observation)


def in_the_environment(env: Any, policy: MLPPolicy, steps: int) -> Floats:
    """The same."""
    first, _ = env.reset(seed=np.random.default_rng(1).integers(2**31, size=LANES).tolist())
    return _rollout(policy, first, steps, lambda actions: env.step(actions)[0])


def _rollout(policy: MLPPolicy, first: Floats, steps: int, step: Callable[[Floats], Floats]) -> Floats:
    rng, seen = np.random.default_rng(2), first
    for t in range(steps):
        seen = step(policy.act(seen, t, rng).clip(-1, 1))
    return seen

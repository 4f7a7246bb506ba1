"""Simulators: days of the insulin pump side by side against one after the other, and robots stepped in closed loop, by
MuJoCo's batch against Gymnasium's vector environment. Robots need the extra `control`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.world import World
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, race, speeds_row
from surefoot.lab.pump import model as body
from surefoot.lab.pump.days import STEPS, GlucoseDays, sample_days
from surefoot.lab.pump.family import SENSOR_RANGE, GlucoseTask
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.lab.pump.simulated_days import HIGH, LOW
from surefoot.lab.robots.families import half_cheetah_motors
from surefoot.lab.robots.robots import silence
from surefoot.report.table import MISSING

AVERAGE = GlucoseTask(np.array([1.0, body.SKIN_TIME]))
SHARE = 10  # a day costs so much more than an episode of the gridworld
LANES = 64
PLAIN_EPISODES = 5  # of other rows cost about as much as one step in every lane


def pump(sizes: Sizes) -> list[BenchRow]:
    """Steps per second of the average patient under the average settings."""
    many, few = sizes.episodes // SHARE, max(2, sizes.plain_episodes // SHARE)
    ours, plain = race(
        lambda: AVERAGE.episodes(AVERAGE_SETTINGS, STEPS).run(many, np.random.default_rng(0)).reward,
        lambda: plain_days(sample_days(few, np.random.default_rng(1))),
        sizes.repeats,
    )
    error = 5 * ours.result.std() * np.sqrt(1 / many + 1 / few)
    agree("mean time in range", ours.result.mean(), plain.result.mean(), error)
    speed, plain_speed = many * STEPS / ours.seconds, few * STEPS / plain.seconds
    sides = (speed, "side by side"), (plain_speed, "Euler, a minute a time")
    note = "one thread, sensor, meals and settings included"
    return [speeds_row("days of an insulin pump, 288 steps", "M", *sides, note)]


def plain_days(days: GlucoseDays) -> Floats:
    """[n] time in range of the average patient under the average settings: the equations as they are printed."""
    return np.array([_plain_day(days, k) for k in range(len(days.start))])


def _plain_day(days: GlucoseDays, k: int) -> float:
    nobody = np.random.default_rng(0)  # settings draw nothing
    q1 = days.start[k] / body.MG_PER_DL * body.GLUCOSE_VOLUME
    plasma = float(body.resting_insulin(np.array([q1]))[0])
    depot = plasma * body.INSULIN_LOSS * body.INSULIN_VOLUME * body.WEIGHT * body.SKIN_TIME
    q2 = body.TRANSPORT * plasma * q1 / (body.EXCHANGE + body.DISPOSAL * plasma)
    now = [0.0, 0.0, depot, depot, plasma, plasma, plasma, plasma, q1, q2]
    on_board = [body.on_board_at_rest(body.AVERAGE_BASAL) / 2] * 2
    readings: list[float] = []
    for t in range(STEPS + 1):
        reading = now[8] / body.GLUCOSE_VOLUME * body.MG_PER_DL * (1 + days.error[t, k])
        readings.append(min(max(reading, SENSOR_RANGE[0]), SENSOR_RANGE[1]))
        if t < STEPS:
            seen = np.array([readings[t], readings[t] - readings[max(t - 3, 0)], days.counted[t, k], sum(on_board)])
            insulin = AVERAGE_SETTINGS.act(seen, t, nobody)[0]
            now[0] += body.GUT_FRACTION * days.eaten[t, k] * body.MMOL_PER_GRAM
            for _ in range(int(body.STEP)):
                now = _minute(now, 1000 * insulin / body.STEP, days.response[t, k])
                first, second = on_board
                flow = first / body.SKIN_TIME
                on_board = [first + insulin / body.STEP - flow, second + flow - second / body.SKIN_TIME]
    return sum(LOW <= reading <= HIGH for reading in readings[1:]) / STEPS


def _minute(now: list[float], insulin: float, response: float) -> list[float]:
    """One step of Euler's method; insulin in mU/min."""
    d1, d2, s1, s2, plasma, z1, z2, z3, q1, q2 = now
    level = q1 / body.GLUCOSE_VOLUME
    brain = body.BRAIN * min(level / body.BRAIN_FALLS_BELOW, 1.0)
    kidney = body.KIDNEY * max(level - body.KIDNEY_FROM, 0.0) * body.GLUCOSE_VOLUME
    x1, x2, x3 = response * body.TRANSPORT * z1, response * body.DISPOSAL * z2, response * body.LIVER * z3
    k1, k2, k3 = body.ACTION_RATES
    rates = [
        -d1 / body.GUT_TIME,
        (d1 - d2) / body.GUT_TIME,
        insulin - s1 / body.SKIN_TIME,
        (s1 - s2) / body.SKIN_TIME,
        s2 / (body.SKIN_TIME * body.INSULIN_VOLUME * body.WEIGHT) - body.INSULIN_LOSS * plasma,
        k1 * (plasma - z1),
        k2 * (plasma - z2),
        k3 * (plasma - z3),
        d2 / body.GUT_TIME / body.WEIGHT
        + body.LIVER_OUTPUT * max(1 - x3, 0.0)
        - brain
        - kidney
        - x1 * q1
        + body.EXCHANGE * q2,
        x1 * q1 - (body.EXCHANGE + x2) * q2,
    ]
    return [value + rate for value, rate in zip(now, rates, strict=True)]


# --------------------------------------------------------------------------------------------------------------- robots


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
    sides = (speed, "mujoco.batch, all cores"), (plain_speed, "SyncVectorEnv")
    return [speeds_row(what, "k", *sides, "bit for bit the same observations, the policy included")]


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

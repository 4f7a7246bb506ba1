"""Families of robots: their sums recomputed from Gymnasium's episodes, what falling means, lanes of several tasks."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
import pytest

import surefoot as sf
from gym_robots import with_factors, with_motors, with_payload
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import SteppedTask
from surefoot.errors import InvalidInput
from surefoot.lab.robots.families import largest_cost
from surefoot.lab.robots.payments import Effort, Tracking
from surefoot.lab.robots.robots import HOPPER
from surefoot.lab.robots.task import LocomotionTask, world_of
from surefoot.testing import task_suite

FAMILIES: dict[str, Callable[[], Any]] = {
    "hopper published": partial(sf.tasks.hopper_velocity, "published"),
    "hopper text": partial(sf.tasks.hopper_velocity, "text"),
    "cheetah published": partial(sf.tasks.half_cheetah_velocity, "published"),
    "cheetah text": partial(sf.tasks.half_cheetah_velocity, "text"),
    "cheetah motors": sf.tasks.half_cheetah_motors,
    "hopper motors": sf.tasks.hopper_motors,
    "cheetah dynamics": sf.tasks.half_cheetah_dynamics,
    "cheetah payload": sf.tasks.half_cheetah_payload,
    "cheetah limit": sf.tasks.half_cheetah_speed_limit,
    "hopper limit": sf.tasks.hopper_speed_limit,
}
LOCOMOTION_PAGE = Path(__file__).parents[2] / "docs" / "locomotion.md"
FALLING = [name for name in FAMILIES if name.startswith("hopper")]


@pytest.fixture(autouse=True)
def _where_logs_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's environments let MuJoCo write one into the working directory."""
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Shaking:
    """Normal actions of a given size, whatever is seen."""

    size: float
    kind: ClassVar[str] = "shaking"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        k = {11: 3, 17: 6}[np.shape(observation)[-1]]
        return self.size * rng.standard_normal((*np.shape(observation)[:-1], k))

    def to_arrays(self) -> dict[str, Any]:
        return {}


def some_task(name: str, seed: int = 0) -> LocomotionTask:
    tasks = FAMILIES[name]()
    return tasks.task(tasks.sample(1, np.random.default_rng(seed))[0])


def environment(name: str, parameter: np.ndarray) -> Any:
    robot = "Hopper-v5" if name.startswith("hopper") else "HalfCheetah-v5"
    if name == "cheetah dynamics":
        return with_factors(robot, dof_damping=parameter[0], geom_friction=parameter[1])
    if name == "cheetah payload":
        return with_payload(robot, *parameter)
    return with_motors(robot, parameter[0] if name.endswith("motors") else 1.0)


def rests(name: str, spent: float) -> bool:
    """Whether the battery, or what an emergency stop allows for, may not suffice for one more step."""
    stops = {"cheetah dynamics": 50.0, "cheetah payload": 50.0}
    batteries = {"cheetah motors": 2.5 * 0.25, "hopper motors": 2.5 * 0.07, **stops}
    step = 1.0 if name in stops else 1.4**2 / 200
    return spent + step > batteries.get(name, np.inf)


# ------------------------------------------------------------------------------------------- sums, computed another way


def by_hand(name: str, env: Any, action: np.ndarray, parameter: np.ndarray) -> tuple[np.ndarray, float, float, bool]:
    """Observation, reward, cost and whether it fell, one step of Gymnasium's environment, its action in the box."""
    observation, reward, fell, _, info = env.step(action)
    velocity, hidden = info["x_velocity"], float(parameter[0])
    off = abs(velocity - hidden)
    match name:
        case "hopper published":  # as the paper's code has it, from Gymnasium's own reward
            paid = -min(off, 2.0) + (reward - velocity), -100 * (reward - velocity - 1)
        case "hopper text":
            paid = -min(off, 2.0), -100 * info["reward_ctrl"]
        case "cheetah published":
            paid = -min(off, 4.0), -info["reward_ctrl"]
        case "cheetah text":
            place_geoms(env)
            paid = -min(off, 4.0), min(max(env.data.geom("head").xpos[2] - 0.55, 0.0), 1.0)
        case "cheetah motors":
            paid = min(max(velocity, -4.0), 6.0) / 200, hidden**2 * sum(action**2) / 6 / 200
        case "hopper motors":
            paid = min(max(velocity, -2.0), 4.0) / 200, hidden**2 * sum(action**2) / 3 / 200
        case "cheetah dynamics" | "cheetah payload":
            paid = min(max(velocity, -4.0), 6.0) / 200, float(max(abs(env.data.qvel[3:])) > 10)
        case _:
            paid = reward, float(velocity > hidden)
    return observation, *paid, bool(fell)


def place_geoms(env: Any) -> None:
    """Positions of the geoms at the new state: a step leaves those before its last part."""
    mujoco.mj_kinematics(env.model, env.data)


def after_fall(name: str, steps: int) -> tuple[float, float]:
    """What `steps` steps that are missing pay, as seen from the fall, and no discount but that of the cost."""
    paid = {"hopper text": (-2.0, 0.0), "hopper motors": (-1 / 200, 0.175 / 200)}
    reward, cost = paid.get(name, (0.0, 0.0))
    return steps * reward, steps * cost


def discount(name: str) -> float:
    return 0.99 if name.endswith(("published", "text")) else 1.0


@pytest.mark.short_for(name=["hopper motors", "cheetah text"])
@pytest.mark.parametrize("name", FAMILIES)
def test_worlds_pay_what_gymnasiums_episodes_say(name: str) -> None:
    """Step by step and in sum; observations bit by bit, in lanes that begin again when they have ended."""
    task, n, rng = some_task(name), 3, np.random.default_rng(11)
    world, horizon = task.world(n), task.units.episode_length
    envs = [environment(name, task.parameter) for _ in range(n)]
    due, time, sums, ends = np.ones(n, bool), np.zeros(n, int), np.zeros((n, 2)), 0
    for _ in range(250):
        seeds = np.random.default_rng(ends).integers(2**31, size=due.sum())
        shown = world.begin(due, np.random.default_rng(ends))
        for lane, seed in zip(np.flatnonzero(due), seeds, strict=True):
            assert (envs[lane].reset(seed=int(seed))[0] == shown[lane]).all()
            time[lane], sums[lane] = 0, 0.0
        actions = rng.normal(scale=0.8, size=(n, world.shapes.action))
        stepped = world.step(actions)
        for lane, env in enumerate(envs):
            resting = rests(name, sums[lane, 1])
            done = np.zeros_like(actions[lane]) if resting else actions[lane].clip(-1, 1)
            seen, reward, cost, fell = by_hand(name, env, done, task.parameter)
            cost = 0.0 if resting else cost
            if fell:
                more = after_fall(name, horizon - 1 - time[lane])
                reward, cost = reward + more[0], cost + more[1]
            assert (stepped.observation[lane] == seen).all()
            assert stepped.reward[lane] == pytest.approx(reward, rel=1e-9, abs=1e-9)
            assert stepped.cost[lane, 0] == pytest.approx(cost, rel=1e-9, abs=1e-9)
            sums[lane] += reward, discount(name) ** time[lane] * cost
            time[lane] += 1
            assert stepped.terminated[lane] == fell
            assert stepped.ended[lane] == (fell or time[lane] == horizon)
        assert stepped.sums == pytest.approx(sums, rel=1e-9, abs=1e-9)
        due = stepped.ended
        ends += due.sum()
    assert ends >= (3 if horizon == 200 else 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_episodes_are_those_of_gymnasium(name: str) -> None:
    """What was observed is what the recorded actions do there, and sums are of that; also when cut off early."""
    task, n, steps = some_task(name), 4, 30
    outcomes = task.episodes(Shaking(0.9), steps).run(n, np.random.default_rng(7), transitions=True)
    again = np.random.default_rng(7)
    again.integers(2**63, size=2)  # the stream of the policy
    watched = outcomes.watched()
    for k, seed in enumerate(again.integers(2**31, size=n)):
        env, sums = environment(name, task.parameter), np.zeros(2)
        assert (env.reset(seed=int(seed))[0] == watched.observations[k, 0]).all()
        for t in range(watched.steps[k]):
            seen, reward, cost, fell = by_hand(name, env, watched.actions[k, t], task.parameter)
            assert (seen == watched.observations[k, t + 1]).all()
            sums += reward, discount(name) ** t * cost
        assert fell or watched.steps[k] == steps
        if fell:
            sums += after_fall(name, steps - watched.steps[k])
        assert outcomes.sums[k] == pytest.approx(sums, rel=1e-9)
    assert (np.abs(watched.actions) <= 1).all()


# -------------------------------------------------------------------------------------------------------- the contracts


@pytest.mark.short_for(name=["hopper text"])
@pytest.mark.parametrize("name", FAMILIES)
def test_families_keep_the_contract_of_tasks(name: str) -> None:
    task_suite.check(lambda: some_task(name), [Shaking(0.5)], episodes=20)


@pytest.mark.short_for(name=["hopper text", "cheetah motors"])
@pytest.mark.parametrize("name", FAMILIES)
def test_ranges_hold_for_violent_policies(name: str) -> None:
    """Steps, but for those of falls, and sums stay in their ranges at the ends of the parameter, whatever is done."""
    tasks, rng = FAMILIES[name](), np.random.default_rng(4)
    world = world_of([tasks.task(end) for end in tasks.distribution.support.T], 4)
    units, due = world.units, np.ones(8, bool)
    tracks = np.repeat(rng.choice([-1.0, 1.0], (30, 8, world.shapes.action)), 10, axis=0)
    for actions in tracks:
        if due.any():
            world.begin(due, rng)
        stepped = world.step(actions)
        whole = ~stepped.terminated
        assert (stepped.reward[whole] >= units.reward_range[0]).all()
        assert (stepped.reward[whole] <= units.reward_range[1]).all()
        assert (stepped.cost[:, 0] >= units.cost_range[0, 0]).all()
        assert (stepped.cost[whole, 0] <= units.cost_range[0, 1] * (1 + 1e-12)).all()
        slack = 1e-9 * np.ptp(units.reachable, axis=1)
        assert (stepped.sums >= units.reachable[:, 0] - slack).all()
        assert (stepped.sums <= units.reachable[:, 1] + slack).all()
        due = stepped.ended


def test_the_largest_cost_of_an_episode() -> None:
    """Of all times at which it may end, one by one."""
    for step, fall in ((0.3, 100.0), (0.3, 0.0), (0.6, 2.0), (1.0, 30.0)):
        ends = [sum(step * 0.99**t for t in range(end + 1)) + (fall * 0.99**end if fall else 0.0) for end in range(200)]
        assert largest_cost(step, fall) == pytest.approx(max(ends))


@pytest.mark.parametrize("name", FAMILIES)
def test_tasks_can_be_told_apart_and_sent(name: str) -> None:
    tasks = FAMILIES[name]()
    middle = tasks.task(tasks.distribution.support.mean(axis=1))
    assert isinstance(middle, Task)
    assert isinstance(middle, SteppedTask)
    assert middle.digest() == FAMILIES[name]().task(middle.parameter).digest()
    for k in range(tasks.dimension):
        changed = middle.parameter * np.where(np.arange(tasks.dimension) == k, 1.01, 1.0)
        assert middle.digest() != tasks.task(changed).digest()
    assert pickle.loads(pickle.dumps(middle)).digest() == middle.digest()
    assert tasks.digest() == FAMILIES[name]().digest()


@pytest.mark.parametrize(
    "change",
    [
        {"reward": Tracking(2.0, upright=0.9)},
        {"cost": Effort(0.2)},
        {"cost_discount": 0.98},
        {"after_fall": (-1.0, 0.0)},
        {"factors": {"actuator_gear": 0}},
        {"robot": replace(HOPPER, frame_skip=5)},
        {"units": Units(1.0, (-2.0, 0.0), np.array([[0.0, 0.3]]), np.array([6.0]), 200)},
        {"units": Units(1.0, (-2.0, 0.0), np.array([[0.0, 0.3]]), np.array([5.0]), 100)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_family_is_in_its_digests(change: dict[str, Any]) -> None:
    task = some_task("hopper text")
    assert LocomotionTask(replace(task.system, **change), task.parameter).digest() != task.digest()


# ------------------------------------------------------------------------------------------------------------- falling


@pytest.mark.long
@pytest.mark.parametrize("name", FALLING)
def test_falling_early_does_not_pay(name: str) -> None:
    """Against standing still for longer, by sums of one episode: falls end it, and what is missing is as declared."""
    task = some_task(name)
    thrown = task.episodes(Shaking(5.0), 200).run(40, np.random.default_rng(0), transitions=True)
    calm = task.episodes(Shaking(0.0), 200).run(40, np.random.default_rng(0), transitions=True)
    assert thrown.watched().steps.mean() < 60 < calm.watched().steps.mean()
    assert thrown.reward.mean() < calm.reward.mean()
    if name in ("hopper published", "hopper motors"):
        assert (thrown.cost[:, 0] > task.units.budget[0]).mean() > (calm.cost[:, 0] > task.units.budget[0]).mean()


def test_a_fall_as_published_costs_100_discounted() -> None:
    task = some_task("hopper published")
    outcomes = task.episodes(Shaking(5.0), 200).run(20, np.random.default_rng(3), transitions=True)
    steps = outcomes.watched().steps
    assert (steps < 200).all()
    assert (outcomes.cost[:, 0] >= 100 * 0.99 ** (steps - 1)).all()


# ---------------------------------------------------------------------------------------------- lanes of several tasks


@pytest.mark.parametrize("name", ["hopper text", "cheetah motors", "cheetah dynamics"])
def test_lanes_of_several_tasks_are_those_of_each(name: str) -> None:
    """Bit by bit: seeds are drawn in the order of the lanes."""
    family, rng = FAMILIES[name](), np.random.default_rng(8)
    tasks = [family.task(parameter) for parameter in family.sample(3, rng)]
    mixed, alone = world_of(tasks, 2, threads=2), [task.world(2) for task in tasks]
    actions, everything = rng.normal(size=(40, 6, mixed.shapes.action)), np.ones(6, bool)
    seeds, parted = np.random.default_rng(9), np.random.default_rng(9)
    shown = mixed.begin(everything, seeds)
    assert (shown == np.concatenate([world.begin(np.ones(2, bool), parted) for world in alone])).all()
    for action in actions:
        together = mixed.step(action)
        apart = [world.step(part) for world, part in zip(alone, np.split(action, 3), strict=True)]
        for k, part in enumerate(together):
            assert (part == np.concatenate([each[k] for each in apart])).all()
        if together.ended.any():
            mixed.begin(together.ended, seeds)
            for world, part in zip(alone, np.split(together.ended, 3), strict=True):
                world.begin(part, parted)
    assert mixed.lanes == 6


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (sf.tasks.half_cheetah_motors, [[0.6], [1.4]]),
        (sf.tasks.hopper_motors, [[0.6], [1.4]]),
        (sf.tasks.half_cheetah_dynamics, [[1.0, 1.0], [0.9, 1.0]]),
        (sf.tasks.half_cheetah_dynamics, [[1.0, 1.0], [1.0, 0.9]]),
        (sf.tasks.half_cheetah_payload, [[1.0, 0.1], [0.9, 0.1]]),
        (sf.tasks.half_cheetah_payload, [[1.0, 0.1], [1.0, 0.2]]),
    ],
)
def test_nobody_sees_the_parameter(make: Callable[[], Any], parameters: list[list[float]]) -> None:
    """Episodes begin alike whatever it is, and go on in other ways."""
    worlds, rng = [make().task(parameter).world(2) for parameter in parameters], np.random.default_rng(1)
    first = [world.begin(np.ones(2, bool), np.random.default_rng(0)) for world in worlds]
    assert (first[0] == first[1]).all()
    for actions in rng.normal(size=(10, 2, worlds[0].shapes.action)):
        moved = [world.step(actions).observation for world in worlds]
    assert (moved[0] != moved[1]).any(axis=1).all()


# --------------------------------------------------------------------------------------------------------------- motors


def test_the_same_actions_spend_more_with_stronger_motors() -> None:
    gains = [0.6, 1.0, 1.4]
    velocity, energy = np.array([sine_gait(gain, 0.5, lanes=8) for gain in gains]).T
    np.testing.assert_allclose(energy / energy[1], np.square(gains), rtol=1e-9)
    assert (np.diff(velocity) > 0).all()


@pytest.mark.long
def test_the_page_tells_what_the_gait_does() -> None:
    section = LOCOMOTION_PAGE.read_text().split("## Motors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", section, re.MULTILINE)
    assert len(rows) == 6
    for gain, size, told_velocity, told_energy in rows:
        velocity, energy = sine_gait(float(gain), float(size))
        assert velocity == pytest.approx(
            float(told_velocity), abs=0.15
        )  # gaits are chaotic, machines round differently
        assert f"{energy:.3f}" == told_energy


def sine_gait(gain: float, size: float, lanes: int = 40) -> tuple[float, float]:
    """Mean velocity and energy of an episode of HalfCheetah per lane, with an open-loop gait."""
    world = sf.tasks.half_cheetah_motors().task(gain).world(lanes)
    world.begin(np.ones(lanes, bool), np.random.default_rng(0))
    sizes, phases = np.array([1.0, 1.0, 0.8, 1.0, 0.7, 1.0]), np.array([3.07, 4.05, 1.55, 5.22, 5.1, 4.62])
    for t in range(200):
        stepped = world.step(np.tile(size * sizes * np.sin(1.2674 * t + phases), (lanes, 1)))
    assert stepped.ended.all()
    velocity, energy = stepped.sums.mean(axis=0)
    return float(velocity), float(energy)


@pytest.mark.parametrize(("make", "battery"), [(sf.tasks.half_cheetah_motors, 0.625), (sf.tasks.hopper_motors, 0.05)])
def test_an_empty_battery_ends_all_effort(make: Callable[[], Any], battery: float) -> None:
    """Until then nothing differs; from then on the robot moves as one that does nothing, for nothing. Hopper falls
    before it has spent its own battery, and has a smaller one here."""
    system, step = make().task(1.4).system, 1.4**2 / 200
    assert system.battery == 2.5 * system.units.budget[0]
    worlds = [LocomotionTask(replace(system, battery=size), np.array([1.4])).world(3) for size in (battery, np.inf)]
    for world in worlds:
        world.begin(np.ones(3, bool), np.random.default_rng(0))
    wanted = np.where(np.arange(3) == 0, 0.1, 1.0)[:, None] * np.ones(worlds[0].shapes.action)  # the first is mild
    emptied, spent = np.zeros(3, bool), np.zeros(3)
    ended = np.zeros(3, bool)
    while not ended.all():
        taken = worlds[0].executable(wanted)
        empty = ~taken.any(axis=1)
        own, other = worlds[0].step(wanted), worlds[1].step(np.where(empty[:, None], 0.0, wanted))
        assert (taken[~empty] == wanted[~empty]).all()
        assert (own.observation == other.observation).all()
        assert (own.sums == other.sums).all()
        assert (own.cost[empty & ~own.ended] == 0).all()
        spent = np.where(own.terminated, spent, own.sums[:, 1])  # before anything that a fall costs
        emptied, ended = emptied | (empty & ~ended), own.ended
    assert emptied.tolist() == [False, True, True]
    assert (spent <= battery).all()
    assert (spent[1:] > battery - 2 * step).all()


# ------------------------------------------------------------------------------ damping and friction, mass and payload


def test_the_same_actions_turn_joints_too_fast_where_there_is_less_damping() -> None:
    tasks, rng = sf.tasks.half_cheetah_dynamics(), np.random.default_rng(0)
    costs = [
        tasks.task([damping, 1.0]).episodes(Shaking(0.5), 60).run(20, rng).cost.mean() for damping in (0.5, 1.0, 1.5)
    ]
    assert costs[0] > 1.5 * costs[1] > 2 * costs[2]


def test_an_emergency_stop_bounds_what_is_paid() -> None:
    """Joints that still turn too fast after it are not paid for: without that episodes would cost more."""
    world, rng = sf.tasks.half_cheetah_dynamics().task([0.5, 0.57]).world(6), np.random.default_rng(0)
    world.begin(np.ones(6, bool), rng)
    paid, unpaid = np.zeros(6), np.zeros(6)
    for _ in range(200):
        wanted, stopped = rng.choice([-1.0, 1.0], (6, 6)), paid >= 50
        assert (world.executable(wanted) == np.where(stopped[:, None], 0.0, wanted)).all()
        stepped = world.step(wanted)
        fast = (np.abs(stepped.observation[:, -6:]) > 10).any(axis=1)
        assert (stepped.cost[:, 0] == (fast & ~stopped)).all()
        paid, unpaid = paid + (fast & ~stopped), unpaid + (fast & stopped)
    assert (stepped.sums[:, 1] == 50).all()
    assert unpaid.any()


# -------------------------------------------------------------------------------------------------------- distributions


def test_targets_are_drawn_as_declared() -> None:
    rng = np.random.default_rng(0)
    published, text = (sf.tasks.hopper_velocity(version).sample(4000, rng) for version in ("published", "text"))
    assert published.mean() == pytest.approx(0.5, abs=0.01)
    assert published.std() == pytest.approx(0.1, abs=0.005)
    inside = np.random.default_rng(1).normal(0.5, np.sqrt(0.1), 100_000)
    inside = inside[(inside >= 0) & (inside <= 1)]  # rejection, another way to truncate
    assert text.std() == pytest.approx(inside.std(), abs=0.01)
    wide = sf.tasks.half_cheetah_velocity("published").sample(4000, rng)
    assert wide.std() == pytest.approx(2 / np.sqrt(12), abs=0.02)
    named = sf.tasks.half_cheetah_velocity("text").distribution
    assert (named.mean[0], named.std[0] ** 2) == (1.0, pytest.approx(0.3))
    for targets, high in ((published, 1), (text, 1), (wide, 2)):
        assert targets.min() >= 0
        assert targets.max() <= high


# ------------------------------------------------------------------------------------------------------ what is refused


def begun_world() -> Any:
    world = sf.tasks.hopper_motors().task(1.0).world(2)
    world.begin(np.ones(2, bool), np.random.default_rng(0))
    return world


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sf.tasks.hopper_velocity("v3"), "version must be 'published' or 'text', got 'v3'"),  # type: ignore[arg-type]
        (lambda: sf.tasks.hopper_motors().task(1.5), r"parameter must be \[1\], from 0.6 to 1.4, got \[1.5\]"),
        (
            lambda: sf.tasks.half_cheetah_dynamics().task([1.0, 1.5]),
            r"parameter must be \[2\], from 0.5 to 2 and from 0.57 to 1.43, got \[1.0, 1.5\]",
        ),
        (lambda: begun_world().step(np.full((2, 3), np.nan)), "got one that is none"),
        (
            lambda: world_of([some_task("hopper text"), some_task("hopper published")], 1),
            r"tasks\[1\] must be of the family of tasks\[0\]",
        ),
        (lambda: world_of([], 1), "tasks must be at least one"),
        (lambda: some_task("hopper text").episodes(object(), 5), "policy must be one that can act"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()

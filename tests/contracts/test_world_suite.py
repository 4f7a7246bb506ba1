"""The shipped checks of worlds pass what is right, and catch what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from bandit_world import BanditWorld
from gym_strangers import DECLARED, Pushed, Walk
from surefoot.cmdp.world import Stepped, World
from surefoot.testing import world_suite

GAINS = np.array([0.5, 1.0, 2.0])


def gym(env: Callable[[Any], Any], **declared: Any) -> World:
    tasks = sf.tasks.from_gym(env, sf.tasks.Uniform(0.0, 1.0), **DECLARED | declared)
    return tasks.task(0.7).world(2, tasks.task(0.2))


def robots(family: Any, parameters: tuple[Any, Any]) -> World:
    tasks = family()
    return tasks.task(parameters[0]).world(2, tasks.task(parameters[1]))


WORLDS: dict[str, tuple[Callable[[], World], float | None]] = {
    "bandit": (lambda: BanditWorld(GAINS), None),
    "choice": (lambda: BanditWorld(GAINS, discrete=True), None),
    "hopper": (lambda: robots(sf.tasks.hopper_motors, (0.8, 1.2)), None),
    "hopper, discounted costs": (lambda: robots(sf.tasks.hopper_velocity, (0.4, 0.6)), 0.99),
    "cheetah": (lambda: robots(sf.tasks.half_cheetah_motors, (0.8, 1.2)), None),
    "damped cheetah": (lambda: robots(sf.tasks.half_cheetah_dynamics, ([0.6, 1.0], [1.4, 0.8])), None),
    "laden cheetah": (lambda: robots(sf.tasks.half_cheetah_payload, ([0.6, 0.0], [1.4, 0.5])), None),
    "walk": (lambda: gym(Walk), None),
    "walk that pays after its end": (lambda: gym(Walk, after_termination=(0.0, 1.0), discount=0.9), None),
    "walk without a horizon": (lambda: gym(Walk, horizon=None, discount=0.8), None),
    "pushed walk": (lambda: gym(Pushed, clip_actions=True), None),
}


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_keep_the_contract(name: str) -> None:
    build, cost_discount = WORLDS[name]
    world_suite.check(build, cost_discount=cost_discount)


# ----------------------------------------------------------------------------------------------------- what is wrong


class Restless(BanditWorld):
    """One lane ends early, and goes on."""

    def step(self, actions: Any) -> Stepped:
        step = super().step(actions)
        return step._replace(ended=step.ended | ((self.t >= 5) & (np.arange(self.lanes) == 0)))


class Forgetful(BanditWorld):
    def step(self, actions: Any) -> Stepped:
        step = super().step(actions)
        return step._replace(sums=np.column_stack([step.reward, step.cost]))


class Reused(BanditWorld):
    """Hands out the arrays in which it counts."""

    def step(self, actions: Any) -> Stepped:
        return super().step(actions)._replace(sums=self.sums)


class Flat(BanditWorld):
    def step(self, actions: Any) -> Stepped:
        step = super().step(actions)
        return step._replace(cost=step.cost[:, 0])


class Moody(BanditWorld):
    def begin(self, lanes: Any, rng: np.random.Generator) -> Any:
        return super().begin(lanes, np.random.default_rng())


class Sweeping(BanditWorld):
    """Begins all lanes whichever are asked for."""

    def begin(self, lanes: Any, rng: np.random.Generator) -> Any:
        return super().begin(np.ones(self.lanes, np.bool_), rng)


class Clearing(BanditWorld):
    """Counts anew in all lanes."""

    def begin(self, lanes: Any, rng: np.random.Generator) -> Any:
        self.sums[:] = 0.0
        return super().begin(lanes, rng)


class Endless(BanditWorld):
    def step(self, actions: Any) -> Stepped:
        return super().step(actions)._replace(ended=np.zeros(self.lanes, np.bool_))


class Undecided(BanditWorld):
    def step(self, actions: Any) -> Stepped:
        return super().step(actions)._replace(terminated=np.ones(self.lanes, np.bool_))


class Credulous(BanditWorld):
    def taken(self, actions: Any) -> Any:
        return np.resize(actions, self.lanes).astype(np.float64)


class Narrow(BanditWorld):
    """Declares less than it pays."""

    def __init__(self) -> None:
        super().__init__(GAINS)
        self.units = replace(self.units, cost_sum_range=(0.0, 1e-3))


class Unitless(BanditWorld):
    def __init__(self) -> None:
        super().__init__(GAINS)
        self.units: Any = "costs per step"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Restless, "of an ended lane must stay as it was|goes on although nobody"),
        (Forgetful, "sums are off by"),
        (Reused, "what an earlier step returned was changed by a later one"),
        (Flat, r"cost must be \[3, 1\] of float64"),
        (Moody, "equal generators gave other steps in the same world"),
        (Sweeping, "beginning a lane changed what others show"),
        (Clearing, "beginning a lane changed the sums of others"),
        (Endless, "episodes take 11 steps of 10"),
        (Undecided, "a lane has terminated and not ended"),
        (Credulous, "actions for fewer lanes than there are must be refused"),
        (lambda gains: Narrow(), "leave the declared ranges"),
        (lambda gains: Unitless(), "units must be Units, got str"),
        (lambda gains: BanditWorld(gains[:1]), "two lanes at least, got 1"),
    ],
)
def test_what_is_wrong_is_caught(wrong: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        world_suite.check(lambda: wrong(GAINS))


def test_the_discount_of_costs_matters() -> None:
    with pytest.raises(AssertionError, match="sums are off by"):
        world_suite.check(WORLDS["hopper, discounted costs"][0])

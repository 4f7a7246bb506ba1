"""What must not change between versions: the digests and recipes of families and of their tasks, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from record import check

import surefoot as sf

tasks = sf.tasks


def facts(family: tasks.TaskDistribution) -> dict[str, Any]:
    """A family as others see it, with tasks at the ends of its parameters and between."""
    low, high = family.distribution.support.T
    probes = family.distribution.probes()
    units = family.units
    return {
        "digest": family.digest(),
        "recipe": family.recipe,
        "distribution": family.distribution.describe(),
        "safe_parameter": family.safe_parameter,
        "affine": family.affine is not None,
        "coordinates": None if family.coordinates is None else family.coordinates(probes),
        "shared_costs": family.shared_costs,
        "support": [low, high],
        "spaces": family.example.spaces,
        "units": [units.discount, units.horizon, units.budget, list(units.reward_range), units.cost_range],
        "tasks": {str(list(probe)): family.task(probe).digest() for probe in probes[:: max(1, len(probes) // 3)]},
        "drawn": family.sample(3, np.random.default_rng(7)),
    }


def lake(theta: np.ndarray) -> Any:
    return gymnasium.make("FrozenLake-v1", is_slippery=True, success_rate=1 - float(theta[0]))


def lakes(slips: Any = None) -> tasks.TaskDistribution:
    holes, slips = (5, 7, 11, 12), slips or tasks.Uniform(0.0, 0.4)
    return tasks.from_gymnasium_table(
        lake, slips, cost=lambda s, a, after: float(after in holes), budget=0.15, discount=0.99
    )


def machine(slip: float, horizon: int | None = None) -> sf.TabularCMDP:
    """Two states, the second one costly; action 1 pays more and leads there with probability `slip`."""
    chance = np.zeros((2, 2, 2))
    chance[:, 0], chance[:, 1] = [0.8, 0.2], [1 - slip, slip]
    discount, budget = (0.5, 0.7) if horizon is None else (1.0, 2.5)
    reward, cost = [[0.2, 1.0]] * 2, [[[0.0, 0.1], [0.6, 1.0]]] if horizon is None else [[[0.0, 0.0], [1.0, 1.0]]]
    return sf.TabularCMDP(chance, reward, cost, budget, [0.5, 0.5], discount, (0.0, 1.0), [[0.0, 1.0]], horizon=horizon)


def machines(horizon: int | None = None) -> tasks.TaskDistribution:
    return tasks.from_arrays([machine(slip, horizon) for slip in (0.1, 0.3, 0.5, 0.7)], [0.4, 0.3, 0.2, 0.1])


def curved() -> tasks.TaskDistribution:
    """Neither affine nor finite: bounds of values come from samples."""
    return tasks.family(
        lambda theta: machine(float(theta[0] ** 2)), tasks.Uniform(0.3, 0.8), coordinates=lambda theta: theta**2
    )


def tails() -> tasks.TaskDistribution:
    return tasks.cvar(machines(horizon=6), tasks.Tail(0.8, 5.0, 3.0))


def layers() -> tasks.TaskDistribution:
    def layer(slip: float) -> sf.TabularCMDP:
        task = machine(slip)
        chance = [[[0.8, 0.2], [1 - slip, slip]]] * 2
        return tasks.layered(chance, task.reward, task.cost, 2.0, [0.5, 0.5], 4)

    return tasks.from_arrays([layer(slip) for slip in (0.1, 0.4)])


class Cart(gymnasium.Env[Any, Any]):
    """A robot in one line: pushes u through a motor of gain s at speed s·u + noise; reward its speed, cost (s·u)²."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        force = self.gain * float(action[0])
        speed = force + 0.1 * self.np_random.standard_normal()
        paid = {"cost": min(force**2, 2.5) / 10}
        return np.array([speed]), float(np.clip(speed, 0.0, 2.0) / 10), False, False, paid


def carts() -> tasks.TaskDistribution:
    return tasks.from_gym(
        lambda theta: Cart(float(theta[0])),
        tasks.Uniform(0.6, 1.4),
        budget=0.5,
        horizon=10,
        reward_range=(0.0, 0.2),
        cost_range=(0.0, 0.25),
    )


def mixed() -> tasks.TaskDistribution:
    """Every distribution of parameters in one."""
    parts = [
        tasks.Normal([0.3, 0.4], std=0.1, low=0.2, high=0.7),
        tasks.Normal(0.3, variance=0.01, low=0.2, high=0.7, how="truncated"),
        tasks.LogUniform(0.1, 0.9),
        tasks.Finite([0.1, 0.2, 0.4], [0.5, 0.25, 0.25]),
    ]
    return tasks.family(lambda theta: machine(float(np.mean(theta))), tasks.Independent(parts))


FAMILIES: dict[str, Callable[[], tasks.TaskDistribution]] = {
    "gridworld": tasks.gridworld,
    "gridworld as in the text": lambda: tasks.gridworld("text", 0.02, 0.35),
    "windy": tasks.windy_gridworld,
    "windy, other arguments": lambda: tasks.windy_gridworld(0.02, 0.03, 0.25, 0.24),
    "maintenance": tasks.maintenance,
    "maintenance, other arguments": lambda: tasks.maintenance(0.02, 0.03, 0.22),
    "factored": tasks.factored,
    "factored, less failure": lambda: tasks.factored(0.1),
    "media": tasks.media,
    "media, other drains": lambda: tasks.media(0.75, 0.8),
    "inventory": tasks.inventory,
    "inventory, other shifts": lambda: tasks.inventory(0.05),
    "glucose": tasks.glucose,
    "glucose, other patients": lambda: tasks.glucose(0.8, 1.5, 50.0, 60.0),
    "two walls": tasks.two_walls,
    "two walls, other noise": lambda: tasks.two_walls(0.06, 0.1),
    "half-cheetah motors": tasks.half_cheetah_motors,
    "half-cheetah speed limit": tasks.half_cheetah_speed_limit,
    "half-cheetah velocity": tasks.half_cheetah_velocity,
    "half-cheetah velocity as in the text": lambda: tasks.half_cheetah_velocity("text"),
    "hopper motors": tasks.hopper_motors,
    "hopper speed limit": tasks.hopper_speed_limit,
    "hopper velocity": tasks.hopper_velocity,
    "Gymnasium table": lakes,
    "Gymnasium environment": carts,
    "arrays": machines,
    "arrays with a horizon": lambda: machines(6),
    "own function": curved,
    "every distribution": mixed,
    "cvar": tails,
    "layered": layers,
    "hard instances": lambda: tasks.HardInstances(2).family(),
}
CASES = {name: (lambda made=made: facts(made())) for name, made in FAMILIES.items()}


@pytest.mark.parametrize("case", CASES)
def test_families_are_those_that_were_recorded(case: str) -> None:
    check("tasks", case, CASES[case])

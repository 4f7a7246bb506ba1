"""Environments as strangers write them: a walk that keeps all rules, and one that breaks each of them in turn."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from surefoot.arrays import Floats

# What the walk is declared as: a step to either side, paid for being near 0, at a cost beyond 1, and it ends beyond 3.
DECLARED: dict[str, Any] = {"budget": 5.0, "horizon": 30, "reward_range": (0.0, 1.0), "cost_range": (0.0, 1.0)}


class Walk(gymnasium.Env[Any, Any]):
    """x ~ U(-1, 1), x += ±0.5 + theta·noise; keeps every rule."""

    observation_space: Any = Box(-20.0, 20.0, (1,), np.float64)
    action_space: Any = Discrete(2)

    def __init__(self, theta: Floats) -> None:
        self.theta = float(np.ravel(theta)[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = self.draw()
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.x += self.moved(action) + self.theta * self.draw()
        return self.seen(), self.reward(), self.ended, False, self.info()

    def draw(self) -> float:
        return float(self.np_random.uniform(-1, 1))

    def moved(self, action: Any) -> float:
        return float(action) - 0.5

    def seen(self) -> Any:
        return np.array([self.x])

    def reward(self) -> Any:
        return 1 / (1 + self.x**2)

    @property
    def ended(self) -> bool:
        return bool(abs(self.x) > 3)

    def cost(self) -> Any:
        return float(abs(self.x) > 1)

    def info(self) -> dict[str, Any]:
        return {"cost": self.cost()}


class Pushed(Walk):
    """With a continuous action."""

    action_space: Any = Box(-0.5, 0.5, (1,), np.float32)

    def moved(self, action: Any) -> float:
        return float(action[0])


class Parts(Walk):
    """Observations and actions of several parts."""

    observation_space: Any = gymnasium.spaces.Dict({"x": Walk.observation_space, "left": Discrete(2)})
    action_space: Any = gymnasium.spaces.MultiDiscrete([2, 3])

    def moved(self, action: Any) -> float:
        return float(action[0]) - 0.5

    def seen(self) -> Any:
        return {"x": np.array([self.x]), "left": int(self.x < 0)}


class TwoCosts(Walk):
    def cost(self) -> Any:
        return np.array([float(abs(self.x) > 1), abs(self.x) / 20])


class SixValues(Walk):
    """As Safety-Gymnasium."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info.pop("cost"), terminated, truncated, info


class CostFree(Walk):
    def info(self) -> dict[str, Any]:
        return {}


class Steady(Walk):
    """Nothing is random."""

    def draw(self) -> float:
        return 0.1


class OneForAll(Walk):
    """Made once; its task is set."""

    def __init__(self) -> None:
        self.closed = False

    def set_task(self, theta: Any) -> None:
        self.theta = float(np.ravel(theta)[0])

    def close(self) -> None:
        self.closed = True


# --------------------------------------------------------------------------------------------------- each rule, broken


class CostLostAtTheEnd(Walk):
    def info(self) -> dict[str, Any]:
        return {} if self.ended else super().info()


class SeedDoesNothing(Walk):
    def draw(self) -> float:
        return random.uniform(-1, 1)


class SeedGoesNowhere(Walk):
    """The same episode each time, whatever the seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.mine = np.random.default_rng(0)
        return super().reset(seed=seed)

    def draw(self) -> float:
        return float(self.mine.uniform(-1, 1))


class SeededAtBirth(Walk):
    """Seeded when it is made and never again."""

    def __init__(self, theta: Floats) -> None:
        super().__init__(theta)
        self.mine = np.random.default_rng(7)

    def draw(self) -> float:
        return float(self.mine.uniform(-1, 1))


class BornAtRandom(Walk):
    """Every instance is another one, as in simglucose."""

    def __init__(self, theta: Floats) -> None:
        super().__init__(theta + random.random())


class SharedGenerator(Walk):
    """One generator for all instances, which the last reset seeds."""

    shared: ClassVar[np.random.Generator] = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        type(self).shared = np.random.default_rng(seed)
        return super().reset(seed=seed)

    def draw(self) -> float:
        return float(self.shared.uniform(-1, 1))


class Remembers(Walk):
    """Something is carried over from episode to episode."""

    calls = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.calls += 1
        return super().reset(seed=seed)

    def seen(self) -> Any:
        return np.array([self.x + 0.01 * self.calls])


class NoSeed(Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class OldReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class FourValues(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class SixInAnotherOrder(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info["cost"], info


class InfoIsAList(Walk):
    def info(self) -> Any:
        return ["cost", 0.0]


class RewardTooLarge(Walk):
    def reward(self) -> Any:
        return 2.5


class RewardIsNaN(Walk):
    def reward(self) -> Any:
        return float("nan") if abs(self.x) > 1 else 0.0


class RewardIsAVector(Walk):
    def reward(self) -> Any:
        return np.array([0.5, 0.5])


class CostTooLarge(Walk):
    def cost(self) -> Any:
        return abs(self.x)


class CostIsInfinite(Walk):
    def cost(self) -> Any:
        return np.inf


class CostIsNone(Walk):
    def cost(self) -> Any:
        return None


class CostIsAMatrix(Walk):
    def cost(self) -> Any:
        return np.zeros((1, 1))


class ObservationOfAnotherShape(Walk):
    def seen(self) -> Any:
        return np.array([self.x, 0.0])


class ObservationIsNaN(Walk):
    def seen(self) -> Any:
        return np.array([self.x if abs(self.x) < 2 else np.nan])


class ManyActions(Walk):
    action_space: Any = gymnasium.spaces.Tuple([Discrete(2), Discrete(2)])


class Crashes(Walk):
    def reward(self) -> Any:
        raise ZeroDivisionError("no time has passed")


class Limited(Walk):
    """A time limit of its own, below the horizon."""

    def step(self, action: Any) -> Any:
        self.x = 0.0
        self.taken += 1
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.taken >= 10, info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.taken = 0
        return super().reset(seed=seed)

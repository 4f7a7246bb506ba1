"""A lake on which nobody knows how slippery the ice is, known through its simulator only.

Gymnasium's FrozenLake, states and actions being numbers, and the same side by side in NumPy. An episode pays at most
once and falls in at most once: declared so, value bounds are those of coins and not of sums over 40 steps. The careful
route hardly ever faces a hole it could slip into; the quick one is better where the ice is rough, and wet elsewhere.

    python examples/frozen_lake.py
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import surefoot as sf
from cartpole import say

# ------------------------------------------------------------------------------------------------------ the environment

LEFT, DOWN, RIGHT, UP = range(4)
HOLES = (5, 7, 11, 12)


def make_env(parameter: Any) -> gymnasium.Env[Any, Any]:
    """The chance to go where one wants to is the parameter; the time limit goes, the horizon is ours."""
    return gymnasium.make("FrozenLake-v1", success_rate=float(parameter[0]), max_episode_steps=-1)


def cost(state: Any, action: Any, after: Any, info: Any) -> Any:
    return 1.0 * np.isin(after, HOLES)


SYSTEM: dict[str, Any] = {
    "budget": 0.2,  # falls per episode
    "horizon": 40,
    "reward_range": (0, 1),
    "cost_range": (0, 1),
    "reward_sum_range": (0, 1),
    "cost_sum_range": (0, 1),
    "cost": cost,
    "make_vector": lambda parameter, n: Lakes(float(parameter[0]), n),
    "lanes": 1024,
}


CHANCES = sf.tasks.Uniform(0.6, 1.0)


def tasks(chances: Any = CHANCES) -> sf.tasks.TaskDistribution:
    return sf.tasks.from_gym(make_env, chances, **SYSTEM)


# --------------------------------------------------------------------------- the same side by side, for the speed of it


class Lakes:
    """n of them, stepped by the table of Gymnasium's environment: P[state][action] lists (chance, next state, ...)."""

    def __init__(self, rough: float, n: int) -> None:
        ways = [[table[k] for k in range(4)] for table in make_env([rough]).unwrapped.P.values()]
        padded = [[(3 * way)[:3] for way in row] for row in ways]  # holes and the goal have one way, the others three
        self.n, self.next = n, np.array([[[each[1] for each in way] for way in row] for row in padded])
        self.first, self.second = (
            np.array([[sum(each[0] for each in way[: k + 1]) for way in row] for row in padded]) for k in (0, 1)
        )

    def reset(self, *, seed: int | None = None) -> Any:
        self.rng, self.state = np.random.default_rng(seed), np.zeros(self.n, dtype=np.int64)
        return self.state, {}

    def step(self, action: Any) -> Any:
        place, drawn = (self.state, action), self.rng.random(self.n)
        self.state = self.next[place][
            np.arange(self.n), 1 * (drawn >= self.first[place]) + (drawn >= self.second[place])
        ]
        ended = np.isin(self.state, (*HOLES, 15))
        return self.state, 1.0 * (self.state == 15), ended, np.zeros(self.n, dtype=bool), {}


# ------------------------------------------------------------------------------------------------------ the controllers

CAREFUL = (LEFT, UP, UP, UP, LEFT, UP, LEFT, UP, UP, DOWN, LEFT, UP, UP, RIGHT, DOWN, UP)
QUICK = (DOWN, RIGHT, DOWN, LEFT, DOWN, UP, DOWN, UP, RIGHT, DOWN, DOWN, UP, UP, RIGHT, RIGHT, UP)


def along(route: tuple[int, ...]) -> sf.TabularPolicy:
    """A table is data: unlike a function it is stored with the set."""
    return sf.TabularPolicy(np.eye(4)[list(route)])


SAFE = along(CAREFUL)
CANDIDATES = {"quick": along(QUICK)}
ENVELOPES = sf.Envelopes(cells=16, holdout=129, uncovered=0.05, episodes=2000)


def main(chances: Any = CHANCES, episodes: int = 2000, envelopes: sf.Envelopes = ENVELOPES, seed: int = 0) -> sf.Run:
    sf.check_env(make_env, 0.8, **SYSTEM)
    lakes = tasks(chances)
    policies = sf.policy_set(lakes, safe=SAFE, candidates=CANDIDATES, seed=seed, envelopes=envelopes)
    rough = lakes.sample(1, np.random.default_rng(seed))[0]
    run = sf.adapt(policies, lakes.task(rough), method="certified", episodes=episodes, risk=0.1, seed=seed)
    say(lakes, f"a step succeeds with probability {rough[0]:.2f}", run)
    return run


if __name__ == "__main__":
    main()

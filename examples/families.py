"""How long training takes on other people's families, written as they would write them: no hint at all.

Two lakes and a taxi of Gymnasium's toy text, a sparse grid of 2,500 squares, twelve states that mix five random kernels
with four unknown weights, and 225 squares on which nothing is linear. Each in a process of its own, with the memory
that it took at most.

    python examples/families.py              all of them
    python examples/families.py taxi         one of them
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import scipy.sparse as sp
from gymnasium.envs.toy_text.frozen_lake import MAPS

import surefoot as sf
from surefoot.training.preflight import UncertifiedWarning

EPSILON, DELTA, DISCOUNT = 0.02, 0.05, 0.99


def lake(side: int, budget: float) -> sf.tasks.TaskDistribution:
    """Falling into a hole costs 1; the chance to slide to a side is unknown."""
    name = f"{side}x{side}"
    holes = [k for k, square in enumerate("".join(MAPS[name])) if square == "H"]

    def make_env(parameter: Any) -> Any:
        return gymnasium.make("FrozenLake-v1", map_name=name, success_rate=1 - parameter[0])

    def cost(state: int, action: int, after: int) -> float:
        return float(after in holes)

    slips = sf.tasks.Uniform(0.05, 0.5)
    return sf.tasks.from_gymnasium_table(make_env, slips, cost=cost, budget=budget, discount=DISCOUNT)


def taxi() -> sf.tasks.TaskDistribution:
    """501 states with the end. With an unknown probability the taxi does anything; picking up and dropping cost 1."""
    table = gymnasium.make("Taxi-v4").unwrapped.P  # type: ignore[attr-defined]

    def make_env(parameter: Any) -> Any:
        slip = float(parameter[0])
        env = gymnasium.make("Taxi-v4")
        env.unwrapped.P = {  # type: ignore[attr-defined]
            s: {
                a: [((1 - slip) * p, *rest) for p, *rest in table[s][a]]
                + [(slip / 6 * p, *rest) for other in range(6) for p, *rest in table[s][other]]
                for a in range(6)
            }
            for s in range(500)
        }
        return env

    def cost(state: int, action: int, after: int) -> float:
        return float(action >= 4)

    slips = sf.tasks.Uniform(0.0, 0.3)
    return sf.tasks.from_gymnasium_table(make_env, slips, cost=cost, budget=6.0, discount=DISCOUNT)


def grid(side: int, slipping: Callable[[float], float]) -> sf.tasks.TaskDistribution:
    """A goal in the corner and rocks on the way; with an unknown probability a step goes anywhere."""
    squares = np.arange(side * side)
    rows, columns = np.divmod(squares, side)
    moves = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
    there = np.stack([np.clip([rows + r, columns + c], 0, side - 1).T @ [side, 1] for r, c in moves], axis=1)
    there[-1] = squares[-1]
    rocks = np.random.default_rng(3).random(side * side) < 0.15
    rocks[0] = rocks[-1] = False
    row, column = np.repeat(np.arange(4 * side * side), 4), np.repeat(there, 4, axis=0).ravel()
    intended = np.tile(np.eye(4).ravel(), side * side)

    def build(parameter: np.ndarray) -> sf.TabularCMDP:
        slip = slipping(float(parameter[0]))
        chances = (1 - slip) * intended + slip / 4
        transitions = sp.csr_array((chances, (row, column)), shape=(4 * side * side, side * side))
        start = np.eye(side * side)[side * (side // 2) + side // 2]
        return sf.TabularCMDP(transitions, 1.0 * (squares == squares[-1]), 1.0 * rocks, 8.0, start, DISCOUNT)

    return sf.tasks.family(build, sf.tasks.Uniform(0.0, 0.3))


def mixed() -> sf.tasks.TaskDistribution:
    """Twelve states and three actions; four unknown weights mix five kernels."""
    rng = np.random.default_rng(0)
    kernels, reward = rng.dirichlet(np.full(12, 0.3), (5, 12, 3)), rng.random((12, 3))
    cost = (rng.random((12, 3)) < 0.3) * reward

    def build(weights: np.ndarray) -> sf.TabularCMDP:
        transitions = np.tensordot([1 - weights.sum(), *weights], kernels, axes=1)
        return sf.TabularCMDP(transitions, reward, cost, 3.2, np.eye(12)[0], 0.9)

    return sf.tasks.family(build, sf.tasks.Uniform([0.0] * 4, [0.2] * 4))


FAMILIES: dict[str, tuple[str, Callable[[], sf.tasks.TaskDistribution], float]] = {
    "lake4": ("FrozenLake 4x4", lambda: lake(4, 0.15), EPSILON),
    "lake8": ("FrozenLake 8x8", lambda: lake(8, 0.15), EPSILON),
    "taxi": ("Taxi, 501 states", taxi, EPSILON),
    "grid": ("grid of 2,500 squares, sparse", lambda: grid(50, lambda slip: slip), EPSILON),
    "mixed": ("12 states, affine in 4 parameters", mixed, 0.05),
    "curved": ("225 squares, slip = sin(parameter)", lambda: grid(15, np.sin), EPSILON),
}


def trained(name: str) -> None:
    what, make, epsilon = FAMILIES[name]
    warnings.simplefilter("ignore", UncertifiedWarning)
    begun = time.perf_counter()
    tasks = make()
    policies = sf.train(tasks, epsilon=epsilon, delta=DELTA, seed=0, progress=False)
    seconds = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells = policies.cells
    print(
        f"{what:36s} {seconds:6.1f} s {memory:6.0f} MB  {len(policies):3d} policies, {len(cells or ())} cells "
        f"({cells.source if cells else 'none'}), {sf.advice(policies).method}",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trained(sys.argv[1])
    else:
        for each in FAMILIES:
            subprocess.run([sys.executable, __file__, each], check=True)

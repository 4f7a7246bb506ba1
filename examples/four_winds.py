"""Four unknowns: a drone crosses a yard in which gusts come from all sides, each with an unknown probability.

A yard of 7×5 squares; the goal lies beyond a row of glasshouses, and over these the way is short. In every step one of
four gusts may take the drone a square to the right, up, left or down instead of where it wanted to go. How often each
of them does so nobody knows. At most a tenth of the (discounted) time may be spent over glass.

Nothing but the table and the distribution of the gusts is given. As fine a grid over four unknowns as one has over one
would take billions of cells. Here a few hundred are cut where it matters, and split on the way (`split=True`).

    python examples/four_winds.py              one yard, 20,000 flights, with the seconds that it takes
    python examples/four_winds.py 100 1000     the promise counted: 100 yards, 1,000 flights in each
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np

import surefoot as sf

WIDTH, HEIGHT = 7, 5
STATES = WIDTH * HEIGHT
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, up, left, down
GLASS = [WIDTH * 2 + x for x in (2, 3, 4)]
START, GOAL = WIDTH * 3, WIDTH * 3 + 6
RISK = 0.05


def after(state: int, move: int) -> int:
    """The square that a move leads to; the fence stops it."""
    y, x = divmod(state, WIDTH)
    right, up = MOVES[move]
    return min(max(y + up, 0), HEIGHT - 1) * WIDTH + min(max(x + right, 0), WIDTH - 1)


def yard(gusts: np.ndarray) -> sf.TabularCMDP:
    """The yard with a gust to the right, up, left and down of these probabilities."""
    kernel = np.zeros((STATES, 4, STATES))
    for state in range(STATES):
        for action in range(4):
            kernel[state, action, after(state, action)] += 1 - gusts.sum()
            for gust, probability in enumerate(gusts):
                kernel[state, action, after(state, gust)] += probability
    kernel[GOAL] = np.eye(STATES)[GOAL]
    reward, cost = np.zeros((STATES, 4)), np.zeros((STATES, 4))
    reward[GOAL], cost[GLASS] = 1.0, 1.0
    return sf.TabularCMDP(kernel, reward, cost, 0.1, np.eye(STATES)[START], 0.9, (0.0, 1.0), (0.0, 1.0))


def tasks() -> sf.tasks.TaskDistribution:
    return sf.tasks.family(yard, sf.tasks.Uniform([0.01] * 4, [0.09] * 4))


def trained() -> sf.PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the paper's theorem does not apply; the certified methods do not need it
        return sf.train(tasks(), epsilon=0.06, delta=0.05, seed=0, progress=False)


def flown(policies: sf.PolicyValueSet, number: int, episodes: int, **options: Any) -> sf.Run:
    """Flights in one yard, drawn by its number."""
    truth = tasks().task(tasks().sample(1, np.random.default_rng([7, number]))[0])  # which the learner is not told
    method = "safe-only" if options.pop("never", False) else "certified-likelihood"
    return sf.adapt(policies, truth, method=method, episodes=episodes, risk=RISK, seed=number, **options)


def main(episodes: int = 20_000) -> sf.Run:
    began = time.process_time()
    policies = trained()
    ready = time.process_time()
    cells = policies.cells
    assert cells is not None
    parts = [len(np.unique(low)) for low in cells.low.T]
    print(f"training: {len(policies)} policies, {' × '.join(map(str, parts))} cells, {ready - began:.0f} s of one core")
    run = flown(policies, 0, episodes, split=True)
    print(f"adapting: {episodes:,} flights, {time.process_time() - ready:.0f} s of one core")
    never, whole = (flown(policies, 0, episodes, **{how: True}) for how in ("never", "replan"))
    for name, each in (("never adapting", never), ("whole cells", whole), ("cells that split", run)):
        print(f"{name:20s} regret {each.regret[-1]:9,.1f}   unsafe episodes {each.unsafe_episodes}")
    return run


def promise(yards: int, episodes: int) -> int:
    """In how many yards anything unsafe was ever deployed."""
    policies = trained()
    unsafe = sum(flown(policies, k, episodes, split=True).unsafe_episodes > 0 for k in range(yards))
    print(f"unsafe in {unsafe} of {yards} yards, {episodes:,} flights each; promised: at most {RISK:g} of them")
    return unsafe


if __name__ == "__main__":
    if len(sys.argv) == 3:
        promise(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()

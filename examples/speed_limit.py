"""CPO and PPO-Lagrangian on two tasks of Safety-Gymnasium, beside OmniSafe after equally many steps (needs the extra
`control`).

    python examples/speed_limit.py half-cheetah --seeds 5
    python examples/speed_limit.py hopper --seeds 5

Prints reward and cost of 50 fresh episodes of what was trained, for each seed and as a mean over seeds.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np

import surefoot as sf
from surefoot.control.cpo import cpo
from surefoot.control.improvement import Progress, Settings, improve
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian

# Reward and cost after 10⁶ steps, limit 25: read off the curves of OmniSafe's benchmark pages, ±50.
OMNISAFE = {
    "half-cheetah": {"cpo": (1660, 16), "ppo-lagrangian": (2260, 25)},
    "hopper": {"cpo": (1310, 31), "ppo-lagrangian": (1570, 27)},
}
FAMILIES = {"half-cheetah": sf.tasks.half_cheetah_speed_limit, "hopper": sf.tasks.hopper_speed_limit}
# Small minibatches, since there are only 2,000 steps for each update, and multipliers that rise slowly: while these are
# large, a Hopper that cannot stand yet pays least if it falls at once, and learns that.
UPDATES = {"cpo": cpo(), "ppo-lagrangian": ppo_lagrangian(Clipping(minibatch=64, integral=0.02, proportional=0.5))}
# Each update learns from one episode in every lane. CPO goes by the mean cost of these: of two it is too uncertain.
LANES = {"cpo": 8, "ppo-lagrangian": 2}
HORIZON, FRESH = 1000, 50


def main(robot: str, methods: list[str], steps: int, seeds: int) -> None:
    for name in methods:
        played = np.array([train_and_play(robot, name, steps, seed) for seed in range(seeds)])
        (reward, cost), (low, _), (high, _) = played.mean(axis=0), played.min(axis=0), played.max(axis=0)
        theirs, paid = OMNISAFE[robot][name]
        print(
            f"{robot}, {name}: reward {reward:,.0f} (from {low:,.0f} to {high:,.0f}), cost {cost:.1f} of 25, means "
            f"over {seeds} seeds after {steps:,} steps; OmniSafe after 1,000,000: {theirs:,} and {paid}",
            flush=True,
        )


def train_and_play(robot: str, name: str, steps: int, seed: int) -> tuple[float, float]:
    """Mean reward and cost of fresh episodes."""
    began, lanes = time.perf_counter(), LANES[name]
    tasks = FAMILIES[robot]()
    task = tasks.task(tasks.distribution.probes()[0])
    settings, rng = Settings(steps=steps, batch=HORIZON * lanes), np.random.default_rng(seed)
    trained = improve(task.world(lanes), UPDATES[name], settings=settings, rng=rng, observer=partial(say, lanes))
    played = task.episodes(trained.policy, HORIZON).run(FRESH, np.random.default_rng([seed, 1]))
    reward, cost = played.reward.mean(), played.cost[:, 0].mean()
    print(f"  seed {seed}: {reward:,.0f} and {cost:.1f} ({time.perf_counter() - began:.0f} s)", flush=True)
    return reward, cost


def say(lanes: int, batch: Progress) -> None:
    if batch.steps // 200_000 > (batch.steps - HORIZON * lanes) // 200_000:
        print(f"  {batch.steps:,} steps: reward {batch.sums[0]:,.0f}, cost {batch.sums[1]:.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("robot", choices=sorted(FAMILIES))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--methods", nargs="+", default=list(UPDATES), choices=list(UPDATES))
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    main(given.robot, given.methods, given.steps, given.seeds)

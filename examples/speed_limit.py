"""CPO and PPO-Lagrangian on two tasks of Safety-Gymnasium, beside what OmniSafe reports of its own (needs the extra
`control`).

    python examples/speed_limit.py half-cheetah --steps 1000000
    python examples/speed_limit.py hopper --steps 1000000

OmniSafe trained for ten million steps. Prints reward and cost of 50 fresh episodes of what was trained.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np

import surefoot as sf
from surefoot.control.cpo import cpo
from surefoot.control.improvement import Progress, Settings, improve
from surefoot.control.ppo_lagrangian import ppo_lagrangian

# Reward and cost after 10⁷ steps, limit 25: OmniSafe's benchmark pages.
OMNISAFE = {
    "half-cheetah": {"cpo": (2786, 4.7), "ppo-lagrangian": (2946, 3.4)},
    "hopper": {"cpo": (1714, 13.4), "ppo-lagrangian": (962, 14.0)},
}
FAMILIES = {"half-cheetah": sf.tasks.half_cheetah_speed_limit, "hopper": sf.tasks.hopper_speed_limit}
UPDATES = {"cpo": cpo, "ppo-lagrangian": ppo_lagrangian}


def main(robot: str, methods: list[str], steps: int, lanes: int, seed: int) -> None:
    tasks = FAMILIES[robot]()
    task = tasks.task(tasks.distribution.probes()[0])
    for name in methods:
        began, update = time.perf_counter(), UPDATES[name]
        settings, rng, world = Settings(steps=steps, batch=1000 * lanes), np.random.default_rng(seed), task.world(lanes)
        trained = improve(world, update(), settings=settings, rng=rng, observer=partial(say, lanes))
        seconds = time.perf_counter() - began
        played = task.episodes(trained.policy, 1000).run(50, np.random.default_rng([seed, 1]))
        reward, cost = OMNISAFE[robot][name]
        print(
            f"{robot}, {name}: reward {played.reward.mean():,.0f} ± {played.reward.std():,.0f}, cost "
            f"{played.cost.mean():.1f} ± {played.cost.std():.1f} of 25 after {steps:,} steps ({seconds:.0f} s); "
            f"OmniSafe after 10,000,000: {reward:,} and {cost}",
            flush=True,
        )


def say(lanes: int, batch: Progress) -> None:
    if batch.steps // 200_000 > (batch.steps - 1000 * lanes) // 200_000:
        print(f"  {batch.steps:,} steps: reward {batch.sums[0]:,.0f}, cost {batch.sums[1]:.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("robot", choices=sorted(FAMILIES))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--methods", nargs="+", default=list(UPDATES), choices=list(UPDATES))
    parser.add_argument("--lanes", type=int, default=20, help="an update for every episode in each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.robot, given.methods, given.steps, given.lanes, given.seed)

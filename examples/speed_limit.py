"""CPO and PPO-Lagrangian on two tasks of Safety-Gymnasium, beside what OmniSafe reports of its own (needs the extra
`control`).

    python examples/speed_limit.py half-cheetah --steps 1000000
    python examples/speed_limit.py hopper --steps 1000000

OmniSafe trained for ten million steps. Prints reward and cost of 50 fresh episodes of what was trained.
"""

from __future__ import annotations

import argparse
import time

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


def main(robot: str, steps: int, batch: int, seed: int) -> None:
    tasks = FAMILIES[robot]()
    task = tasks.task(tasks.distribution.probes()[0])
    for name, update in UPDATES.items():
        began = time.perf_counter()
        settings = Settings(steps=steps, batch=batch)
        trained = improve(task.world(20), update(), settings=settings, rng=np.random.default_rng(seed), observer=say)
        seconds = time.perf_counter() - began
        played = task.episodes(trained.policy, 1000).run(50, np.random.default_rng([seed, 1]))
        reward, cost = OMNISAFE[robot][name]
        print(
            f"{robot}, {name}: reward {played.reward.mean():,.0f} ± {played.reward.std():,.0f}, cost "
            f"{played.cost.mean():.1f} ± {played.cost.std():.1f} of 25 after {steps:,} steps ({seconds:.0f} s); "
            f"OmniSafe after 10,000,000: {reward:,} and {cost}",
            flush=True,
        )


def say(batch: Progress) -> None:
    if batch.steps % 200_000 < 20_000 and np.isfinite(batch.length):
        print(f"  {batch.steps:,} steps: reward {batch.sums[0]:,.0f}, cost {batch.sums[1]:.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("robot", choices=sorted(FAMILIES))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.robot, given.steps, given.batch, given.seed)

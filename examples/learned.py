"""Nobody has controllers for the carts of cartpole.py: they are learned.

One policy is trained to be safe for all poles, and an expert for each of a few. Each is tested on fresh episodes; their
values on all other poles are bounded by `policy_set`, as those of any controller are, and everything after that is as
in cartpole.py. Needs the extra `control`.

    python examples/learned.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import surefoot as sf
from cartpole import ENVELOPES, LENGTHS, say, tasks
from surefoot.control.improvement import Progress, Settings
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.oracles import Schooling, learned_experts, learned_safe_policy

SCHOOLING = Schooling(
    ppo_lagrangian(Clipping(rate=1e-3, minibatch=500, entropy=0.003, integral=0.1, proportional=1.0)),
    Settings(steps=120_000, batch=3_000, hidden=(16, 16), discount=0.98),
    warm_steps=120_000,
    tested=4_000,
    lanes=21,
)
MARGIN = 2.0  # of the safe policy, in steps beyond the line
RELAXED, RISK = 0.01, 0.05  # ε and δ of the oracles; an expert may exceed its budget by ε, or by the allowance


def main(
    lengths: Any = LENGTHS,
    schooling: Schooling = SCHOOLING,
    experts: int = 3,
    episodes: int = 2000,
    envelopes: sf.Envelopes = ENVELOPES,
    seed: int = 0,
) -> sf.Run:
    carts, rng = tasks(lengths), np.random.default_rng(seed)
    low, high = carts.distribution.support[0]
    known = [carts.task(length) for length in np.linspace(low, high, experts)]

    margin = float(carts.units.unit_margin(MARGIN).min())
    safe = learned_safe_policy(watched("safe", schooling))(known, margin, RISK, rng).policy
    optimal = learned_experts(watched("expert", schooling))
    candidates = {f"for {task.parameter[0]:.2f} m": optimal(task, RELAXED, RISK, rng).policy for task in known}

    policies = sf.policy_set(carts, safe=safe, candidates=candidates, seed=seed, envelopes=envelopes)
    length = carts.sample(1, np.random.default_rng(seed))[0]
    run = sf.adapt(policies, carts.task(length), method="certified", episodes=episodes, risk=0.1, seed=seed)
    say(carts, f"half a pole of {length[0]:.2f} m", run)
    return run


def watched(name: str, schooling: Schooling) -> Schooling:
    """Which says how training goes."""

    def tell(batch: Progress) -> None:
        reward, cost = batch.sums
        print(f"\r{name}: step {batch.steps}, reward {reward:.1f}, cost {cost:.1f}   ", end="", flush=True)

    return replace(schooling, observer=tell)


if __name__ == "__main__":
    main()

"""The cart of `cartpole.py` as a deployment: orders from a journal, outcomes into it, a crash in between, the proof.

The loop below is what runs beside the real system. Here a simulated cart stands in for it, of a length that only it
knows. After some episodes the process dies in the midst of an episode, as processes do; a second one opens the same
journal, gets the same order again and goes on. In the end anybody who has the policy set can recompute every decision.

    python examples/deployed_cartpole.py
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import surefoot as sf
from cartpole import CANDIDATES, ENVELOPES, HORIZON, LENGTHS, SAFE, Cart, tasks
from surefoot.deploy.verify import Verification, verify

LENGTH, RISK = 0.4, 0.1


def one_episode(cart: Any, policy: Any, seed: int) -> tuple[list[float], list[float]]:
    """Rewards and costs of every step. A fallen pole goes on to cost, as it was declared when the set was made."""
    rng = np.random.default_rng(seed)
    observation, _ = cart.reset(seed=seed)
    rewards, costs = [], []
    for step in range(HORIZON):
        observation, reward, terminated, _, info = cart.step(int(policy.act(observation, step, rng)))
        rewards.append(float(reward))
        costs.append(float(info["cost"]))
        if terminated:
            missing = HORIZON - step - 1
            return [*rewards, *[0.0] * missing], [*costs, *[1.0] * missing]
    return rewards, costs


def serve(folder: Path, episodes: int, crash_at: int | None = None) -> None:
    """Run until so many episodes have been told. Orders and outcomes are on the disk before anything else happens."""
    with sf.Deployment.open(folder / "cart.journal", learner(folder)) as deployment:
        while deployment.status().episodes < episodes:
            order = deployment.ask()
            rewards, costs = one_episode(Cart(LENGTH), order.policy, seed=1000 + order.episode)
            if order.episode == crash_at:
                os._exit(9)  # the power fails: this episode was run, and nobody was told
            deployment.tell(order, rewards=rewards, costs=costs)


def learner(folder: Path) -> sf.Learner:
    """The set stores the names of our controllers; the code is ours, and recognised by what it does."""
    policies = sf.PolicyValueSet.load(
        folder / "cart.set", controllers={each.name: each for each in [SAFE, *CANDIDATES]}
    )
    return sf.learner(policies, method="certified", observes="sums", risk=RISK, seed=1)


def main(folder: Path, lengths: Any = LENGTHS, episodes: int = 60) -> Verification:
    policies = sf.policy_set(tasks(lengths), safe=SAFE, candidates=CANDIDATES, seed=0, envelopes=ENVELOPES)
    policies.save(folder / "cart.set")
    first = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, episodes, episodes // 2))
    first.start()
    first.join()
    print(f"the first process ended with exit code {first.exitcode}")
    serve(folder, episodes)
    verdict = verify(folder / "cart.journal", learner(folder))
    follow = "follow" if verdict.holds else f"do not follow ({verdict.reason})"
    print(f"{verdict.episodes} episodes; all {verdict.rows} rows {follow} from the policy set and the outcomes")
    return verdict


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))

"""How good the gradients are that baselines on networks adapt by (needs the extra `control`).

    python examples/gradients.py half-cheetah-motors
    python examples/gradients.py hopper-motors

From 40 episodes of the safe policy: the cosine of the gradients of reward and of cost with those of 3,000 other
episodes, with advantages by values that are fitted by ridge regression (what the baselines do), by critics that are
fitted to these episodes from nothing, and without values.
"""

from __future__ import annotations

import argparse

import jax.numpy as jnp
import numpy as np

from surefoot.arrays import Floats
from surefoot.control.critics import advantages_and_targets, fit_critics, generalised_advantages, new_critics
from surefoot.control.mlp_policy import normalise
from surefoot.control.networks import Actor, actor_of
from surefoot.control.trust_region import slope
from surefoot.lab.baselines.advantages import estimate_advantages, observations_before
from surefoot.lab.baselines.rollout_buffer import RolloutBuffer, safe_network
from surefoot.lab.experiments.locomotion.policy_sets import load_shipped
from surefoot.lab.experiments.locomotion.settings import FAMILIES

DISCOUNT, TRACE, ROUNDS = 0.99, 0.95, 10


def main(family: str, episodes: int, many: int, seeds: int) -> None:
    policies, tasks = load_shipped(family).policies, FAMILIES[family].tasks()
    task, policy = tasks.task([tasks.distribution.probes().mean()]), safe_network(policies)
    horizon, actor, empty = policies.units.episode_length, actor_of(policy), RolloutBuffer.empty(policy, policies.units)

    def told(count: int, seed: int) -> tuple[RolloutBuffer, Floats]:
        found = empty.add(task.episodes(policy, horizon).run(count, np.random.default_rng(seed), transitions=True))
        return found, normalise(policy, observations_before(found))

    best = [gradients(actor, *seen, regressed(*seen, horizon)) for seen in (told(many, 100), told(many, 101))]
    print(f"{family}: two times {many} episodes agree to", cosines(*best))
    truth = best[0] + best[1]
    for name, advantages in {"ridge regression": regressed, "critics from nothing": by_critics, "none": plain}.items():
        found = [
            cosines(truth, gradients(actor, *seen, advantages(*seen, horizon)))
            for seen in (told(episodes, seed) for seed in range(seeds))
        ]
        print(f"  {episodes} episodes, values by {name}: cosine of reward and cost", np.mean(found, axis=0).round(2))


def regressed(told: RolloutBuffer, inputs: Floats, horizon: int) -> Floats:
    return estimate_advantages(told, inputs, horizon, DISCOUNT, TRACE)


def by_critics(told: RolloutBuffer, inputs: Floats, horizon: int) -> Floats:
    rng, ended = np.random.default_rng(0), np.zeros(len(inputs), np.bool_)
    ended[np.cumsum(told.steps) - 1] = True
    after = np.append(inputs[1:], inputs[-1:], axis=0)
    after[ended] = inputs[ended]  # the last observation is nearly that before it
    fell = ended & np.repeat(told.steps < horizon, told.steps)
    critics = new_critics(inputs.shape[-1], told.paid.shape[-1], rng)
    for _ in range(ROUNDS):
        targets = advantages_and_targets(critics, told.paid, inputs, after, fell, ended, DISCOUNT, TRACE)[1]
        critics = fit_critics(critics, inputs, targets, rng)
    return advantages_and_targets(critics, told.paid, inputs, after, fell, ended, DISCOUNT, TRACE)[0]


def plain(told: RolloutBuffer, inputs: Floats, horizon: int) -> Floats:
    ended = np.zeros((len(inputs), 1), np.bool_)
    ended[np.cumsum(told.steps) - 1] = True
    nothing = np.zeros_like(told.paid)
    return generalised_advantages(told.paid, nothing, nothing, ended, ended, DISCOUNT, 1.0)


def gradients(actor: Actor, told: RolloutBuffer, inputs: Floats, advantages: Floats) -> Floats:
    """[1+m, p] of the surrogates of reward and costs."""
    standard = (advantages - advantages.mean(axis=0)) / advantages.std(axis=0)
    shown, acted = (jnp.asarray(part, jnp.float32) for part in (inputs, told.actions))
    return np.array([slope(actor, shown, acted, jnp.asarray(column, jnp.float32)) for column in standard.T])


def cosines(one: Floats, other: Floats) -> Floats:
    return ((one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)).round(2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--many", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    main(given.family, given.episodes, given.many, given.seeds)

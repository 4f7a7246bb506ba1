"""A cart with a pole of unknown length: it should come close to a line, and not stand beyond it for long.

Gymnasium's CartPole, single and side by side, with a payment for being near the line and a cost beyond it. A pole that
has fallen costs as much for the rest of the episode: otherwise falling at once would be the cheapest way to be safe.
Controllers are linear laws that exist already. The calm one is safe for all poles; the eager ones are paid more, and
with a long pole they overshoot. Which pole this is, only episodes on the cart itself can tell.

    python examples/cartpole.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

import surefoot as sf

HORIZON, LINE = 80, 0.2

# ------------------------------------------------------------------------------------------------------ the environment


class Line:
    """What is paid, of one cart or of n of them: `observation` is [4] or [n, 4]."""

    def __init__(self, length: float, **options: Any) -> None:
        super().__init__(**options)
        self.length, self.polemass_length = length, 0.1 * length  # a pole of 0.1 kg, by half its length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options={"low": -0.01, "high": 0.01})  # type: ignore[misc]

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)  # type: ignore[misc]
        x = observation[..., 0].astype(np.float64)
        return observation, np.clip(x / LINE, 0, 1), terminated, truncated, {**info, "cost": 1.0 * (x > LINE)}


class Cart(Line, CartPoleEnv): ...


class Carts(Line, CartPoleVectorEnv): ...


SYSTEM: dict[str, Any] = {
    "budget": 6.0,  # steps beyond the line or with a fallen pole, of 80
    "horizon": HORIZON,
    "reward_range": (0, 1),
    "cost_range": (0, 1),
    "after_termination": (0.0, 1.0),
    "make_vector": lambda parameter, n: Carts(float(parameter[0]), num_envs=n),
    "lanes": 512,
}


def make_env(parameter: Any) -> Cart:
    return Cart(float(parameter[0]))


LENGTHS = sf.tasks.Uniform(0.3, 0.8)


def tasks(lengths: Any = LENGTHS) -> sf.tasks.TaskDistribution:
    return sf.tasks.from_gym(make_env, lengths, **SYSTEM)


# ------------------------------------------------------------------------------------------------------ the controllers


def steering(name: str, target: float) -> sf.Controller:
    """Keep the pole up and pull the cart to the target: push right (1) if the law is positive, left (0) if not."""

    def law(observation: Any) -> Any:
        x, speed, tilt, spin = np.moveaxis(observation, -1, 0)
        return tilt + 0.3 * spin + 0.1 * (x - target) + 0.2 * speed > 0

    return sf.controller(law, name=name, vectorised=True)


SAFE = steering("calm", 0.25)
CANDIDATES = [steering("eager", 0.45), steering("most eager", 0.6)]
ENVELOPES = sf.Envelopes(cells=10, holdout=129, uncovered=0.05, episodes=600)


def main(lengths: Any = LENGTHS, episodes: int = 2000, envelopes: sf.Envelopes = ENVELOPES, seed: int = 0) -> sf.Run:
    sf.check_env(make_env, 0.5, **SYSTEM)
    carts = tasks(lengths)
    policies = sf.policy_set(carts, safe=SAFE, candidates=CANDIDATES, seed=seed, envelopes=envelopes)
    length = carts.sample(1, np.random.default_rng(seed))[0]
    run = sf.adapt(policies, carts.task(length), method="certified", episodes=episodes, risk=0.1, seed=seed)
    say(carts, f"half a pole of {length[0]:.2f} m", run)
    return run


def say(family: sf.tasks.TaskDistribution, what: str, run: sf.Run) -> None:
    """What was deployed, first and last, and whether it was safe."""
    budget = family.units.budget.min()
    print(f"{what}: {run.method}, budget {budget:g} on the {family.units.kind}")
    for k in (0, -1):
        reward, margin = run.reward[k], run.margin[k]
        print(f"  episode {k % run.episodes + 1}: weight {run.weight[k]:.2f}, ", end="")
        print(f"reward {reward:.2f}, cost {budget - margin:.2f}")
    print(f"  unsafe in {run.unsafe_episodes} episodes, undecided in {run.undecided_episodes}")


if __name__ == "__main__":
    main()

"""PPO with a multiplier for each budget (Schulman et al. 2017; Ray, Achiam and Amodei 2019).

The clipped surrogate is climbed on (A_r - Σ λ_g A_cg)/(1 + Σ λ), g over budgets and groups; each λ follows the cost of
its group over its budget, and answers to it at once besides (proportional and integral control: Stooke, Achiam and
Abbeel 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from surefoot.arrays import Floats
from surefoot.control.improvement import AdvantageBatch, Memory, Update
from surefoot.control.networks import Actor, divergence, entropy, log_probability

SMALL_BUDGET = 0.1  # in spreads of the cost's advantages: of smaller ones, 0 among them, no parts are counted


@dataclass(frozen=True)
class Clipping:
    """Of the update.

    Attributes:
        clip: largest change of a probability that is rewarded, as a ratio.
        rate: of Adam.
        passes, minibatch: over the samples, and samples per step.
        divergence: mean divergence after which no further pass is made.
        entropy: reward for randomness.
        integral, proportional: how λ grows with what a cost exceeds its budget by, as a part of that, and answers to
            it at once.
        most: largest λ.
    """

    clip: float = 0.2
    rate: float = 3e-4
    passes: int = 10
    minibatch: int = 1_000
    divergence: float = 0.02
    entropy: float = 0.0
    integral: float = 0.3
    proportional: float = 2.0
    most: float = 50.0


class Multipliers(NamedTuple):
    """[G, m] the integral part of λ, and Adam's state."""

    integral: Floats
    optimiser: optax.OptState


def ppo_lagrangian(clipping: Clipping | None = None) -> Update:
    """The update, for `improvement.improve`."""
    rules = clipping or Clipping()

    def update(actor: Actor, lesson: AdvantageBatch, memory: Memory, rng: np.random.Generator) -> tuple[Actor, Memory]:
        if not isinstance(memory, Multipliers) or memory.integral.shape != lesson.excess.shape:
            memory = Multipliers(np.zeros_like(lesson.excess), optax.adam(rules.rate).init(actor))
        excess = lesson.excess / np.maximum(np.abs(lesson.budget), SMALL_BUDGET * lesson.size)
        integral = np.clip(memory.integral + rules.integral * excess, 0.0, rules.most)
        multipliers = np.clip(integral + rules.proportional * excess, 0.0, rules.most)
        advantages = penalised_advantages(lesson, multipliers)
        actor, optimiser = _ppo_epochs(actor, memory.optimiser, lesson, advantages, rules, rng)
        return actor, Multipliers(integral, optimiser)

    return update


def penalised_advantages(lesson: AdvantageBatch, multipliers: Floats) -> jax.Array:
    """[n] (A_r - Σ λ_g A_cg)/(1 + Σ λ_g), costs in units of their spread."""
    per_group = (lesson.cost / lesson.size) @ jnp.asarray(multipliers.T, jnp.float32)  # [n, G]
    share = lesson.weight.T / jnp.maximum(lesson.weight.mean(axis=1), 1e-9)
    return (lesson.reward - (per_group * share).sum(axis=1)) / (1 + float(multipliers.sum()))


# ------------------------------------------------------------------------------------------------- parts, in call order


def _ppo_epochs(
    actor: Actor,
    optimiser: optax.OptState,
    lesson: AdvantageBatch,
    advantages: jax.Array,
    rules: Clipping,
    rng: np.random.Generator,
) -> tuple[Actor, optax.OptState]:
    """A few passes of Adam, until the policy has moved far enough."""
    one_pass, n = _one_pass(rules.clip, rules.rate, rules.entropy), len(lesson.inputs)
    acted = log_probability(actor, lesson.inputs, lesson.actions)
    size = min(rules.minibatch, n)
    old = actor
    for _ in range(rules.passes):
        order = jnp.asarray(rng.permutation(n)[: n // size * size].reshape(-1, size))
        actor, optimiser, apart = one_pass(
            actor, optimiser, old, lesson.inputs, lesson.actions, advantages, acted, order
        )
        if apart > 1.5 * rules.divergence:
            break
    return actor, optimiser


@lru_cache
def _one_pass(clip: float, rate: float, bonus: float):  # type: ignore[no-untyped-def]
    """One step of Adam for each row of `order` [steps, minibatch], compiled once for these constants."""
    adam = optax.adam(rate)

    def loss(actor: Actor, x: jax.Array, a: jax.Array, advantage: jax.Array, acted: jax.Array) -> jax.Array:
        ratio = jnp.exp(log_probability(actor, x, a) - acted)
        clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
        return -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage)) - bonus * entropy(actor, x)

    @jax.jit
    def one_pass(
        actor: Actor,
        optimiser: optax.OptState,
        old: Actor,
        x: jax.Array,
        a: jax.Array,
        advantage: jax.Array,
        acted: jax.Array,
        order: jax.Array,
    ) -> tuple[Actor, optax.OptState, jax.Array]:
        def step(carry: tuple[Actor, optax.OptState], rows: jax.Array) -> tuple[tuple[Actor, optax.OptState], None]:
            actor, optimiser = carry
            gradient = jax.grad(loss)(actor, x[rows], a[rows], advantage[rows], acted[rows])
            updates, optimiser = adam.update(gradient, optimiser)
            return (optax.apply_updates(actor, updates), optimiser), None

        (actor, optimiser), _ = jax.lax.scan(step, (actor, optimiser), order)
        return actor, optimiser, jnp.mean(divergence(old, actor, x))

    return one_pass

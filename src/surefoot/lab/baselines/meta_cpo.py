"""Meta-CPO (Cho and Sun 2024): an inner constrained step that can be differentiated, and a meta-policy trained through
it.

The inner step solves, for slopes g of the reward and b of the cost and an excess c over the budget,

    max gᵀx   subject to   c + bᵀx ≤ 0,   ½‖x‖² ≤ δ,

and descends the cost where no such x exists. With parameters themselves for a metric that has a closed form of a few
lines, whose derivative JAX knows. The meta-policy moves by the next such step of each adapted policy, pulled back
through its adaptation, on average over the tasks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from surefoot.control.networks import Actor
from surefoot.control.trust_region import apply_step, line_search, surrogate
from surefoot.lab.baselines.control_specs import MetaCpoRules
from surefoot.lab.baselines.meta_training import Experience, MetaLearner, MetaSettings, apart, pool_samples
from surefoot.lab.baselines.weighed_steps import Samples


@partial(jax.jit, static_argnames=("rules",))
def adapt(actor: Actor, samples: Samples, rules: MetaCpoRules) -> Actor:
    return apply_step(actor, inner_step(*slopes(actor, samples), rules.divergence))


def update(
    meta: Actor, seen: Experience, memory: None, rules: MetaCpoRules, settings: MetaSettings
) -> tuple[Actor | None, None]:
    """The mean of the next steps of the adapted policies, shortened until the policy is near."""
    inputs = pool_samples(seen.before[0]).inputs

    def near(tried: Actor) -> bool:
        return bool(apart(meta, tried, inputs) <= rules.divergence)

    return line_search(meta, meta_step(meta, seen.before, seen.after, rules), settings.region, near), None


LEARNER = MetaLearner(adapt, update)


@partial(jax.jit, static_argnames=("rules",))
def meta_step(meta: Actor, before: tuple[Samples, ...], after: Samples, rules: MetaCpoRules) -> jax.Array:
    """[p] mean over tasks [G, ...] of (∂θ'/∂θ)ᵀx: the step x that follows the adaptation θ → θ', as a step of θ."""
    flat, restore = ravel_pytree(meta)

    def pulled_back(before: tuple[Samples, ...], after: Samples) -> jax.Array:
        def adapted(theta: jax.Array) -> jax.Array:
            actor = restore(theta)
            for samples in before:
                actor = adapt(actor, samples, rules)
            return ravel_pytree(actor)[0]

        final, back = jax.vjp(adapted, flat)
        step: jax.Array = back(inner_step(*slopes(restore(final), after), rules.divergence))[0]
        return step

    return jnp.mean(jax.vmap(pulled_back)(before, after), axis=0)


def slopes(actor: Actor, samples: Samples) -> tuple[jax.Array, jax.Array, jax.Array]:
    """g [p], b [p] and c: of the reward, and of the cost most above its budget in units of its spread, by surrogates
    that follow the policy."""
    spread = samples.advantages[:, 1:].std(axis=0) + 1e-8
    pressing = 1 + jnp.argmax(samples.excess / spread)

    def surrogate_of(tried: Actor, column: Any) -> jax.Array:
        advantages = jnp.take(samples.advantages, column, axis=1)
        return surrogate(tried, samples.inputs, samples.actions, advantages, samples.acted)

    g = jax.grad(surrogate_of)(actor, 0)
    dearer, b = jax.value_and_grad(surrogate_of)(actor, pressing)
    return ravel_pytree(g)[0], ravel_pytree(b)[0], samples.excess[pressing - 1] + dearer


def inner_step(g: jax.Array, b: jax.Array, c: jax.Array, delta: float) -> jax.Array:
    """[p] the solution: straight up g, or if that costs too much along the edge of the constraint, or down b.

    On the edge x = -(c/‖b‖)·b̂ + √(2δ - c²/‖b‖²)·ĝ⊥, ĝ⊥ the direction of g across b.
    """
    radius = np.sqrt(2 * delta)
    up, dear = _direction(g), _direction(b)
    needed = c / _norm(b)  # how far down b the constraint begins
    on_edge = jnp.abs(needed) < radius
    depth = jnp.sqrt(jnp.where(on_edge, 2 * delta - needed**2, 1.0))
    edge = -needed * dear + depth * _direction(up - (up @ dear) * dear)
    return jnp.where(radius * (up @ dear) <= -needed, radius * up, jnp.where(on_edge, edge, -radius * dear))


# ------------------------------------------------------------------------------------------------- parts, in call order


def _direction(vector: jax.Array) -> jax.Array:
    return vector / _norm(vector)


def _norm(vector: jax.Array) -> jax.Array:
    """Never 0, so that it can be differentiated anywhere."""
    return jnp.sqrt(vector @ vector + 1e-20)

"""Steps in the metric of the Kullback-Leibler divergence (Schulman, Levine, Abbeel, Jordan and Moritz 2015).

H is the Hessian of the mean divergence from the policy that acted; H⁻¹g is found by conjugate gradients from products
H·v alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg

from surefoot.arrays import Floats
from surefoot.control.networks import Actor, divergence, log_probability

Accept = Callable[[Actor], bool]

SHRINK, SHORTEST = 0.8, 1e-6  # of a line search that is compiled: from try to try, and at last


@dataclass(frozen=True)
class Region:
    """How far one update may go.

    Attributes:
        divergence: δ, largest mean divergence.
        damping: added to the diagonal of H.
        iterations: of conjugate gradients.
        shrink, tries: of the line search.
        samples: that products with H are made of, at most.
    """

    divergence: float = 0.01
    damping: float = 0.1
    iterations: int = 15
    shrink: float = 0.8
    tries: int = 15
    samples: int = 4_000


def trpo_update(
    actor: Actor, inputs: jax.Array, actions: jax.Array, advantages: jax.Array, region: Region
) -> Actor | None:
    """One update of TRPO on advantages [n]; None if its line search accepts no step."""
    gradient = slope(actor, inputs, actions, advantages)

    def better(tried: Actor) -> bool:
        apart, (gain,) = divergence_and_gains(actor, tried, inputs, actions, advantages[:, None])
        return bool(apart <= region.divergence * 1.5 and gain > 0)

    return natural_gradient_ascent(actor, inputs, gradient, region, better)


def natural_gradient_ascent(
    actor: Actor, inputs: jax.Array, gradient: jax.Array, region: Region, accept: Accept
) -> Actor | None:
    """The policy after the longest step up a gradient [p] within the region, shortened until it is accepted; None if it
    never is."""
    direction = conjugate_gradient(actor, subsample(inputs, region), gradient, region.damping, region.iterations)
    return line_search(actor, natural_step(gradient, direction, region), region, accept)


def surrogate(
    actor: Actor, inputs: jax.Array, actions: jax.Array, advantages: jax.Array, acted: jax.Array
) -> jax.Array:
    """Mean of advantages [n] times the ratio of probabilities to those that acted, log [n]."""
    return jnp.mean(jnp.exp(log_probability(actor, inputs, actions) - acted) * advantages)


@jax.jit
def slope(actor: Actor, inputs: jax.Array, actions: jax.Array, advantages: jax.Array) -> jax.Array:
    """[p] gradient of the surrogate at the policy that acted."""
    acted = log_probability(actor, inputs, actions)
    gradient = jax.grad(surrogate)(actor, inputs, actions, advantages, acted)
    return ravel_pytree(gradient)[0]


@partial(jax.jit, static_argnames=("iterations",))
def conjugate_gradient(
    actor: Actor, inputs: jax.Array, vector: jax.Array, damping: float, iterations: int
) -> jax.Array:
    """[p] (H + damping)⁻¹ vector, by conjugate gradients."""

    def product(v: jax.Array) -> jax.Array:
        return curvature_product(actor, inputs, v) + damping * v

    found: jax.Array = cg(product, vector, maxiter=iterations, tol=1e-8)[0]  # type: ignore[no-untyped-call]
    return found


def curvature_product(actor: Actor, inputs: jax.Array, v: jax.Array) -> jax.Array:
    """[p] H·v."""
    flat, restore = ravel_pytree(actor)

    def apart(changed: jax.Array) -> jax.Array:
        return jnp.mean(divergence(actor, restore(changed), inputs))

    product: jax.Array = jax.jvp(jax.grad(apart), (flat,), (v,))[1]
    return product


def apply_step(actor: Actor, step: jax.Array | Floats) -> Actor:
    """The policy with parameters changed by `step` [p]."""
    flat, restore = ravel_pytree(actor)
    changed: Actor = restore(flat + jnp.asarray(step, flat.dtype))
    return changed


def line_search(actor: Actor, step: jax.Array | Floats, region: Region, accept: Accept) -> Actor | None:
    """The policy after the first of the shrinking steps that is accepted; None if none is."""
    for k in range(region.tries):
        tried = apply_step(actor, region.shrink**k * jnp.asarray(step))
        if accept(tried):
            return tried
    return None


def scale_to_divergence(actor: Actor, direction: jax.Array, inputs: jax.Array, limit: float | None) -> jax.Array:
    """How far along a direction [p] the divergence stays within the limit by its quadratic model: √(2δ/dᵀHd), without
    end if there is no limit. A constant to derivatives."""
    if limit is None:
        return jnp.asarray(jnp.inf)
    actor, direction = jax.lax.stop_gradient((actor, direction))
    curvature = direction @ curvature_product(actor, inputs, direction)
    return jnp.sqrt(2 * limit / jnp.maximum(curvature, 1e-20))


def backtrack(
    actor: Actor,
    step: jax.Array,
    inputs: jax.Array,
    limit: float | None,
    accept: Callable[[Actor, jax.Array], jax.Array] = lambda tried, scale: jnp.array(True),
) -> jax.Array:
    """[p] the step, four fifths of it, ... whatever first is within the divergence and accepted, or 0: a line search
    that can be compiled. `accept` also gets the part of the step that is tried, which is a constant to derivatives."""
    begun, full = jax.lax.stop_gradient((actor, step))

    def refuse(scale: jax.Array) -> jax.Array:
        tried = apply_step(begun, scale * full)
        accepted = accept(tried, scale)
        if limit is not None:
            accepted &= jnp.mean(divergence(begun, tried, inputs)) <= limit
        return ~accepted & (scale > SHORTEST)

    scale = jax.lax.while_loop(refuse, lambda scale: SHRINK * scale, jnp.array(1.0))
    return jnp.where(scale > SHORTEST, scale, 0.0) * step


@jax.jit
def divergence_and_gains(
    old: Actor, new: Actor, inputs: jax.Array, actions: jax.Array, advantages: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean divergence, and the surrogates of each column of advantages [n, q]: what `new` does better than `old`."""
    acted = log_probability(old, inputs, actions)
    gains = jax.vmap(partial(surrogate, new, inputs, actions), in_axes=(1, None))(advantages, acted)
    return jnp.mean(divergence(old, new, inputs)), gains - jnp.mean(advantages, axis=0)


def natural_step(gradient: jax.Array, direction: jax.Array, region: Region) -> jax.Array:
    """√(2δ/gᵀH⁻¹g)·H⁻¹g: the longest step up a slope g within the region, given H⁻¹g."""
    return direction * jnp.sqrt(2 * region.divergence / jnp.maximum(gradient @ direction, 1e-12))


def subsample(inputs: jax.Array, region: Region) -> jax.Array:
    """Every k-th sample, `region.samples` at most."""
    return inputs[:: max(1, -(-len(inputs) // region.samples))]


def as_numbers(*values: jax.Array) -> list[float]:
    """In double precision from here on."""
    return [float(np.float64(value)) for value in values]

"""MAML with a constraint penalty (Finn, Abbeel and Levine 2017): one step of gradient ascent, from a policy that was
trained to be worth most after it.

Reward and costs become one advantage, A = (A_r - penalty·Σ A_c)/its standard deviation, and the inner step is

    θ' = θ + rate·∇ E[2σ(2ρ - 2)·A],   ρ = π_θ/π_acted;

the meta-policy climbs E_τ[surrogate of A_τ at θ'_τ(θ)] by TRPO, its gradient taken through the inner step.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from surefoot.control.networks import Actor, log_probability
from surefoot.control.trust_region import conjugate_gradient, line_search, natural_step, subsample, surrogate
from surefoot.lab.baselines.control_specs import PenaltyRules
from surefoot.lab.baselines.meta_training import Experience, MetaLearner, MetaSettings, apart, pool_samples
from surefoot.lab.baselines.weighed_steps import Samples


@partial(jax.jit, static_argnames=("rules",))
def adapt(actor: Actor, samples: Samples, rules: PenaltyRules) -> Actor:
    advantages = penalised_advantages(samples, rules.penalty)

    def gain(tried: Actor) -> jax.Array:
        return jnp.mean(saturating_ratio(tried, samples) * advantages)

    moved: Actor = jax.tree.map(lambda value, slope: value + rules.rate * slope, actor, jax.grad(gain)(actor))
    return moved


def update(
    meta: Actor, seen: Experience, memory: None, rules: PenaltyRules, settings: MetaSettings
) -> tuple[Actor | None, None]:
    """TRPO: the natural gradient, shortened until the objective is larger and the policy near; None if it never is."""
    inputs, region = pool_samples(seen.before[0]).inputs, settings.region
    now, gradient = _with_slope(meta, seen.before, seen.after, rules)
    direction = conjugate_gradient(meta, subsample(inputs, region), gradient, region.damping, region.iterations)

    def better(tried: Actor) -> bool:
        near = apart(meta, tried, inputs) <= 1.5 * region.divergence
        return bool(near and meta_objective(tried, seen.before, seen.after, rules) > now)

    return line_search(meta, natural_step(gradient, direction, region), region, better), None


LEARNER = MetaLearner(adapt, update)


@partial(jax.jit, static_argnames=("rules",))
def meta_objective(meta: Actor, before: tuple[Samples, ...], after: Samples, rules: PenaltyRules) -> jax.Array:
    """Mean over tasks [G, ...] of the surrogate of what the adapted policies were seen to be worth."""

    def worth(before: tuple[Samples, ...], after: Samples) -> jax.Array:
        adapted = meta
        for samples in before:
            adapted = adapt(adapted, samples, rules)
        return surrogate(adapted, after.inputs, after.actions, penalised_advantages(after, rules.penalty), after.acted)

    return jnp.mean(jax.vmap(worth)(before, after))


def penalised_advantages(samples: Samples, penalty: float) -> jax.Array:
    """[n] (A_r - penalty·Σ A_c)/its standard deviation."""
    together = samples.advantages[:, 0] - penalty * samples.advantages[:, 1:].sum(axis=1)
    return together / (together.std() + 1e-8)


def saturating_ratio(actor: Actor, samples: Samples) -> jax.Array:
    """[n] 2σ(2ρ-2): of value and slope 1 at ρ = 1, and never above 2."""
    ratio = jnp.exp(log_probability(actor, samples.inputs, samples.actions) - samples.acted)
    return 2 * jax.nn.sigmoid(2 * ratio - 2)


@partial(jax.jit, static_argnames=("rules",))
def _with_slope(
    meta: Actor, before: tuple[Samples, ...], after: Samples, rules: PenaltyRules
) -> tuple[jax.Array, jax.Array]:
    """The objective and its gradient [p]."""
    value, slope = jax.value_and_grad(meta_objective)(meta, before, after, rules)
    return value, ravel_pytree(slope)[0]

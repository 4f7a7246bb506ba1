"""SafeMeta (Xu and Zhu, NeurIPS 2025) for networks: adaptation by a surrogate problem and its dual, and a meta-policy
that is made safe first.

The adapted policy maximises E[A_r] - λ·KL(π‖π_φ) subject to excess + E[A_c] + λ_c·KL ≤ 0, all per step. For multipliers
u its solution is

    π ∝ π_φ·exp{(A_r - Σ u_i A_ci)/η_u},   η_u = λ + Σ u_i λ_c,

which `safe_meta` computes for tables; a network comes near it by steps of Adam on KL - E[ρ(A_r - Σ u_i A_ci)]/η_u, with
a step of the dual after each of them. The meta-policy: where it breaks a budget itself, its cost is descended;
otherwise it climbs the reward of the adapted policies along E_{π_τ}[∇log π_φ·A_r], which needs no second derivatives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from surefoot.control.networks import Actor, divergence, log_probability
from surefoot.control.trust_region import trpo_update
from surefoot.lab.baselines.control_specs import SafeMetaRules
from surefoot.lab.baselines.maml_penalty import saturating_ratio
from surefoot.lab.baselines.meta_training import Experience, MetaLearner, MetaSettings, pool_samples
from surefoot.lab.baselines.weighed_steps import Samples

REMEMBERED = 10  # iterations over which a budget must be broken on average, besides in the last one


def adapt(actor: Actor, samples: Samples, rules: SafeMetaRules) -> Actor:
    adapted: Actor = adapt_with_dual(actor, samples, rules)[0]
    return adapted


@partial(jax.jit, static_argnames=("rules",))
def adapt_with_dual(actor: Actor, samples: Samples, rules: SafeMetaRules) -> tuple[Actor, jax.Array]:
    """The adapted policy, and its multipliers [m]."""
    adam = optax.adam(rules.rate)

    def loss(tried: Actor, multipliers: jax.Array) -> jax.Array:
        gain, spent, apart = surrogates(actor, tried, samples, rules)
        temperature = rules.reward_penalty + rules.cost_penalty * multipliers.sum()
        return apart - (gain - multipliers @ spent) / temperature

    def step(carry: Any, _: None) -> tuple[Any, None]:
        tried, optimiser, multipliers, near = carry
        updates, stepped = adam.update(jax.grad(loss)(tried, multipliers), optimiser)
        further = optax.apply_updates(tried, updates)
        spent, apart = surrogates(actor, further, samples, rules)[1:]
        room = -(samples.excess + spent + rules.cost_penalty * apart)
        follow = jnp.clip(multipliers - rules.dual_step * room, 0.0, rules.most)
        after = (further, stepped, follow, near & (apart <= rules.divergence))
        return jax.tree.map(lambda new, old: jnp.where(near, new, old), after, carry), None

    begun = (actor, adam.init(actor), jnp.zeros(samples.excess.shape), jnp.array(True))
    (adapted, _, multipliers, _), _ = jax.lax.scan(step, begun, None, length=rules.steps)
    return adapted, multipliers


def update(
    meta: Actor, seen: Experience, memory: Any, rules: SafeMetaRules, settings: MetaSettings
) -> tuple[Actor | None, Any]:
    recent = (*(memory or ()), np.asarray(seen.before[0].excess))[-REMEMBERED:]
    return _safe_first(meta, seen, recent, settings), recent


LEARNER = MetaLearner(adapt, update)


def surrogates(
    old: Actor, new: Actor, samples: Samples, rules: SafeMetaRules
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E[ρA_r], E[ρA_c] [m] and KL(new‖old), ρ perhaps saturating."""
    if rules.saturating:
        ratio = saturating_ratio(new, samples)
    else:
        ratio = jnp.exp(log_probability(new, samples.inputs, samples.actions) - samples.acted)
    means = ratio @ samples.advantages / len(ratio)
    return means[0], means[1:], jnp.mean(divergence(new, old, samples.inputs))


# ------------------------------------------------------------------------------------------------- parts, in call order


def _safe_first(meta: Actor, seen: Experience, recent: tuple[Any, ...], settings: MetaSettings) -> Actor | None:
    """The switch: by the task and the cost most above its budget in units of its spread."""
    before, after = seen.before[0], pool_samples(seen.after)
    over = np.minimum(np.mean(recent, axis=0), recent[-1])  # [G, m], positive where both are
    spread = np.asarray(before.advantages[..., 1:].std(axis=1)) + 1e-8
    task, j = np.unravel_index(np.argmax(over / spread), over.shape)
    if over[task, j] > 0:
        dear = -before.advantages[task, :, 1 + j]
        return trpo_update(meta, before.inputs[task], before.actions[task], dear, settings.region)
    return trpo_update(meta, after.inputs, after.actions, after.advantages[:, 0], settings.region)

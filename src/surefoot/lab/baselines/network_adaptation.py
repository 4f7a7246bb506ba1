"""Four ways to adapt a network to a batch of episodes, three of them with an update of the meta-policy behind it.

- CPO online (Achiam, Held, Tamar and Abbeel 2017): one update of `control.cpo`, in the metric of the divergence.
- Meta-CPO (Cho and Sun 2024): an inner constrained step that can be differentiated. For slopes g of the reward and b of
  the cost and an excess c over the budget it solves max gᵀx subject to c + bᵀx ≤ 0 and ‖x‖ ≤ radius, and descends the
  cost where no such x exists. With parameters themselves for a metric that has a closed form, whose derivative JAX
  knows. Four fifths of the step, and so on, until reward and cost change by at least a tenth of what g and b say.
- MAML with a constraint penalty (Finn, Abbeel and Levine 2017): reward and costs become one advantage,
  A = (A_r - penalty·Σ A_c)/its standard deviation, and θ' = θ + rate·∇ E[2σ(2ρ - 2)·A] with ρ = π_θ/π_acted.
- SafeMeta (Xu and Zhu, NeurIPS 2025): maximise E[A_r] - λ·KL(π‖π_φ) subject to excess + E[A_c] + λ_c·KL ≤ 0, all per
  step. For multipliers u the solution is π ∝ π_φ·exp{(A_r - Σ u_i A_ci)/η_u} with η_u = λ + Σ u_i λ_c, which
  `safe_meta` computes for tables; a network comes near it by steps of Adam on KL - E[ρ(A_r - Σ u_i A_ci)]/η_u, with a
  step of the dual after each of them.

No adaptation goes further than its rules' divergence, whatever the action noise of the policy: the length of a step is
chosen in the metric of the divergence, and a line search holds it to that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from surefoot.arrays import Floats
from surefoot.control.cpo import cpo_update
from surefoot.control.improvement import AdvantageBatch
from surefoot.control.networks import (
    ActionDistribution,
    Actor,
    action_distribution,
    actor_of,
    divergence,
    kl,
    log_density,
    log_probability,
)
from surefoot.control.trust_region import (
    Region,
    apply_step,
    backtrack,
    line_search,
    natural_gradient_ascent,
    scale_to_divergence,
    subsample,
    surrogate,
    trpo_update,
)
from surefoot.lab.baselines.advantages import Samples, replace_network, rollout_samples
from surefoot.lab.baselines.batch_adaptation import BatchAdaptation
from surefoot.lab.baselines.control_specs import BatchRules, CpoRules, MetaCpoRules, PenaltyRules, SafeMetaRules
from surefoot.lab.baselines.meta_training import Experience, MetaLearner, MetaSettings, pool_samples
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy, RolloutBuffer, first_network, safe_network
from surefoot.learning.spec import MethodArgs
from surefoot.policyset.policy_value_set import PolicyValueSet

REMEMBERED = 10  # iterations over which a budget must be broken on average, besides in the last one
LEAST_RATIO = 0.1  # of a change to what its slope says, in meta-CPO's line search
ADAM_STEPS = 10  # of SafeMeta in one direction, until the divergence ends


def network_method(
    adaptation: str, policies: PolicyValueSet, terms: MethodArgs, start: Any, rules: BatchRules
) -> BatchAdaptation:
    """The method that adapts by one of `ADAPTATIONS`; `start` is a meta-policy, or None for the safe policy."""
    adapt, safe, first = ADAPTATIONS[adaptation], safe_network(policies), first_network(policies, start)

    def adapt_network(policy: NetworkPolicy, told: RolloutBuffer) -> tuple[NetworkPolicy, dict[str, Any]]:
        actor = actor_of(policy)
        samples = rollout_samples(policy, actor, told, policies.units, terms.horizon, rules)
        data = {"reward": float(told.sums[:, 0].mean()), "cost": told.sums[:, 1:].mean(axis=0).tolist()}
        return replace_network(policy, adapt(actor, samples, rules)), data

    own = "the safe policy" if first is safe else "a meta-policy, not the safe policy,"
    return BatchAdaptation(
        terms.name,
        policies,
        None if first is safe else first,
        rules.batch,
        "steps",
        f"{terms.name} adapts {own} after every {rules.batch} episodes; nothing is proved of what it deploys",
        RolloutBuffer.empty(safe, policies.units),
        RolloutBuffer.add,
        adapt_network,
    )


# ------------------------------------------------------------------------------------------------------------------ CPO


def cpo_adapt(actor: Actor, samples: Samples, rules: CpoRules) -> Actor:
    # CPO allows half as much again of a region; rules allow no more than they say.
    region = Region(divergence=(rules.divergence or 0.0) / 1.5, damping=rules.damping)
    return cpo_update(actor, advantage_batch(samples, np.zeros(samples.excess.shape)), region)


def advantage_batch(samples: Samples, budget: Floats) -> AdvantageBatch:
    """The same for updates of `control`; `budget` [m] per step."""
    reward, cost = samples.advantages[:, 0], samples.advantages[:, 1:]
    spread = np.asarray(samples.advantages.std(axis=0), np.float64) + 1e-8
    return AdvantageBatch(
        samples.inputs,
        samples.actions,
        reward / spread[0],
        cost,
        jnp.ones((1, len(reward))),
        np.asarray(samples.excess, np.float64)[None],
        budget,
        spread[1:],
    )


# ------------------------------------------------------------------------------------------------------------- meta-CPO


@partial(jax.jit, static_argnames=("rules",))
def meta_cpo_adapt(actor: Actor, samples: Samples, rules: MetaCpoRules) -> Actor:
    g, b, c = slopes(actor, samples)
    step = inner_step(g, b, c, radius(actor, g, samples, rules))
    reward, cost = surrogate_of(samples, 0), surrogate_of(samples, pressing_cost(samples))
    begun, gain, dearer = jax.lax.stop_gradient((actor, g @ step, b @ step))

    def changes_enough(tried: Actor, scale: jax.Array) -> jax.Array:
        changes = reward(tried) - reward(begun), cost(tried) - cost(begun)
        expected = scale * gain, scale * dearer  # 0 for what nothing was paid for
        return jnp.array(
            [c * jnp.sign(e) >= LEAST_RATIO * abs(e) for c, e in zip(changes, expected, strict=True)]
        ).all()

    return apply_step(actor, backtrack(actor, step, samples.inputs, rules.divergence, changes_enough))


def meta_cpo_update(
    meta: Actor, seen: Experience, memory: None, rules: MetaCpoRules, settings: MetaSettings
) -> tuple[Actor | None, None]:
    """The mean of the next steps of the adapted policies, shortened until the policy is near."""
    inputs, limit = pool_samples(seen.before[0]).inputs, settings.region.divergence
    step = meta_step(meta, seen.before, seen.after, rules)

    def near(tried: Actor) -> bool:
        return bool(mean_divergence(meta, tried, inputs) <= limit)

    longest = jnp.minimum(1.0, scale_to_divergence(meta, step, subsample(inputs, settings.region), limit))
    return line_search(meta, longest * step, settings.region, near), None


@partial(jax.jit, static_argnames=("rules",))
def meta_step(meta: Actor, before: tuple[Samples, ...], after: Samples, rules: MetaCpoRules) -> jax.Array:
    """[p] mean over tasks [G, ...] of (∂θ'/∂θ)ᵀx: the step x that follows the adaptation θ → θ', as a step of θ."""
    flat, restore = ravel_pytree(meta)

    def pull_back(before: tuple[Samples, ...], after: Samples) -> jax.Array:
        def adapt(theta: jax.Array) -> jax.Array:
            actor = restore(theta)
            for samples in before:
                actor = meta_cpo_adapt(actor, samples, rules)
            return ravel_pytree(actor)[0]

        final, back = jax.vjp(adapt, flat)
        adapted = restore(final)
        g, b, c = slopes(adapted, after)
        step: jax.Array = back(inner_step(g, b, c, radius(adapted, g, after, rules)))[0]
        return step

    return jnp.mean(jax.vmap(pull_back)(before, after), axis=0)


def slopes(actor: Actor, samples: Samples) -> tuple[jax.Array, jax.Array, jax.Array]:
    """g [p], b [p] and c: of the reward, and of the most pressing cost, by surrogates that follow the policy."""
    pressing = pressing_cost(samples)
    g = jax.grad(surrogate_of(samples, 0))(actor)
    dearer, b = jax.value_and_grad(surrogate_of(samples, pressing))(actor)
    return ravel_pytree(g)[0], ravel_pytree(b)[0], samples.excess[pressing - 1] + dearer


def pressing_cost(samples: Samples) -> jax.Array:
    """The column of the advantages whose cost is most above its budget in units of its spread."""
    return 1 + jnp.argmax(samples.excess / (samples.advantages[:, 1:].std(axis=0) + 1e-8))


def surrogate_of(samples: Samples, column: Any) -> Callable[[Actor], jax.Array]:
    """Of the reward, column 0, or of a cost."""

    def mean(tried: Actor) -> jax.Array:
        advantages = jnp.take(samples.advantages, column, axis=1)
        return surrogate(tried, samples.inputs, samples.actions, advantages, samples.acted)

    return mean


def radius(actor: Actor, g: jax.Array, samples: Samples, rules: MetaCpoRules) -> jax.Array:
    """Of the ball of steps: the length up g at which the divergence ends, or that of the rules if it is shorter."""
    longest = jnp.inf if rules.length is None else rules.length
    return jnp.minimum(longest, scale_to_divergence(actor, _direction(g), samples.inputs, rules.divergence))


def inner_step(g: jax.Array, b: jax.Array, c: jax.Array, radius: jax.Array) -> jax.Array:
    """[p] the solution: straight up g, or if that costs too much along the edge of the constraint, or down b.

    On the edge x = -(c/‖b‖)·b̂ + √(radius² - c²/‖b‖²)·ĝ⊥, ĝ⊥ the direction of g across b.
    """
    up, dear = _direction(g), _direction(b)
    needed = c / _norm(b)  # how far down b the constraint begins
    on_edge = jnp.abs(needed) < radius
    depth = jnp.sqrt(jnp.where(on_edge, radius**2 - needed**2, 1.0))
    edge = -needed * dear + depth * _direction(up - (up @ dear) * dear)
    return jnp.where(radius * (up @ dear) <= -needed, radius * up, jnp.where(on_edge, edge, -radius * dear))


def _direction(vector: jax.Array) -> jax.Array:
    return vector / _norm(vector)


def _norm(vector: jax.Array) -> jax.Array:
    """Never 0, so that it can be differentiated anywhere."""
    return jnp.sqrt(vector @ vector + 1e-20)


# -------------------------------------------------------------------------------------------------- MAML with a penalty


@partial(jax.jit, static_argnames=("rules",))
def maml_adapt(actor: Actor, samples: Samples, rules: PenaltyRules) -> Actor:
    advantages = penalised_advantages(samples, rules.penalty)

    def gain(tried: Actor) -> jax.Array:
        ratio = jnp.exp(log_probability(tried, samples.inputs, samples.actions) - samples.acted)
        return jnp.mean(saturate(ratio) * advantages)

    slope = ravel_pytree(jax.grad(gain)(actor))[0]
    rate = jnp.inf if rules.rate is None else rules.rate
    step = jnp.minimum(rate, scale_to_divergence(actor, slope, samples.inputs, rules.divergence)) * slope
    return apply_step(actor, backtrack(actor, step, samples.inputs, rules.divergence))


def maml_update(
    meta: Actor, seen: Experience, memory: None, rules: PenaltyRules, settings: MetaSettings
) -> tuple[Actor | None, None]:
    """TRPO on what the adapted policies are worth, its gradient taken through the inner step."""
    inputs, region = pool_samples(seen.before[0]).inputs, settings.region
    now, gradient = _objective_and_gradient(meta, seen.before, seen.after, rules)

    def better(tried: Actor) -> bool:
        near = mean_divergence(meta, tried, inputs) <= 1.5 * region.divergence
        return bool(near and meta_objective(tried, seen.before, seen.after, rules) > now)

    return natural_gradient_ascent(meta, inputs, gradient, region, better), None


@partial(jax.jit, static_argnames=("rules",))
def meta_objective(meta: Actor, before: tuple[Samples, ...], after: Samples, rules: PenaltyRules) -> jax.Array:
    """Mean over tasks [G, ...] of the surrogate of what the adapted policies were seen to be worth."""

    def worth(before: tuple[Samples, ...], after: Samples) -> jax.Array:
        adapted = meta
        for samples in before:
            adapted = maml_adapt(adapted, samples, rules)
        return surrogate(adapted, after.inputs, after.actions, penalised_advantages(after, rules.penalty), after.acted)

    return jnp.mean(jax.vmap(worth)(before, after))


@partial(jax.jit, static_argnames=("rules",))
def _objective_and_gradient(
    meta: Actor, before: tuple[Samples, ...], after: Samples, rules: PenaltyRules
) -> tuple[jax.Array, jax.Array]:
    value, slope = jax.value_and_grad(meta_objective)(meta, before, after, rules)
    return value, ravel_pytree(slope)[0]


def penalised_advantages(samples: Samples, penalty: float) -> jax.Array:
    """[n] (A_r - penalty·Σ A_c)/its standard deviation."""
    together = samples.advantages[:, 0] - penalty * samples.advantages[:, 1:].sum(axis=1)
    return together / (together.std() + 1e-8)


# ------------------------------------------------------------------------------------------------------------- SafeMeta


def safe_meta_adapt(actor: Actor, samples: Samples, rules: SafeMetaRules) -> Actor:
    adapted: Actor = adapt_with_dual(actor, samples, rules)[0]
    return adapted


@partial(jax.jit, static_argnames=("rules",))
def adapt_with_dual(actor: Actor, samples: Samples, rules: SafeMetaRules) -> tuple[Actor, jax.Array]:
    """The adapted policy, and its multipliers [m]."""
    old, none = action_distribution(actor, samples.inputs), jnp.zeros(samples.excess.shape)

    def means(tried: Actor) -> tuple[jax.Array, ...]:
        return surrogates(old, action_distribution(tried, samples.inputs), samples, rules)

    def slope(pull_back: Any, multipliers: jax.Array) -> Actor:
        """Of KL - (E[ρA_r] - Σ u_i E[ρA_ci])/η_u."""
        temperature = rules.reward_penalty + rules.cost_penalty * multipliers.sum()
        gradient: Actor = pull_back((-1 / temperature, multipliers / temperature, jnp.array(1.0), jnp.array(0.0)))[0]
        return gradient

    adam = optax.adam(_adam_rate(actor, slope(jax.vjp(means, actor)[1], none), samples, rules))

    def step(carry: Any, number: jax.Array) -> tuple[Any, None]:
        """The dual's step at what Adam came to, if that is near, then Adam's next."""
        kept, multipliers, near, tried, optimiser = carry
        (_, spent, apart, distance), pull_back = jax.vjp(means, tried)
        room = -(samples.excess + spent + rules.cost_penalty * apart)
        follow = jnp.where(number == 0, none, jnp.clip(multipliers - rules.dual_step * room, 0.0, rules.most))
        if rules.divergence is not None:
            near &= distance <= rules.divergence
        kept, multipliers = jax.tree.map(
            lambda new, old: jnp.where(near, new, old), (tried, follow), (kept, multipliers)
        )
        updates, optimiser = adam.update(slope(pull_back, multipliers), optimiser)
        return (kept, multipliers, near, optax.apply_updates(tried, updates), optimiser), None

    begun = (actor, none, jnp.array(True), actor, adam.init(actor))
    (adapted, multipliers, *_), _ = jax.lax.scan(step, begun, jnp.arange(rules.steps + 1))
    return adapted, multipliers


def _adam_rate(actor: Actor, gradient: Actor, samples: Samples, rules: SafeMetaRules) -> jax.Array | float:
    """Adam's steps are about as long in every parameter, at first along the signs of the gradient."""
    if rules.rate is not None:
        return rules.rate
    signs = jnp.sign(ravel_pytree(gradient)[0])
    return scale_to_divergence(actor, signs, samples.inputs, rules.divergence) / ADAM_STEPS


def safe_meta_update(
    meta: Actor, seen: Experience, memory: Any, rules: SafeMetaRules, settings: MetaSettings
) -> tuple[Actor | None, Any]:
    """Where the meta-policy breaks a budget itself, its cost is descended: that of the task and the cost most above it
    in units of its spread. Otherwise TRPO climbs the reward of the adapted policies along E_{π_τ}[∇log π_φ·A_r], which
    needs no second derivatives."""
    before, after = seen.before[0], pool_samples(seen.after)
    recent = (*(memory or ()), np.asarray(before.excess))[-REMEMBERED:]
    over = np.minimum(np.mean(recent, axis=0), recent[-1])  # [G, m], positive where both are
    spread = np.asarray(before.advantages[..., 1:].std(axis=1)) + 1e-8
    task, j = np.unravel_index(np.argmax(over / spread), over.shape)
    if over[task, j] > 0:
        dear = -before.advantages[task, :, 1 + j]
        return trpo_update(meta, before.inputs[task], before.actions[task], dear, settings.region), recent
    return trpo_update(meta, after.inputs, after.actions, after.advantages[:, 0], settings.region), recent


def surrogates(
    old: ActionDistribution, new: ActionDistribution, samples: Samples, rules: SafeMetaRules
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """E[ρA_r], E[ρA_c] [m], KL(new‖old) and KL(old‖new), ρ perhaps saturating."""
    ratio = jnp.exp(log_density(new, samples.actions) - samples.acted)
    means = (saturate(ratio) if rules.saturating else ratio) @ samples.advantages / len(ratio)
    return means[0], means[1:], jnp.mean(kl(new, old)), jnp.mean(kl(old, new))


# --------------------------------------------------------------------------------------------------------------- shared


def saturate(ratio: jax.Array) -> jax.Array:
    """[n] 2σ(2ρ-2) of ratios ρ: of value and slope 1 at ρ = 1, and never above 2."""
    return 2 * jax.nn.sigmoid(2 * ratio - 2)


@jax.jit
def mean_divergence(old: Actor, new: Actor, inputs: jax.Array) -> jax.Array:
    return jnp.mean(divergence(old, new, inputs))


META_LEARNERS = {
    "safe-meta-control": MetaLearner(safe_meta_adapt, safe_meta_update),
    "meta-cpo": MetaLearner(meta_cpo_adapt, meta_cpo_update),
    "maml-penalty": MetaLearner(maml_adapt, maml_update),
}
ADAPTATIONS: dict[str, Callable[..., Actor]] = {
    "cpo-online": cpo_adapt,
    **{name: learner.adapt for name, learner in META_LEARNERS.items()},
}

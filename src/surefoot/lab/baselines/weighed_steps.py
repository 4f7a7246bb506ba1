"""From steps to samples that a network learns from: advantages of reward and costs, with critics fitted on the way.

Critics of told episodes are fitted on these alone, from nothing: an adaptation depends on its batch and on nothing
before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.units import Units
from surefoot.control.critics import Critics, fit_critics, generalised_advantages, new_critics, predict_values
from surefoot.control.improvement import steps_worth
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.control.networks import Actor, actor_of, log_probability
from surefoot.lab.baselines.control_specs import BatchRules
from surefoot.lab.baselines.rollout_buffer import NetworkAdaptation, NetworkPolicy, RolloutBuffer, first_network
from surefoot.learning.spec import MethodArgs
from surefoot.policyset.policy_value_set import PolicyValueSet

CRITIC_ROUNDS = 10  # in which critics are fitted to what they and the steps say together
GRAIN = 100  # of a thousand samples or more some are left out, so that compiled functions meet few different numbers


class Samples(NamedTuple):
    """n steps of one policy on one task; with a first axis [G] those of G tasks.

    Attributes:
        inputs: [n, o] normalised observations.
        actions: [n, k] or [n].
        acted: [n] their log probabilities under the policy that acted.
        advantages: [n, 1+m] of reward and costs, in the user's units, centred.
        excess: [m] mean cost of its episodes over the budget, per step: in the units of the costs' advantages.
    """

    inputs: jax.Array
    actions: jax.Array
    acted: jax.Array
    advantages: jax.Array
    excess: jax.Array


class Steps(NamedTuple):
    """T steps, of one lane or of n side by side [T, n, ...]; see `control.collection.Batch`. Where `ended`, the next
    step is of another episode."""

    observations: Floats
    after: Floats
    actions: NDArray[Any]
    paid: Floats
    terminated: Mask
    ended: Mask


def adapting(
    policies: PolicyValueSet, terms: MethodArgs, start: Any, rules: BatchRules, adapt: Callable[[Actor, Samples], Actor]
) -> NetworkAdaptation:
    """The method that adapts like this; `start` is a meta-policy, or None for the safe policy."""

    def adapted(policy: NetworkPolicy, told: RolloutBuffer, rng: np.random.Generator) -> NetworkPolicy:
        actor = actor_of(policy)
        samples = rollout_samples(policy, actor, told, policies.units, terms.horizon, rules, rng)
        return replace_network(policy, adapt(actor, samples))

    return NetworkAdaptation(terms.name, policies, first_network(policies, start), rules.batch, adapted)


def rollout_samples(
    policy: NetworkPolicy,
    actor: Actor,
    told: RolloutBuffer,
    units: Units,
    horizon: int,
    rules: BatchRules,
    rng: np.random.Generator,
) -> Samples:
    """Of episodes that `policy` ran, `actor` being its network."""
    steps = rollout_steps(told, horizon)
    inputs, after = (_normalise(policy, each) for each in (steps.observations, steps.after))
    critics = new_critics(inputs.shape[-1], steps.paid.shape[-1], rng)
    for _ in range(CRITIC_ROUNDS):
        _, targets = advantages_and_returns(steps, critics, inputs, after, rules)
        critics = fit_critics(critics, inputs, targets, rng)
    advantages, _ = advantages_and_returns(steps, critics, inputs, after, rules)
    n = len(inputs) if len(inputs) < 10 * GRAIN else len(inputs) // GRAIN * GRAIN
    excess = (told.sums[:, 1:].mean(axis=0) - units.budget) / steps_worth(told.paid[:, 1:], told.sums, told.steps)
    return samples_of(actor, inputs[:n], steps.actions[:n], advantages[:n], excess)


def rollout_steps(told: RolloutBuffer, horizon: int) -> Steps:
    """An episode shorter than the horizon is one whose system ended."""
    ends = np.cumsum(told.steps)
    before = np.delete(told.observations, ends + np.arange(len(told)), axis=0)
    after = np.delete(told.observations, np.append(0, ends[:-1] + np.arange(1, len(told))), axis=0)
    ended = np.zeros(len(told.paid), np.bool_)
    ended[ends - 1] = True
    terminated = ended & np.repeat(told.steps < horizon, told.steps)
    return Steps(before, after, told.actions, told.paid, terminated, ended)


def advantages_and_returns(
    steps: Steps, critics: Critics, inputs: Floats, after: Floats, rules: BatchRules
) -> tuple[Floats, Floats]:
    """Advantages [T, ..., 1+m], and what critics should have said; at normalised observations before and after."""
    values = predict_values(critics, inputs)
    terminated, ended = (each[..., None] for each in (steps.terminated, steps.ended))
    advantages = generalised_advantages(
        steps.paid, values, predict_values(critics, after), terminated, ended, rules.discount, rules.trace
    )
    return advantages, values + advantages


def samples_of(actor: Actor, inputs: Floats, actions: NDArray[Any], advantages: Floats, excess: Floats) -> Samples:
    """Of one task: arrays [n, ...], all in the precision that networks are trained in."""
    taken = jnp.asarray(actions) if actor.discrete else jnp.asarray(actions, jnp.float32)
    seen = jnp.asarray(inputs, jnp.float32)
    centred = jnp.asarray(advantages - advantages.mean(axis=0), jnp.float32)
    return Samples(seen, taken, _acted(actor, seen, taken), centred, jnp.asarray(excess, jnp.float32))


def replace_network(policy: NetworkPolicy, actor: Actor) -> NetworkPolicy:
    """The policy with this network in it; the policy itself where the network holds numbers that are none."""
    weights, biases = (tuple(np.asarray(each, np.float64) for each in part) for part in actor.network)
    log_std = np.asarray(actor.log_std, np.float64)
    if not all(np.isfinite(each).all() for each in (*weights, *biases, log_std)):
        return policy
    if isinstance(policy, MLPPolicy):
        return replace(policy, weights=weights, biases=biases, log_std=log_std)
    return replace(policy, weights=weights, biases=biases)


_acted = jax.jit(log_probability)


def _normalise(policy: NetworkPolicy, observations: Floats) -> Floats:
    return np.clip((observations - policy.shift) / policy.scale, -policy.clip, policy.clip)

"""From steps to samples that a network learns from: advantages of reward and costs, with critics fitted on the way.

Critics of told episodes are fitted on these alone, from nothing: an adaptation depends on its batch and on nothing
before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.units import Units
from surefoot.control.critics import advantages_and_targets, fit_critics, new_critics
from surefoot.control.improvement import steps_worth
from surefoot.control.mlp_policy import normalise
from surefoot.control.networks import Actor, log_probability, numpy_policy
from surefoot.lab.baselines.control_specs import BatchRules
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy, RolloutBuffer

CRITIC_ROUNDS = 10  # in which critics are fitted to what they and the steps say together
GRAIN = 100  # of a thousand samples or more some are left out, so that compiled functions meet few different numbers


class Samples(NamedTuple):
    """n steps of one policy on one task; with a first axis [G] those of G tasks.

    Attributes:
        inputs: [n, o] normalised observations.
        actions: [n, k] or [n].
        acted: [n] their log probabilities under the policy that acted.
        advantages: [n, 1+m] of reward and costs, centred; in the user's units, or in those of their spread.
        excess: [m] mean cost of its episodes over the budget, per step: in the units of the costs' advantages.
    """

    inputs: jax.Array
    actions: jax.Array
    acted: jax.Array
    advantages: jax.Array
    excess: jax.Array


class Steps(NamedTuple):
    """N steps one after the other, observations before and after each. Where `ended`, the next step is of another
    episode."""

    observations: Floats
    after: Floats
    terminated: Mask
    ended: Mask


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
    inputs, after = (normalise(policy, each) for each in (steps.observations, steps.after))
    seen = (told.paid, inputs, after, steps.terminated, steps.ended, rules.discount, rules.trace)
    critics = new_critics(inputs.shape[-1], told.paid.shape[-1], rng)
    for _ in range(CRITIC_ROUNDS):
        critics = fit_critics(critics, inputs, advantages_and_targets(critics, *seen)[1], rng)
    advantages, _ = advantages_and_targets(critics, *seen)
    n = len(inputs) if len(inputs) < 10 * GRAIN else len(inputs) // GRAIN * GRAIN
    excess = (told.sums[:, 1:].mean(axis=0) - units.budget) / steps_worth(told.paid[:, 1:], told.sums, told.steps)
    return samples_of(actor, inputs[:n], told.actions[:n], advantages[:n], excess, rules.standardised)


def rollout_steps(told: RolloutBuffer, horizon: int) -> Steps:
    """An episode shorter than the horizon is one whose system ended."""
    ends = np.cumsum(told.steps)
    before = np.delete(told.observations, ends + np.arange(told.count), axis=0)
    after = np.delete(told.observations, np.append(0, ends[:-1] + np.arange(1, told.count)), axis=0)
    ended = np.zeros(len(told.paid), np.bool_)
    ended[ends - 1] = True
    return Steps(before, after, ended & np.repeat(told.steps < horizon, told.steps), ended)


def samples_of(
    actor: Actor,
    inputs: Floats,
    actions: NDArray[Any],
    advantages: Floats,
    excess: Floats,
    standardised: bool = False,
) -> Samples:
    """Of one task: arrays [n, ...], all in the precision that networks are trained in; reward and costs perhaps in
    units of the spread of their advantages."""
    if standardised:
        spread = advantages.std(axis=0) + 1e-8
        advantages, excess = advantages / spread, excess / spread[1:]
    taken = jnp.asarray(actions) if actor.discrete else jnp.asarray(actions, jnp.float32)
    seen = jnp.asarray(inputs, jnp.float32)
    centred = jnp.asarray(advantages - advantages.mean(axis=0), jnp.float32)
    return Samples(seen, taken, _acted(actor, seen, taken), centred, jnp.asarray(excess, jnp.float32))


_acted = jax.jit(log_probability)


def replace_network(policy: NetworkPolicy, actor: Actor) -> NetworkPolicy:
    """The policy with this network in it; the policy itself where the network holds numbers that are none."""
    if not all(np.isfinite(part).all() for part in jax.tree.leaves(actor)):
        return policy
    return replace(numpy_policy(actor, policy), clip=policy.clip)

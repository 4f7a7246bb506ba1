"""From steps to samples that a network learns from: advantages of reward and costs, with values fitted on the way.

Values of told episodes are fitted on these alone, by one ridge regression of returns on random features: an adaptation
depends on its batch and on nothing before it, and 40 episodes are too few for networks to be fitted from nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.control.critics import generalised_advantages
from surefoot.control.improvement import steps_worth
from surefoot.control.mlp_policy import normalise
from surefoot.control.networks import Actor, log_probability, numpy_policy
from surefoot.lab.baselines.control_specs import BatchRules
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy, RolloutBuffer

FEATURES = 400  # random ones, besides the first powers of observations and time
RIDGE = 1e-3  # for each step
FARTHEST = 5.0  # that a normalised observation counts
FEW = 1_000  # samples, none of which is left out


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


def rollout_samples(
    policy: NetworkPolicy, actor: Actor, told: RolloutBuffer, units: Units, horizon: int, rules: BatchRules
) -> Samples:
    """Of episodes that `policy` ran, `actor` being its network."""
    inputs = normalise(policy, observations_before(told))
    advantages = estimate_advantages(told, inputs, horizon, rules.discount, rules.trace)
    n = round_down(len(inputs))
    excess = (told.sums[:, 1:].mean(axis=0) - units.budget) / steps_worth(told.paid[:, 1:], told.sums, told.steps)
    return samples_of(actor, inputs[:n], told.actions[:n], advantages[:n], excess, rules.standardised)


def round_down(count: int) -> int:
    """Of a thousand samples or more up to an eighth is left out: functions are compiled anew for every number."""
    step = FEW * 2 ** int(np.log2(max(count, FEW) / FEW)) // 8
    return count if count < FEW else count // step * step


def observations_before(told: RolloutBuffer) -> Floats:
    """[N, o] without those after the last step of each episode."""
    before: Floats = np.delete(told.observations, np.cumsum(told.steps) + np.arange(told.count), axis=0)
    return before


def estimate_advantages(told: RolloutBuffer, inputs: Floats, horizon: int, discount: float, trace: float) -> Floats:
    """[N, 1+m] of steps at normalised observations [N, o]. Nothing follows an episode: what is to be raised, or kept
    within a budget, is its sum."""
    episode, step = np.repeat(np.arange(told.count), told.steps), np.concatenate([np.arange(n) for n in told.steps])

    def by_step(part: Floats) -> Floats:
        """[H+1, E, 1+m] of [N, 1+m]: 0 after the end of an episode."""
        padded = np.zeros((told.steps.max() + 1, told.count, part.shape[1]))
        padded[step, episode] = part
        return padded

    def advantages(values: Floats, trace: float) -> Floats:
        """[N, 1+m]"""
        never = np.zeros((*paid.shape[:2], 1), np.bool_)
        by_episode = generalised_advantages(paid, values[:-1], values[1:], never, never, discount, trace)
        found: Floats = by_episode[step, episode]
        return found

    paid = by_step(told.paid)[:-1]
    returns = advantages(np.zeros((len(paid) + 1, *paid.shape[1:])), 1.0)
    return advantages(by_step(ridge_fit(value_features(inputs, step / horizon), returns)), trace)


def ridge_fit(features: Floats, targets: Floats) -> Floats:
    """[N, k] what ridge regression of targets [N, k] on features [N, F] says of each."""
    gram = features.T @ features + RIDGE * len(features) * np.eye(features.shape[1])
    fitted: Floats = features @ np.linalg.solve(gram, features.T @ targets)
    return fitted


def value_features(inputs: Floats, time: Floats) -> Floats:
    """[N, F] of normalised observations [N, o] and the part [N] of the horizon that is over: powers, as in Duan et al.
    (ICML 2016), and random features (Rahimi and Recht 2007), the same for all."""
    shown = np.clip(inputs, -FARTHEST, FARTHEST)
    t = time[:, None]
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(inputs.shape[1] + 1, FEATURES)) / np.sqrt(inputs.shape[1])
    random = np.tanh(np.concatenate([shown, 4 * t - 2], axis=1) @ directions + rng.normal(size=FEATURES))
    return np.concatenate([np.ones_like(t), t, t**2, t**3, shown, shown**2, random], axis=1)


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

"""Critics, networks that predict the reward and each cost still to come, and generalised advantages made of them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from surefoot.arrays import Floats, Mask
from surefoot.control.networks import Network, forward, new_network

HIDDEN = (64, 64)
LEARNING_RATE = 1e-3
PASSES, MINIBATCHES = 8, 8  # over the samples of one batch
FORGETTING = 0.3  # of the size of what is predicted, from batch to batch


class Critics(NamedTuple):
    """1+m networks, one for the reward and one for each cost; what they predict is standardised by centre and spread
    [1+m]."""

    networks: Network  # every array with a first axis [1+m]
    optimiser: optax.OptState
    centre: Floats
    spread: Floats


def new_critics(observations: int, signals: int, rng: np.random.Generator) -> Critics:
    each = [new_network([observations, *HIDDEN, 1], rng) for _ in range(signals)]
    networks: Network = jax.tree.map(lambda *arrays: jnp.stack(arrays), *each)
    return Critics(networks, _adam().init(networks), np.zeros(signals), np.ones(signals))


def predict_values(critics: Critics, inputs: Floats) -> Floats:
    """[..., 1+m] at normalised observations [..., o]."""
    flat = inputs.reshape(-1, inputs.shape[-1])
    raw = np.asarray(_outputs(critics.networks, jnp.asarray(flat, jnp.float32)), np.float64)
    return (critics.centre + critics.spread * raw.T).reshape(*inputs.shape[:-1], -1)


def fit_critics(critics: Critics, inputs: Floats, targets: Floats, rng: np.random.Generator) -> Critics:
    """After a few passes over n samples: inputs [n, o], targets [n, 1+m]."""
    first = not critics.centre.any()
    keep = 0.0 if first else 1 - FORGETTING
    centre = keep * critics.centre + (1 - keep) * targets.mean(axis=0)
    spread = np.maximum(keep * critics.spread + (1 - keep) * targets.std(axis=0), 1e-6)
    size = max(1, len(inputs) // MINIBATCHES)
    order = np.concatenate([rng.permutation(len(inputs))[: size * MINIBATCHES] for _ in range(PASSES)])
    aims = jnp.asarray((targets - centre) / spread, jnp.float32)
    networks, optimiser = _adam_steps(
        critics.networks,
        critics.optimiser,
        jnp.asarray(inputs, jnp.float32),
        aims,
        jnp.asarray(order.reshape(-1, size)),
    )
    return Critics(networks, optimiser, centre, spread)


def advantages_and_targets(
    critics: Critics,
    paid: Floats,
    inputs: Floats,
    after: Floats,
    terminated: Mask,
    ended: Mask,
    discount: float,
    trace: float,
) -> tuple[Floats, Floats]:
    """Advantages [T, ..., 1+m] of what was paid [T, ..., 1+m], and what critics should have said; from normalised
    observations before and after each step [T, ..., o]."""
    values = predict_values(critics, inputs)
    ends = terminated[..., None], ended[..., None]
    advantages = generalised_advantages(paid, values, predict_values(critics, after), *ends, discount, trace)
    return advantages, values + advantages


def generalised_advantages(
    signal: Floats, values: Floats, after: Floats, terminated: Mask, ended: Mask, discount: float, trace: float
) -> Floats:
    """[T, ...] Σ_l (γλ)^l δ_{t+l} up to the episode's end or the last step, δ_t = g_t + γ V(s_{t+1}) - V(s_t)
    (Schulman, Moritz, Levine, Jordan and Abbeel 2016, Eq. 16).

    Args:
        signal: [T, ...] reward or cost of each step.
        values, after: [T, ...] of the states before and after it; nothing follows a state where the system ended.
        terminated, ended: [T, ...] whether the system ended there, and whether the episode did.
        discount, trace: γ and λ.
    """
    errors = signal + discount * np.where(terminated, 0.0, after) - values
    goes_on = discount * trace * ~ended
    advantages = np.empty_like(errors)
    following = np.zeros(errors.shape[1:])
    for t in reversed(range(len(errors))):
        following = errors[t] + goes_on[t] * following
        advantages[t] = following
    return advantages


# ------------------------------------------------------------------------------------------------- parts, in call order


def _adam() -> optax.GradientTransformation:
    return optax.adam(LEARNING_RATE)


@jax.jit
def _outputs(networks: Network, inputs: jax.Array) -> jax.Array:
    """[1+m, n]"""
    return jax.vmap(partial(_output, inputs=inputs))(networks)


def _output(network: Network, inputs: jax.Array) -> jax.Array:
    return forward(network, inputs)[:, 0]


@jax.jit
def _adam_steps(
    networks: Network, optimiser: optax.OptState, inputs: jax.Array, aims: jax.Array, order: jax.Array
) -> tuple[Network, optax.OptState]:
    """One step of Adam for each row of `order`, which holds the samples of a minibatch."""

    def loss(networks: Network, rows: jax.Array) -> jax.Array:
        return jnp.mean((_outputs(networks, inputs[rows]).T - aims[rows]) ** 2)

    def step(carry: tuple[Network, optax.OptState], rows: jax.Array) -> tuple[tuple[Network, optax.OptState], None]:
        networks, optimiser = carry
        updates, optimiser = _adam().update(jax.grad(loss)(networks, rows), optimiser)
        return (optax.apply_updates(networks, updates), optimiser), None

    (networks, optimiser), _ = jax.lax.scan(step, (networks, optimiser), order)
    return networks, optimiser

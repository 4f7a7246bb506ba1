"""Policies and critics in JAX, for training: plain trees of arrays and pure functions of them.

What is trained here is deployed by `mlp_policy`, in NumPy: `numpy_policy` makes the one from the other, and collection
already acts with what will be deployed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.world import Shapes
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy

CLIP = 5.0  # largest normalised observation
LEAST_SCALE = 1e-4  # that observations are divided by
LAST_LAYER = 0.01  # scale of a new policy's last layer: its first actions hardly depend on what it observes


class Network(NamedTuple):
    """W_L tanh(… tanh(W_1 x + b_1) …) + b_L; per layer [outputs, inputs] and [outputs]."""

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]


class Actor(NamedTuple):
    """A stochastic policy of normalised observations.

    Attributes:
        network: to the mean of a normal distribution, or to the logits of a finite choice.
        log_std: [k] of the normal distribution; [0] where there is a choice.
    """

    network: Network
    log_std: jax.Array

    @property
    def discrete(self) -> bool:
        return self.log_std.shape[-1] == 0


@dataclass(frozen=True, eq=False)
class Normaliser:
    """Running mean of `count` observations [o], and sum of squared differences from it: part of a trained policy."""

    count: int
    mean: Floats
    squares: Floats

    @classmethod
    def new(cls, size: int) -> Normaliser:
        return cls(0, np.zeros(size), np.zeros(size))

    @classmethod
    def from_policy(cls, shift: Floats, scale: Floats, count: int) -> Normaliser:
        """That of a trained policy, as after so many observations."""
        return cls(count, shift, scale**2 * count)

    @property
    def shift(self) -> Floats:
        return self.mean

    @property
    def scale(self) -> Floats:
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.maximum(np.sqrt(self.squares / self.count), LEAST_SCALE)

    def __call__(self, observations: Floats) -> Floats:
        """[..., o] as the policy's network sees them."""
        return np.clip((observations - self.shift) / self.scale, -CLIP, CLIP)

    def update(self, observations: Floats) -> Normaliser:
        """After [n, o] more observations (Chan, Golub and LeVeque 1979)."""
        n = len(observations)
        mean, total = observations.mean(axis=0), self.count + n
        apart = mean - self.mean
        squares = self.squares + ((observations - mean) ** 2).sum(axis=0) + apart**2 * self.count * n / total
        return Normaliser(total, self.mean + apart * n / total, squares)


def new_actor(shapes: Shapes, hidden: Sequence[int], rng: np.random.Generator, log_std: float = -0.5) -> Actor:
    network = new_network([shapes.observation, *hidden, shapes.action], rng, LAST_LAYER)
    return Actor(network, jnp.full(0 if shapes.discrete else shapes.action, log_std))


def new_network(sizes: Sequence[int], rng: np.random.Generator, last: float = 1.0) -> Network:
    """Orthogonal rows or columns, biases of 0."""
    gains = [np.sqrt(2.0)] * (len(sizes) - 2) + [last]
    weights = [
        gain * _orthogonal(rows, columns, rng) for gain, columns, rows in zip(gains, sizes, sizes[1:], strict=False)
    ]
    return Network(tuple(map(jnp.asarray, weights)), tuple(jnp.zeros(size) for size in sizes[1:]))


def forward(network: Network, inputs: jax.Array) -> jax.Array:
    """[..., outputs] at inputs [..., inputs]."""
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        inputs = jnp.tanh(inputs @ weight.T + bias)
    return inputs @ network.weights[-1].T + network.biases[-1]


class ActionDistribution(NamedTuple):
    """Of actions at n observations: normal distributions with these means [n, k], or choices with these logits.

    Attributes:
        log_std: [k], or [0] where there is a choice.
    """

    outputs: jax.Array
    log_std: jax.Array

    @property
    def discrete(self) -> bool:
        return self.log_std.shape[-1] == 0


def action_distribution(actor: Actor, inputs: jax.Array) -> ActionDistribution:
    return ActionDistribution(forward(actor.network, inputs), actor.log_std)


def log_density(distribution: ActionDistribution, actions: jax.Array) -> jax.Array:
    """[n] of actions [n, k], or of choices [n]."""
    out, log_std = distribution
    if distribution.discrete:
        return jnp.take_along_axis(jax.nn.log_softmax(out), actions[:, None], axis=1)[:, 0]
    z = (actions - out) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * z**2 + log_std + 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def kl(old: ActionDistribution, new: ActionDistribution) -> jax.Array:
    """[n] KL(old ‖ new)."""
    if old.discrete:
        before, after = jax.nn.log_softmax(old.outputs), jax.nn.log_softmax(new.outputs)
        return jnp.sum(jnp.exp(before) * (before - after), axis=-1)
    ratio = jnp.exp(2 * (old.log_std - new.log_std))
    apart = (old.outputs - new.outputs) ** 2 * jnp.exp(-2 * new.log_std)
    return jnp.sum(new.log_std - old.log_std + 0.5 * (ratio + apart - 1), axis=-1)


def log_probability(actor: Actor, inputs: jax.Array, actions: jax.Array) -> jax.Array:
    """[n] of actions [n, k], or of choices [n]."""
    return log_density(action_distribution(actor, inputs), actions)


def divergence(old: Actor, new: Actor, inputs: jax.Array) -> jax.Array:
    """[n] KL(old ‖ new) at each input."""
    return kl(action_distribution(old, inputs), action_distribution(new, inputs))


def entropy(actor: Actor, inputs: jax.Array) -> jax.Array:
    """Mean over inputs [n, o]."""
    if actor.discrete:
        logs = jax.nn.log_softmax(forward(actor.network, inputs))
        return -jnp.mean(jnp.sum(jnp.exp(logs) * logs, axis=-1))
    return jnp.sum(actor.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))


def numpy_policy(actor: Actor, normaliser: Normaliser | MLPPolicy | CategoricalPolicy) -> MLPPolicy | CategoricalPolicy:
    """The same policy in NumPy, with the normaliser inside, or that of another policy."""
    weights, biases = (tuple(np.asarray(each, np.float64) for each in part) for part in actor.network)
    if actor.discrete:
        return CategoricalPolicy(weights, biases, normaliser.shift, normaliser.scale, CLIP)
    log_std = np.asarray(actor.log_std, np.float64)
    return MLPPolicy(weights, biases, log_std, normaliser.shift, normaliser.scale, CLIP)


def actor_of(policy: MLPPolicy | CategoricalPolicy) -> Actor:
    """A deployed policy to be trained further."""
    network = Network(tuple(map(jnp.asarray, policy.weights)), tuple(map(jnp.asarray, policy.biases)))
    return Actor(network, jnp.asarray(policy.log_std if isinstance(policy, MLPPolicy) else np.zeros(0)))


def _orthogonal(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return (q if rows >= columns else q.T).astype(np.float32)

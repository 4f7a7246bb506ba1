"""Policies with a small neural network: a normal distribution over actions, or a choice of finitely many.

The core only runs and stores them; how they were trained does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from surefoot.arrays import Floats, Integers, assign, finite_array, generator, make_readonly
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class MLPPolicy(Predicting):
    """Action ~ N(mean(observation), diag(exp(log_std))²), mean = W_L tanh(… tanh(W_1 x + b_1) …) + b_L.

    The network sees x = (observation - shift)/scale, clipped to [-clip, clip]: the frozen statistics of training. One
    observation [observations] gives one action [actions], n of them [n, observations] as many [n, actions].

    Attributes:
        weights: per layer [outputs, inputs].
        biases: per layer [outputs].
        log_std: [actions] of the action noise; it does not depend on the observation.
        shift, scale: [observations].
        clip: largest normalised observation.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    log_std: Floats
    shift: Floats
    scale: Floats
    clip: float = 5.0
    kind: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        check_layers(self, "log_std")

    def mean(self, observation: Floats) -> Floats:
        """[..., actions] at observations [..., observations]."""
        return outputs(self, observation)

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Draw actions [..., actions] at observations [..., observations]; at every `step` alike."""
        mean = self.likeliest(observation, step)
        return mean + np.exp(self.log_std) * generator("rng", rng).standard_normal(mean.shape)

    def likeliest(self, observation: Any, step: Any) -> Floats:
        """The mean."""
        self.batch(observation)
        return self.mean(np.asarray(observation, dtype=np.float64))

    def batch(self, observation: Any) -> Batch:
        return observations_of(self, observation)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {**layer_arrays(self), "log_std": self.log_std}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> MLPPolicy:
        return cls(log_std=arrays["log_std"], **layers_from_arrays(arrays))


@dataclass(frozen=True, eq=False)
class CategoricalPolicy(Predicting):
    """P(action k | observation) ∝ exp(logits_k), logits = W_L tanh(… tanh(W_1 x + b_1) …) + b_L.

    The network sees x = (observation - shift)/scale, clipped to [-clip, clip]. One observation [observations] gives one
    action, n of them [n, observations] as many [n].

    Attributes:
        weights: per layer [outputs, inputs]; the last one has a row per action.
        biases: per layer [outputs].
        shift, scale: [observations].
        clip: largest normalised observation.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    shift: Floats
    scale: Floats
    clip: float = 5.0
    kind: ClassVar[str] = "categorical-mlp"

    def __post_init__(self) -> None:
        check_layers(self)

    def logits(self, observation: Floats) -> Floats:
        """[..., actions] at observations [..., observations]."""
        return outputs(self, observation)

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Integers:
        """Draw actions [...] at observations [..., observations]; at every `step` alike."""
        self.batch(observation)
        shares = softmax(self.logits(np.asarray(observation, dtype=np.float64)), axis=-1).cumsum(axis=-1)
        drawn = generator("rng", rng).random(shares.shape[:-1])
        chosen: Integers = np.minimum((shares < drawn[..., None]).sum(axis=-1), shares.shape[-1] - 1)
        return chosen

    def likeliest(self, observation: Any, step: Any) -> Integers:
        self.batch(observation)
        best: Integers = np.argmax(self.logits(np.asarray(observation, dtype=np.float64)), axis=-1)
        return best

    def batch(self, observation: Any) -> Batch:
        return observations_of(self, observation)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return layer_arrays(self)

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> CategoricalPolicy:
        return cls(**layers_from_arrays(arrays))


# ---------------------------------------------------- what they share: their layers, as data, and the pass through them


class Layered(Protocol):
    """A policy with a network: W_L tanh(… tanh(W_1 x + b_1) …) + b_L.

    The network sees x = (observation - shift)/scale, clipped to [-clip, clip]: the frozen statistics of training.
    """

    @property
    def weights(self) -> tuple[Floats, ...]: ...  # per layer [outputs, inputs]

    @property
    def biases(self) -> tuple[Floats, ...]: ...  # per layer [outputs]

    @property
    def shift(self) -> Floats: ...

    @property
    def scale(self) -> Floats: ...

    @property
    def clip(self) -> float: ...


def outputs(policy: Layered, observation: Floats) -> Floats:
    """[..., outputs] at observations [..., observations]."""
    hidden = normalise(policy, observation)
    for weight, bias in zip(policy.weights[:-1], policy.biases[:-1], strict=True):
        hidden = np.tanh(hidden @ weight.T + bias)
    out: Floats = hidden @ policy.weights[-1].T + policy.biases[-1]
    return out


def normalise(policy: Layered, observation: Floats) -> Floats:
    """[..., observations] as the network sees them."""
    return np.clip((observation - policy.shift) / policy.scale, -policy.clip, policy.clip)


def observations_of(policy: Layered, observation: Any) -> Batch:
    """How many observations these are; refused if they are none for this network."""
    *batch, length = np.shape(observation) or (0,)
    if length != len(policy.shift):
        raise InvalidInput(
            f"observation must have shape [{len(policy.shift)}] or [n, {len(policy.shift)}], "
            f"got {list(np.shape(observation))}"
        )
    return tuple(batch)


def check_layers(policy: Layered, *vectors: str) -> None:
    """Check and freeze what the policy holds, also the `vectors` of it that are as long as the network's outputs."""
    if not policy.weights or len(policy.weights) != len(policy.biases):
        raise InvalidInput(
            f"weights and biases must hold one array per layer, got {len(policy.weights)} and {len(policy.biases)}"
        )
    weights = tuple(_check_parameter(f"weights[{k}]", array, 2) for k, array in enumerate(policy.weights))
    biases = tuple(_check_parameter(f"biases[{k}]", array, 1) for k, array in enumerate(policy.biases))
    inputs = [weights[0].shape[1], *(len(bias) for bias in biases)]
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if weight.shape != (len(bias), inputs[k]):
            raise InvalidInput(f"weights[{k}] must have shape {[len(bias), inputs[k]]}, got {list(weight.shape)}")
    assign(policy, weights=weights, biases=biases)
    lengths = {**dict.fromkeys(vectors, inputs[-1]), "shift": inputs[0], "scale": inputs[0]}
    for name, length in lengths.items():
        array = _check_parameter(name, getattr(policy, name), 1)
        if array.shape != (length,):
            raise InvalidInput(f"{name} must have shape [{length}], got {list(array.shape)}")
        assign(policy, **{name: array})
    if not (policy.scale > 0).all():
        raise InvalidInput(f"scale must be positive, got {policy.scale.min()}")
    if not (np.isfinite(policy.clip) and policy.clip > 0):
        raise InvalidInput(f"clip must be a positive number, got {policy.clip!r}")
    assign(policy, clip=float(policy.clip))


def layer_arrays(policy: Layered) -> dict[str, NDArray[Any]]:
    """By name, for files."""
    layers = {f"weights.{k}": array for k, array in enumerate(policy.weights)}
    layers |= {f"biases.{k}": array for k, array in enumerate(policy.biases)}
    return {**layers, "shift": policy.shift, "scale": policy.scale, "clip": np.array(policy.clip)}


def layers_from_arrays(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The arguments of a policy from what `layer_arrays` made of it."""
    depth = sum(name.startswith("weights.") for name in arrays)
    weights, biases = (tuple(arrays[f"{part}.{k}"] for k in range(depth)) for part in ("weights", "biases"))
    clip = finite_array("clip", arrays["clip"])
    if clip.ndim:
        raise InvalidInput(f"clip must be one number, got shape {list(clip.shape)}")
    return {
        "weights": weights,
        "biases": biases,
        "shift": arrays["shift"],
        "scale": arrays["scale"],
        "clip": float(clip),
    }


def _check_parameter(name: str, value: Any, dimensions: int) -> Floats:
    array = finite_array(name, value)
    if array.ndim != dimensions or not array.size:
        raise InvalidInput(f"{name} must have {dimensions} dimension(s) and some entries, got {list(array.shape)}")
    return make_readonly(array)

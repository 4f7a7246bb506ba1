"""Policies of continuous control: a normal distribution over actions whose mean is a small neural network.

The core only runs and stores them; how they were trained does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, assign, finite_array, frozen, generator
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
        if not self.weights or len(self.weights) != len(self.biases):
            raise InvalidInput(
                f"weights and biases must hold one array per layer, got {len(self.weights)} and {len(self.biases)}"
            )
        weights = tuple(_frozen(f"weights[{k}]", array, 2) for k, array in enumerate(self.weights))
        biases = tuple(_frozen(f"biases[{k}]", array, 1) for k, array in enumerate(self.biases))
        inputs = [weights[0].shape[1], *(len(bias) for bias in biases)]
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            if weight.shape != (len(bias), inputs[k]):
                raise InvalidInput(f"weights[{k}] must have shape {[len(bias), inputs[k]]}, got {list(weight.shape)}")
        assign(self, weights=weights)
        assign(self, biases=biases)
        for name, length in (("log_std", inputs[-1]), ("shift", inputs[0]), ("scale", inputs[0])):
            array = _frozen(name, getattr(self, name), 1)
            if array.shape != (length,):
                raise InvalidInput(f"{name} must have shape [{length}], got {list(array.shape)}")
            assign(self, **{name: array})
        if not (self.scale > 0).all():
            raise InvalidInput(f"scale must be positive, got {self.scale.min()}")
        if not (np.isfinite(self.clip) and self.clip > 0):
            raise InvalidInput(f"clip must be a positive number, got {self.clip!r}")
        assign(self, clip=float(self.clip))

    def mean(self, observation: Floats) -> Floats:
        """[..., actions] at observations [..., observations]."""
        hidden = np.clip((observation - self.shift) / self.scale, -self.clip, self.clip)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.tanh(hidden @ weight.T + bias)
        action: Floats = hidden @ self.weights[-1].T + self.biases[-1]
        return action

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Draw actions [..., actions] at observations [..., observations]; at every `step` alike."""
        mean = self.likeliest(observation, step)
        return mean + np.exp(self.log_std) * generator("rng", rng).standard_normal(mean.shape)

    def likeliest(self, observation: Any, step: Any) -> Floats:
        """The mean."""
        self.batch(observation)
        return self.mean(np.asarray(observation, dtype=np.float64))

    def batch(self, observation: Any) -> Batch:
        *batch, length = np.shape(observation) or (0,)
        if length != len(self.shift):
            raise InvalidInput(
                f"observation must have shape [{len(self.shift)}] or [n, {len(self.shift)}], "
                f"got {list(np.shape(observation))}"
            )
        return tuple(batch)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        layers = {f"weights.{k}": array for k, array in enumerate(self.weights)}
        layers |= {f"biases.{k}": array for k, array in enumerate(self.biases)}
        return {
            **layers,
            "log_std": self.log_std,
            "shift": self.shift,
            "scale": self.scale,
            "clip": np.array(self.clip),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> MLPPolicy:
        depth = sum(name.startswith("weights.") for name in arrays)
        weights, biases = (tuple(arrays[f"{part}.{k}"] for k in range(depth)) for part in ("weights", "biases"))
        clip = finite_array("clip", arrays["clip"])
        if clip.ndim:
            raise InvalidInput(f"clip must be one number, got shape {list(clip.shape)}")
        return cls(weights, biases, arrays["log_std"], arrays["shift"], arrays["scale"], float(clip))


def _frozen(name: str, value: Any, dimensions: int) -> Floats:
    array = finite_array(name, value)
    if array.ndim != dimensions or not array.size:
        raise InvalidInput(f"{name} must have {dimensions} dimension(s) and some entries, got {list(array.shape)}")
    return frozen(array)

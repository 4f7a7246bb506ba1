"""Policies that choose one of finitely many actions with a small neural network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from surefoot.arrays import Floats, Integers, generator
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.control.layers import check_layers, layer_arrays, observations_of, outputs, stored_layers


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
        return cls(**stored_layers(arrays))

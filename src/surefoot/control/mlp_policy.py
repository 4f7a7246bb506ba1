"""Policies of continuous control: a normal distribution over actions whose mean is a small neural network.

The core only runs and stores them; how they were trained does not matter here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, generator
from surefoot.cmdp.policy import Batch, Predicting
from surefoot.control.layers import check_layers, layer_arrays, observations_of, outputs, stored_layers


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
        return cls(log_std=arrays["log_std"], **stored_layers(arrays))

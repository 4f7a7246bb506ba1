"""What every policy is, and mixtures that draw their component once per episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, finite_array, frozen
from surefoot.errors import InvalidInput


@runtime_checkable
class Policy(Protocol):
    """What every part of Surefoot may ask of a policy, tabular or not: to be stored as plain arrays."""

    kind: ClassVar[str]

    def to_arrays(self) -> dict[str, NDArray[Any]]: ...


@dataclass(frozen=True, eq=False)
class EpisodeMixture:
    """Draw one component at the start of an episode and follow it to the end, the paper's mixture policy.

    Values are linear in the weights only because of that single draw; mixing actions state by state is another policy
    with other values.
    """

    components: tuple[Any, ...]
    weights: Floats

    def __post_init__(self) -> None:
        weights = finite_array("weights", self.weights)
        if weights.shape != (len(self.components),) or not len(self.components):
            raise InvalidInput(
                f"weights must have one entry per component ({len(self.components)}), got shape {list(weights.shape)}"
            )
        if (weights < 0).any() or abs(weights.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidInput(f"weights must be non-negative and sum to 1, got {weights.tolist()}")
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "weights", frozen(weights))

    def draw(self, rng: np.random.Generator) -> Any:
        """The component to follow for one whole episode."""
        return self.components[rng.choice(len(self.components), p=self.weights)]

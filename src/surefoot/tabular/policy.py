"""Policies of tabular tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, distributions, finite_array
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """A stationary policy: probabilities [S, A], each row a distribution over actions."""

    probabilities: Floats
    kind: ClassVar[str] = "tabular"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", distributions("policy", self.probabilities, "[S, A]"))

    def act(self, state: int, rng: np.random.Generator) -> int:
        """Draw an action in `state`."""
        return int(rng.choice(self.probabilities.shape[1], p=self.probabilities[state]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TabularPolicy:
        return cls(arrays["probabilities"])


@dataclass(frozen=True, eq=False)
class TimedPolicy:
    """A policy that looks at the clock: probabilities [H, S, A], and step t follows table min(t, H-1).

    What a finite-horizon planner returns. From step H-1 on it is the stationary policy of its last table.
    """

    probabilities: Floats
    kind: ClassVar[str] = "timed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", distributions("policy", self.probabilities, "[H, S, A]"))

    def act(self, state: int, step: int, rng: np.random.Generator) -> int:
        """Draw an action in `state` at time `step` = 0, 1, ... of the episode."""
        if step < 0:
            raise InvalidInput(f"step must not be negative, got {step}")
        table = self.probabilities[min(step, len(self.probabilities) - 1)]
        return int(rng.choice(table.shape[1], p=table[state]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TimedPolicy:
        return cls(arrays["probabilities"])


PolicyLike: TypeAlias = TabularPolicy | TimedPolicy | EpisodeMixture | ArrayLike


def as_tables(policy: TabularPolicy | TimedPolicy | ArrayLike, shape: tuple[int, int]) -> Floats:
    """[H, S, A] action probabilities by step, the last table for all later ones; H = 1 for a stationary policy."""
    if not isinstance(policy, TimedPolicy):
        return as_tabular(policy, shape).probabilities[None]
    if policy.probabilities.shape[1:] != shape:
        raise InvalidInput(
            f"policy must have shape [H, {shape[0]}, {shape[1]}] for this task, got {list(policy.probabilities.shape)}"
        )
    return policy.probabilities


def as_tabular(policy: TabularPolicy | ArrayLike, shape: tuple[int, int]) -> TabularPolicy:
    """`policy` as a TabularPolicy of the given [S, A] shape."""
    tabular = policy if isinstance(policy, TabularPolicy) else TabularPolicy(finite_array("policy", policy))
    if tabular.probabilities.shape != shape:
        raise InvalidInput(
            f"policy must have shape {list(shape)} for this task, got {list(tabular.probabilities.shape)}"
        )
    return tabular
